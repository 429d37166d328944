"""Find texts that share keys, in partitions that can be searched independently; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index import candidate_index
from dedup_job.index.key_map import KeyMap, KeyRule
from dedup_job.index.search import Hits, Queries, Simhashes, collect_hits, unpack_hits

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAP_SHIFT = 32  # bits of a key, below the number of its map
PART_SHIFT = 40  # bits of a key with its map, below the number of a crowded key's part
HALF_BITS = 8
SEGMENT_MAPS = 32  # the numbers of segments' maps come before this one, two for each, those of bands after
ASKING = 1 << 18  # texts that ask at once: what they find has to have room


@dataclass(frozen=True, slots=True)
class DistinctTexts:
    """Different texts, as columns.

    text   int64 (n,), the order of the first record that has it
    bits   uint64 (n, words), its fingerprint
    has_fingerprint  bool (n,)
    keys   uint32 (n, bands), of its bands; zeros where it has none
    again  bool (n,), whether another record has it, which may find what came in between
    """

    text: Numbers
    bits: npt.NDArray[np.uint64]
    has_fingerprint: Flags
    keys: npt.NDArray[np.uint32]
    again: Flags


class KeyEntries(NamedTuple):
    """Texts by one of their keys.

    place  int64 (n,), the key with the number of its map above it, and above that the part of a crowded key
    asks   bool (n,), whether the text looks for others here, or is only found
    the others as in Texts
    """

    place: Numbers
    text: Numbers
    bits: npt.NDArray[np.uint64]
    has_fingerprint: Flags
    again: Flags
    asks: Flags

    @property
    def keys(self) -> Numbers:
        """Keys with the numbers of their maps, int64 (n,)."""
        return self.place & (1 << PART_SHIFT) - 1

    def take(self, rows: npt.NDArray[np.intp] | Flags) -> KeyEntries:
        """Return some of them."""
        return KeyEntries._make(column[rows] for column in self)

    @classmethod
    def join(cls, some: Iterable[KeyEntries]) -> KeyEntries:
        """Return all of these, at least of one."""
        return cls._make(map(np.concatenate, zip(*some, strict=True)))


@dataclass(frozen=True, slots=True)
class CrowdedKeys:
    """Keys that very many texts have: ascending, int64 (n,), and into how many parts the texts of each go."""

    keys: Numbers
    parts: Numbers

    def parts_of(self, keys: Numbers) -> Numbers:
        """Return the parts of each key, int64 (n,): one where it is not crowded."""
        if not len(self.keys):
            return np.ones(len(keys), np.int64)
        at = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.parts[at], 1)


class FoundPairs(NamedTuple):
    """What keys have found: `text` finds `other`.

    by        int64 (n,), the number of the segment or of the band that has found it, bands behind segments
    distance  int64 (n,), in bits; NO_DISTANCE where one of the two has no fingerprint
    """

    text: Numbers
    other: Numbers
    by: Numbers
    distance: Numbers


def entries(texts: DistinctTexts, matching: Matching) -> KeyEntries:
    """Return the entries of texts under all their keys.

    A text with a fingerprint has two for each segment of it, one with shingles one for each band.
    """
    rows, keys = [np.empty(0, np.intp)], [np.empty(0, np.int64)]
    printed, shingled = np.flatnonzero(texts.has_fingerprint), np.flatnonzero(texts.keys.any(axis=1))
    segments = np.ascontiguousarray(texts.bits[printed], "<u8").view("<u2").astype(np.int64)
    for place in range(segments.shape[1]):
        own, following = segments[:, place], segments[:, (place + 1) % segments.shape[1]]
        for half in range(2):
            part = following >> HALF_BITS * half & (1 << HALF_BITS) - 1
            rows.append(printed)
            keys.append((2 * place + half) << MAP_SHIFT | own << HALF_BITS | part)
    for band in range(matching.bands):
        rows.append(shingled)
        keys.append((SEGMENT_MAPS + band) << MAP_SHIFT | texts.keys[shingled, band].astype(np.int64))
    at = np.concatenate(rows)
    columns = (texts.text[at], texts.bits[at], texts.has_fingerprint[at], texts.again[at])
    return KeyEntries(np.concatenate(keys), *columns, np.ones(len(at), np.bool_))


def spread(entries: KeyEntries, crowded: CrowdedKeys) -> KeyEntries:
    """Return entries with those of crowded keys in the parts that their texts belong to."""
    part = entries.text % crowded.parts_of(entries.place)
    return entries._replace(place=part << PART_SHIFT | entries.place)


def first_listed(entries: KeyEntries) -> KeyEntries:
    """Return those of some entries, all of one part, that their keys can be remembered with.

    They are the first ones of each key: of all entries of the key those that are remembered are among them.
    """
    found = [
        own.take(_ranks(_map_keys(number, own)) < candidate_index.LISTED) for number, own in _by_map(entries)
    ]
    return KeyEntries.join([entries.take(np.empty(0, np.intp)), *found])


def in_every_part(listed: KeyEntries, crowded: CrowdedKeys) -> KeyEntries:
    """Return the texts that crowded keys are remembered with, to be found in each part of their keys."""
    times = crowded.parts_of(listed.place)
    copies = listed.take(np.repeat(np.arange(len(times)), times))
    part = np.arange(len(copies.place)) - np.repeat(np.cumsum(times) - times, times)
    return copies._replace(place=part << PART_SHIFT | copies.place, asks=np.zeros_like(copies.asks))


def pairs(entries: KeyEntries, matching: Matching) -> FoundPairs:
    """Return what texts find in a part: all entries of each key and part of a key are in it.

    A text finds later ones only when it comes again.
    """
    by_segment, by_band = candidate_index.key_rules(64 * entries.bits.shape[1], matching)
    none = np.empty(0, np.int64)
    found = [FoundPairs(none, none, none, none)]
    for number, own in _by_map(entries):
        is_band = number >= SEGMENT_MAPS
        by = number if is_band else number // 2
        rule = by_band[by - SEGMENT_MAPS] if is_band else by_segment[by]
        found += _looked_up(rule, _map_keys(number, own), own, by)
    return FoundPairs._make(map(np.concatenate, zip(*found, strict=True)))


def first_found(pairs: FoundPairs) -> FoundPairs:
    """Return each pair once, of the pairs that a map has found for a text only the first; all are there."""
    pairs = _once(pairs, pairs.other, pairs.by, pairs.text)
    is_first = _ranks(pairs.text, pairs.by) < candidate_index.FOUND
    pairs = FoundPairs._make(column[is_first] for column in pairs)
    return _once(pairs, pairs.other, pairs.text)


def _by_map(entries: KeyEntries) -> Iterator[tuple[int, KeyEntries]]:
    """Yield the number of each map and its entries, in the order of their texts, each text once."""
    maps = (entries.keys >> MAP_SHIFT).astype(np.uint8)
    by_map = np.argsort(maps, kind="stable")
    bounds = np.searchsorted(maps[by_map], np.arange(256))
    for number, (start, stop) in enumerate(pairwise(bounds.tolist())):
        own = entries.take(by_map[start:stop])
        own = own.take(np.lexsort((~own.asks, own.text)))
        if len(own.text):
            yield number, own.take(np.append(True, own.text[1:] != own.text[:-1]))


def _map_keys(number: int, entries: KeyEntries) -> npt.NDArray[np.uint32]:
    """Return what a map has for keys, uint32 (n,): those of the index."""
    if number < SEGMENT_MAPS:
        return candidate_index.segment_keys(entries.bits, number // 2)
    return entries.place.astype(np.uint32)


def _looked_up(
    rule: KeyRule, keys: npt.NDArray[np.uint32], entries: KeyEntries, by: int
) -> Iterator[FoundPairs]:
    """Yield what texts find that are entered into a map in their order."""
    key_map, prints = KeyMap(rule), Simhashes(entries.bits, entries.has_fingerprint)
    key_map.add(keys, np.ones(len(keys), np.bool_))
    asking = np.flatnonzero(entries.asks)
    for start in range(0, len(asking), ASKING):
        rows = asking[start : start + ASKING]
        queries = Queries(rows, Simhashes(prints.bits[rows], prints.has_fingerprint[rows]))

        def search(found: Hits, rows: Numbers = rows, queries: Queries = queries) -> None:
            key_map.search(keys[rows], queries, prints, found)

        query, distance, other = unpack_hits(collect_hits(search, candidate_index.HITS_PER_QUERY * len(rows)))
        row = rows[query]
        is_wanted = (other < row) | entries.again[row]
        text, other, distance = (
            entries.text[row[is_wanted]],
            entries.text[other[is_wanted]],
            distance[is_wanted],
        )
        yield FoundPairs(text, other, np.full(len(text), by), distance)


def _ranks(*columns: npt.NDArray[np.integer]) -> Numbers:
    """Return how many rows before each are equal to it."""
    order, begins = _runs(columns)
    places = np.arange(len(order))
    ranks = np.empty_like(places)
    ranks[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ranks


def _once(pairs: FoundPairs, *columns: Numbers) -> FoundPairs:
    """Return each of the pairs once that these columns tell apart, in the order of the last one first."""
    order, begins = _runs(columns)
    return FoundPairs._make(column[order[begins]] for column in pairs)


def _runs(columns: tuple[npt.NDArray[np.integer], ...]) -> tuple[npt.NDArray[np.intp], Flags]:
    """Return the rows in the order of the last column first, and where there others begin than before."""
    order = np.lexsort(columns)
    begins = np.zeros(len(order), np.bool_)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[order][1:] != column[order][:-1]
    return order, begins
