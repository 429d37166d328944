"""The candidate index: which earlier texts share a key with these texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.key_map import KeyMap
from dedup_job.index.key_map_buckets import Keys
from dedup_job.index.key_map_search import (
    KEY_LOWER_BITS,
    SEGMENT_BITS,
    Fingerprints,
    Hits,
    KeyRule,
    Queries,
    Simhashes,
    collect_hits,
    differing_bits,
    record_hit,
    segment_of,
    unpack_hits,
)
from dedup_job.native.arrays import Flags, Numbers, append_rows, ensure_capacity
from dedup_job.native.numba_compile import compiled, compiled_inline
from dedup_job.start_threads_and_count_processors import Threads, count_processors

WORD_BITS = 64
# Texts in an index: a key map counts its slots in uint32.
LARGEST_COUNT = 1 << 31
# Queries of one search: a packed hit has 24 bits for the query.
QUERIES_AT_ONCE = (1 << 24) - 1
# Hits per query that a search has room for at first.
HITS_PER_QUERY = 4
# From this many texts on, several maps are filled at the same time.
TEXTS_FOR_THREADS = 1 << 16
# Texts that wait to be inserted: at most this many, or half as many as are in the maps.
MOST_WAITING = 1 << 23
# Texts stored for one key.
LISTED = 64
# Hits returned for one query by one map.
FOUND = 16
# Average entries in a bucket.  A search for a segment reads several buckets, a search for a band only one.
# With a load of less than 8, segment maps would need more buckets than their keys have bits for, before there
# are 2**32 texts.
SEGMENT_LOAD, BAND_LOAD = 8, 32


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of n texts; text i has the rows offsets[i] to offsets[i + 1].

    The rows of a text ascend by distance, then by number: the nearest and earliest candidate comes first.

    Attributes:
        offsets: int64, shape (n + 1,).
        texts: int64, numbers of the candidates.
        distances: int64, Hamming distances; NO_DISTANCE where one of the two texts has no fingerprint.
    """

    offsets: Numbers
    texts: Numbers
    distances: Numbers


