"""The index: which other texts are candidates for these ones, found by equal keys.

Two kinds of keys are looked at side by side.

A fingerprint is cut into segments of 16 bits.  Two fingerprints of s segments that differ in fewer than s
bits agree in one segment and differ in one bit at most in the next one (the last is followed by the first):
else each segment without a difference would be followed by one with two, and there would be s of them at
least.  So a map for each segment, with the segment and the next one for a key, finds all that is within the
radius, when it is asked for the key itself and for the 16 that differ in one bit of the lower half (Manku,
Jain and Das Sarma, "Detecting near-duplicates for web crawling", WWW 2007, section 3, has such maps).

Bands find what is similar and not that near; `fingerprint.bands` has them.

A form that was filled in a hundred thousand times has the same keys a hundred thousand times.  So a key is
remembered with the first texts alone that have it, and the keys of one map find the first near enough ones
alone.  What is found depends on the texts and their order, never on which of them were kept: all are in the
index, kept or not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.recipe import Matching
from dedup_job.match import found as _found
from dedup_job.match.column import extended, with_room
from dedup_job.match.keymap import KeyMap, Rule
from dedup_job.match.search import LOWER, SEGMENT_BITS, Prints, Queries, segment_of
from dedup_job.native.compiled import compiled, inlined
from dedup_job.threads import Threads

Fingerprints = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint32]

WORD_BITS = 64
LARGEST_COUNT = 1 << 31  # places of entries are uint32
QUERIES_AT_ONCE = (1 << 24) - 1  # as many as a number in Found can tell apart
FEW = 4  # candidates of a query, at least
MANY = 1 << 16  # texts that are entered into several maps side by side
MOST_WAITING = 1 << 23  # texts that wait to be entered, or half as many as there are
LISTED = 64  # texts that a key is remembered with
FOUND = 16  # texts that the keys of one map find for another text
# Entries of a bucket: segments are looked for in several, a band in one.  With less than 8 for segments there
# would be more buckets than their keys have bits for, before there are 2**32 texts.
SEGMENT_LOAD, BAND_LOAD = 8, 32


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of n texts: those of text i are rows offsets[i] to offsets[i+1].

    Within a text they ascend by distance, then by number: the nearest and earliest comes first.
    """

    offsets: npt.NDArray[np.int64]  # (n + 1,)
    texts: Keys  # numbers
    distances: npt.NDArray[np.uint8]  # in bits; NO_DISTANCE where one of the two has no fingerprint