class CandidateIndex:
    """All texts so far, by key; texts are numbered in order of arrival.

    Not thread-safe.
    """

    def __init__(self, bits: int, matching: Matching) -> None:
        """Create an empty index.

        Raises:
            ValueError: If fingerprints have neither 64 nor 128 bits.
        """
        if bits not in (64, 128):
            raise ValueError(f"bits must be 64 or 128, not {bits}")
        self._radius, self._max_hits = matching.radius, FOUND
        self._count = 0
        # Hits per query to make room for: twice as many as in the last search.
        self._hits_per_query = HITS_PER_QUERY
        # Texts before this number are in the maps; the band keys of the others wait in a list.
        self._mapped = 0
        self._waiting: list[Keys] = []
        self._bits = np.empty((0, bits // WORD_BITS), np.uint64)
        self._has_fingerprint = np.empty(0, np.bool_)
        # With a radius of as many bits as there are segments, two near fingerprints may share no segment key.
        self._is_exhaustive = matching.radius >= bits // SEGMENT_BITS
        by_segment, by_band = key_rules(bits, matching)
        self._segments = [] if self._is_exhaustive else [KeyMap(rule) for rule in by_segment]
        self._bands = [KeyMap(rule) for rule in by_band]

    def __len__(self) -> int:
        """Return the number of texts added so far."""
        return self._count

    def add(self, bits: Fingerprints, has_fingerprint: Flags, keys: Keys) -> None:
        """Add n texts, which get the next n numbers.

        They are inserted into the maps later: when many of them wait, or before the next search.

        Args:
            bits: uint64, shape (n, words), fingerprints.
            has_fingerprint: bool, shape (n,).
            keys: uint32, shape (n, bands), band keys; a row of zeros for a text without any.

        Raises:
            OverflowError: If the index would hold more than 2**31 texts.
        """
        last = self._count + len(bits)
        if last > LARGEST_COUNT:
            raise OverflowError(f"an index holds at most {LARGEST_COUNT:,} texts")
        self._bits = append_rows(self._bits, self._count, bits)
        self._has_fingerprint = append_rows(self._has_fingerprint, self._count, has_fingerprint)
        self._count = last
        self._waiting.append(keys)
        if self._count - self._mapped > max(MOST_WAITING, self._mapped // 2):
            self.fill_maps()

    def reserve(self, texts: int) -> None:
        """Make room for this many texts in all."""
        self._bits = ensure_capacity(self._bits, texts)
        self._has_fingerprint = ensure_capacity(self._has_fingerprint, texts)

    def fill_maps(self) -> None:
        """Insert all waiting texts into the maps; the more texts at once, the less each costs."""
        new = slice(self._mapped, self._count)
        bits, has_fingerprint = self._bits[new], self._has_fingerprint[new]
        if not len(bits):
            return
        waiting = self._waiting
        has_keys = np.concatenate([keys.any(axis=1) for keys in waiting])

        def fill_segment(place: int) -> None:
            self._segments[place].add(segment_keys(bits, place), has_fingerprint)

        def fill_band(place: int) -> None:
            self._bands[place].add(np.concatenate([keys[:, place] for keys in waiting]), has_keys)

        _for_each(fill_segment, range(len(self._segments)), len(bits))
        _for_each(fill_band, range(len(self._bands)), len(bits))
        self._mapped, self._waiting = self._count, []

    def candidates(self, texts: Numbers, keys: Keys) -> Candidates:
        """Find the candidates of texts of this index, among all other texts.

        Args:
            texts: int64, shape (n,), their numbers.
            keys: uint32, shape (n, bands), the band keys with which they were added.
        """
        prints = Simhashes(self._bits[texts], self._has_fingerprint[texts])
        return self.candidates_of(Queries(texts, prints), keys)

    def candidates_of(self, queries: Queries, keys: Keys) -> Candidates:
        """Find the candidates of texts that may be new: those each would have if it were added next.

        Args:
            queries: The texts; a new text has the number `len(self)`.
            keys: uint32, shape (n, bands), band keys.

        Raises:
            ValueError: If there are more than QUERIES_AT_ONCE queries.
        """
        texts, own = queries
        if len(texts) > QUERIES_AT_ONCE:
            raise ValueError(f"look for at most {QUERIES_AT_ONCE:,} texts at once, not {len(texts):,}")
        self.fill_maps()
        prints = Simhashes(self._bits[: self._count], self._has_fingerprint[: self._count])
        by_print = Queries(np.where(own.has_fingerprint, texts, -1), own)
        by_band = Queries(np.where(keys.any(axis=1), texts, -1), own)

        def search(hits: Hits) -> None:
            for place, segment_map in enumerate(self._segments):
                segment_map.search(segment_keys(own.bits, place), by_print, prints, hits)
            if self._is_exhaustive:
                compare_all(by_print, prints, self._radius, self._max_hits, hits)
            for place, band_map in enumerate(self._bands):
                # Compiled code expects contiguous columns.
                band_map.search(np.ascontiguousarray(keys[:, place]), by_band, prints, hits)

        packed = collect_hits(search, self._hits_per_query * len(texts))
        self._hits_per_query = max(HITS_PER_QUERY, 2 * len(packed) // max(1, len(texts)))
        packed.sort()
        # Several maps may return the same hit.
        packed = packed[np.append(True, packed[1:] != packed[:-1])[: len(packed)]]
        found_for, distances, found = unpack_hits(packed)
        return Candidates(np.searchsorted(found_for, np.arange(len(texts) + 1)), found, distances)


def key_rules(bits: int, matching: Matching) -> tuple[list[KeyRule], list[KeyRule]]:
    """Return the rules of the segment maps and of the band maps, for fingerprints of `bits` bits."""
    by_segment = KeyRule(matching.radius, LISTED, FOUND, SEGMENT_LOAD)
    by_band = KeyRule(matching.band_radius, LISTED, FOUND, BAND_LOAD)
    places = range(bits // SEGMENT_BITS)
    return [by_segment._replace(segment=place) for place in places], [by_band] * matching.bands


def _for_each(work: Callable[[int], None], places: range, texts: int) -> None:
    """Call a function for each place, on all processors if there are many texts.

    Threads do run at the same time here: compiled code releases the interpreter's lock.
    """
    if texts < TEXTS_FOR_THREADS:
        # A list, because `map` is lazy.
        list(map(work, places))
        return
    threads = Threads(count_processors())
    try:
        # A list, because an error in a thread shows only when its result is read.
        list(threads.map(work, places))
    finally:
        threads.stop()


def segment_keys(bits: Fingerprints, place: int) -> Keys:
    """Make keys from one segment of each fingerprint and the next segment.

    The segment is scattered, because segments of real texts are far from evenly distributed.  A key has its
    upper 14 bits, then the next segment unchanged, then its lower 2 bits.

    Args:
        bits: uint64, shape (n, words), fingerprints.
        place: Index of the segment.

    Returns:
        uint32, shape (n,).

    >>> keys = segment_keys(np.array([[0x1111], [0x2_1111], [0x1_0000_1111]], np.uint64), 0)
    >>> [hex(key ^ keys[0]) for key in keys]
    ['0x0', '0x8', '0x0']
    """
    # Allocated by numpy for the sake of large memory pages, as in `partition_keys`.
    keys = np.empty(len(bits), np.uint32)
    _write_segment_keys(bits, place, keys)
    return keys


@compiled
def _write_segment_keys(bits: Fingerprints, place: int, keys: Keys) -> None:
    """Write the keys of `segment_keys` into an array."""
    following = (place + 1) % (bits.shape[1] * 4)
    for row in range(len(bits)):
        own = _scatter(np.uint32(segment_of(bits, row, place)))
        upper, lower = own >> np.uint32(KEY_LOWER_BITS), own & np.uint32((1 << KEY_LOWER_BITS) - 1)
        middle = np.uint32(segment_of(bits, row, following)) << np.uint32(KEY_LOWER_BITS)
        keys[row] = upper << np.uint32(SEGMENT_BITS + KEY_LOWER_BITS) | middle | lower


@compiled_inline
def _scatter(segment: np.uint32) -> np.uint32:
    """Map 16-bit segments to 16-bit numbers, one to one, so that crowded segments spread over the buckets."""
    # Multiplications by odd numbers and shifts by xor can both be undone, so no two segments collide.
    first = (segment ^ segment >> np.uint32(8)) * np.uint32(0x88B5) & np.uint32(0xFFFF)
    second = (first ^ first >> np.uint32(7)) * np.uint32(0xDB2D) & np.uint32(0xFFFF)
    return np.uint32(second ^ second >> np.uint32(9))


@compiled
def compare_all(queries: Queries, prints: Simhashes, radius: int, max_hits: int, hits: Hits) -> None:
    """Compare each query with every text, and record the first `max_hits` texts within the radius."""
    texts = queries.texts
    for query in range(len(texts)):
        count = 0
        for other in range(len(prints.bits) if texts[query] >= 0 else 0):
            if other == texts[query] or not prints.has_fingerprint[other]:
                continue
            distance = differing_bits(queries.prints.bits, query, prints.bits, other)
            if distance <= radius:
                record_hit(query, distance, other, hits)
                count += 1
                if count == max_hits:
                    break