class Index:
    """All texts so far by their keys; texts are numbered in the order in which they are added.

    Belongs to one thread at a time.
    """

    def __init__(self, bits: int, matching: Matching) -> None:
        """Make an empty index for fingerprints of 64 or 128 bits; ValueError for others."""
        if bits not in (64, 128):
            raise ValueError(f"bits must be 64 or 128, not {bits}")
        self._radius, self._found = matching.radius, FOUND
        self._count = 0
        self._usual = FEW  # candidates of a query, twice as many as there were last time
        self._mapped = 0  # texts before this number are in the maps,
        self._waiting: list[Keys] = []  # the keys of the others' bands are here
        self._bits = np.empty((0, bits // WORD_BITS), np.uint64)
        self._has_print = np.empty(0, np.bool_)
        self._is_exhaustive = matching.radius >= bits // SEGMENT_BITS
        by_segment, by_band = rules(bits, matching)
        self._segments = [] if self._is_exhaustive else [KeyMap(rule) for rule in by_segment]
        self._bands = [KeyMap(rule) for rule in by_band]

    def __len__(self) -> int:
        """Texts added so far."""
        return self._count

    @property
    def parts(self) -> dict[str, int]:
        """Bytes held by each part, all texts being in the maps."""
        self.fill_maps()
        return {
            "fingerprints": self._bits.nbytes + self._has_print.nbytes,
            "segments": sum(one.nbytes for one in self._segments),
            "bands": sum(one.nbytes for one in self._bands),
        }

    def add(self, bits: Fingerprints, has_fingerprint: npt.NDArray[np.bool_], keys: Keys) -> None:
        """Add n texts at the next n numbers; OverflowError when there would be more than 2**31.

        They wait to be entered into the maps until there are many, or until something is looked for.

        bits       uint64 (n, words), their fingerprints
        has_fingerprint  bool (n,), which of them have one
        keys       uint32 (n, bands), zeros for one that has none
        """
        last = self._count + len(bits)
        if last > LARGEST_COUNT:
            raise OverflowError(f"an index holds at most {LARGEST_COUNT:,} texts")
        self._bits = extended(self._bits, self._count, bits)
        self._has_print = extended(self._has_print, self._count, has_fingerprint)
        self._count = last
        self._waiting.append(keys)
        if self._count - self._mapped > max(MOST_WAITING, self._mapped // 2):
            self.fill_maps()

    def reserve(self, texts: int) -> None:
        """Have room for so many texts in all."""
        self._bits = with_room(self._bits, texts)
        self._has_print = with_room(self._has_print, texts)

    def fill_maps(self) -> None:
        """Enter the texts that wait into all maps.  The more there are, the less each costs."""
        bits, has_fingerprint = (
            self._bits[self._mapped : self._count],
            self._has_print[self._mapped : self._count],
        )
        if not len(bits):
            return
        waiting = self._waiting
        has_keys = np.concatenate([one.any(axis=1) for one in waiting])

        def fill_segment(place: int) -> None:
            self._segments[place].add(segment_keys(bits, place), has_fingerprint)

        def fill_band(place: int) -> None:
            self._bands[place].add(np.concatenate([one[:, place] for one in waiting]), has_keys)

        _for_each(fill_segment, range(len(self._segments)), len(bits))
        _for_each(fill_band, range(len(self._bands)), len(bits))
        self._mapped, self._waiting = self._count, []

    def candidates(self, texts: Numbers, keys: Keys) -> Candidates:
        """Return what the keys of some of the texts find among all others.

        texts  int64 (n,), their numbers
        keys   uint32 (n, bands), as they were added
        """
        return self.candidates_of(Queries(texts, Prints(self._bits[texts], self._has_print[texts])), keys)

    def candidates_of(self, queries: Queries, keys: Keys) -> Candidates:
        """Return what some texts find that need not be among these; it is what each would find if added next.

        queries  the number of one that is not among them is that of the next text, `len(self)`
        keys     uint32 (n, bands)
        """
        texts, own = queries
        if len(texts) > QUERIES_AT_ONCE:
            raise ValueError(f"look for at most {QUERIES_AT_ONCE:,} texts at once, not {len(texts):,}")
        self.fill_maps()
        prints = Prints(self._bits[: self._count], self._has_print[: self._count])
        by_print = Queries(np.where(own.is_there, texts, -1), own)
        by_band = Queries(np.where(keys.any(axis=1), texts, -1), own)

        def search(found: _found.Found) -> None:
            for place, segment_map in enumerate(self._segments):
                segment_map.search(segment_keys(own.bits, place), by_print, prints, found)
            if self._is_exhaustive:
                compare_all(by_print, prints, self._radius, self._found, found)
            for place, band_map in enumerate(self._bands):
                band_map.search(np.ascontiguousarray(keys[:, place]), by_band, prints, found)

        return self._gathered(len(texts), search)

    def _gathered(self, queries: int, search: Callable[[_found.Found], None]) -> Candidates:
        """Search with room for about as many as last time."""
        numbers = _found.gathered(search, self._usual * queries)
        self._usual = max(FEW, 2 * len(numbers) // max(1, queries))
        numbers.sort()
        numbers = numbers[
            np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]
        ]  # keys may find the same
        distances = (numbers >> np.uint64(32)).astype(np.uint8)
        return Candidates(_found.offsets(numbers, queries), numbers.astype(np.uint32), distances)


def rules(bits: int, matching: Matching) -> tuple[list[Rule], list[Rule]]:
    """Return what the keys of each segment's map find in fingerprints of so many bits, and of each band's."""
    by_segment = Rule(matching.radius, LISTED, FOUND, SEGMENT_LOAD)
    by_band = Rule(matching.band_radius, LISTED, FOUND, BAND_LOAD)
    places = range(bits // SEGMENT_BITS)
    return [replace(by_segment, segment=place) for place in places], [by_band] * matching.bands


def _for_each(work: Callable[[int], None], places: range, texts: int) -> None:
    """Do work at each place, on all processors where there are many texts: compiled code holds no lock."""
    if texts < MANY:
        list(map(work, places))
        return
    threads = Threads(os.cpu_count() or 1)
    try:
        list(threads.map(work, places))
    finally:
        threads.stop()


def segment_keys(bits: Fingerprints, place: int) -> Keys:
    """Return keys made of a segment of each fingerprint and the next one, uint32 (n,).

    The segment is scattered, because segments of real texts crowd: first come its upper 14 bits, then the
    next segment as it is, then the lower 2 bits.

    >>> keys = segment_keys(np.array([[0x1111], [0x2_1111], [0x1_0000_1111]], np.uint64), 0)
    >>> [hex(key ^ keys[0]) for key in keys]
    ['0x0', '0x8', '0x0']
    """
    keys = np.empty(len(bits), np.uint32)  # in large pages, as in `roughly_sorted`
    _write_segment_keys(bits, place, keys)
    return keys


@compiled
def _write_segment_keys(bits: Fingerprints, place: int, keys: Keys) -> None:
    following = (place + 1) % (bits.shape[1] * 4)
    for row in range(len(bits)):
        own = _scattered(np.uint32(segment_of(bits, row, place)))
        upper, lower = own >> np.uint32(LOWER), own & np.uint32((1 << LOWER) - 1)
        middle = np.uint32(segment_of(bits, row, following)) << np.uint32(LOWER)
        keys[row] = upper << np.uint32(SEGMENT_BITS + LOWER) | middle | lower


@inlined
def _scattered(segment: np.uint32) -> np.uint32:
    """Another number of 16 bits for a segment, different ones for different ones."""
    first = (segment ^ segment >> np.uint32(8)) * np.uint32(0x88B5) & np.uint32(0xFFFF)
    second = (first ^ first >> np.uint32(7)) * np.uint32(0xDB2D) & np.uint32(0xFFFF)
    return np.uint32(second ^ second >> np.uint32(9))


@compiled
def compare_all(queries: Queries, prints: Prints, radius: int, most: int, found: _found.Found) -> None:
    """Note the first `most` texts within the radius of each query, comparing it with all of them."""
    texts = queries.texts
    for query in range(len(texts)):
        noted = 0
        for other in range(len(prints.bits) if texts[query] >= 0 else 0):
            if other == texts[query] or not prints.is_there[other]:
                continue
            distance = _found.differing_bits(queries.prints.bits, query, prints.bits, other)
            if distance <= radius:
                _found.note(query, distance, other, found)
                noted += 1
                if noted == most:
                    break
