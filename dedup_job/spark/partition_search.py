"""Find texts that share keys, in partitions that can be searched independently; pure functions.

A partition gets all entries of its keys, inserts them into key maps like the maps of the in-memory index, and
searches the maps.  Texts with an equal band key share an entry.  A segment map also finds texts whose next
segment differs in one bit, so a text has two entries for each segment, each with one byte of the next
segment: if two segments differ in at most one bit, at least one of their two bytes is equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index import candidate_index
from dedup_job.index.key_map import KeyMap
from dedup_job.index.key_map_search import Hits, KeyRule, Queries, Simhashes, collect_hits, unpack_hits
from dedup_job.native.arrays import Flags, Numbers

# A place is one int64: the key in the lower 32 bits, the number of its map in the next 8, and the part of a
# crowded key above.
MAP_SHIFT = 32
PART_SHIFT = 40
# Half of a 16-bit segment.
HALF_BITS = 8
# Numbers of maps: below 32 segment maps, two for each segment; from 32 on band maps.
SEGMENT_MAPS = 32
# Queries in one search; bounds the memory for its hits.
ASKING = 1 << 18


@dataclass(frozen=True, slots=True)
class DistinctTexts:
    """The n distinct texts of a collection, as columns.

    Attributes:
        text: int64, shape (n,), number of the text: the `order` of the first record that has it.
        bits: uint64, shape (n, words), fingerprints.
        has_fingerprint: bool, shape (n,).
        keys: uint32, shape (n, bands), band keys; zeros where there are none.
        again: bool, shape (n,), whether later records have the text as well. A later record can match texts
            that come after the first record.
        asks: bool, shape (n,), whether to find the candidates of the text; not for texts of a reference.
    """

    text: Numbers
    bits: npt.NDArray[np.uint64]
    has_fingerprint: Flags
    keys: npt.NDArray[np.uint32]
    again: Flags
    asks: Flags


class KeyEntries(NamedTuple):
    """Entries of texts: each has one key of one text.

    Attributes:
        place: int64, shape (n,), the key, the number of its map and the part of a crowded key, packed.
        text: As in `DistinctTexts`, as are `bits`, `has_fingerprint` and `again`.
        bits: uint64, shape (n, words).
        has_fingerprint: bool, shape (n,).
        again: bool, shape (n,).
        asks: bool, shape (n,), whether the entry is a query here; otherwise it can only be found.
    """

    place: Numbers
    text: Numbers
    bits: npt.NDArray[np.uint64]
    has_fingerprint: Flags
    again: Flags
    asks: Flags

    def take(self, rows: npt.NDArray[np.intp] | Flags) -> KeyEntries:
        """Return the entries in these rows."""
        return KeyEntries._make(column[rows] for column in self)

    @classmethod
    def join(cls, some: Iterable[KeyEntries]) -> KeyEntries:
        """Concatenate at least one set of entries."""
        return cls._make(map(np.concatenate, zip(*some, strict=True)))


@dataclass(frozen=True, slots=True)
class CrowdedKeys:
    """Keys with very many texts, which are divided among several parts.

    Attributes:
        keys: int64, shape (n,), ascending; keys with the numbers of their maps.
        parts: int64, shape (n,), number of parts of each key.
    """

    keys: Numbers
    parts: Numbers

    def parts_of(self, keys: Numbers) -> Numbers:
        """Return the number of parts of each key: int64, shape (n,); 1 for a key that is not crowded."""
        if not len(self.keys):
            return np.ones(len(keys), np.int64)
        at = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.parts[at], 1)


class FoundPairs(NamedTuple):
    """Pairs of texts that share a key and are near by fingerprint.

    Attributes:
        text: int64, shape (n,), number of the query.
        other: int64, shape (n,), number of its candidate.
        by: int64, shape (n,), the segment (from 0) or band (from `SEGMENT_MAPS`) that found the candidate.
        distance: int64, shape (n,), Hamming distance; NO_DISTANCE if one of the texts has no fingerprint.
    """

    text: Numbers
    other: Numbers
    by: Numbers
    distance: Numbers

    def take(self, rows: npt.NDArray[np.intp] | Flags) -> FoundPairs:
        """Return the pairs in these rows."""
        return FoundPairs._make(column[rows] for column in self)


def entries(texts: DistinctTexts, matching: Matching) -> KeyEntries:
    """Return one entry for each key of each text.

    A text with a fingerprint has two entries for each segment; a text with shingles has one for each band.
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
    columns = (texts.text[at], texts.bits[at], texts.has_fingerprint[at], texts.again[at], texts.asks[at])
    return KeyEntries(np.concatenate(keys), *columns)


def spread(entries: KeyEntries, crowded: CrowdedKeys) -> KeyEntries:
    """Assign the entries of crowded keys to parts, by the number of the text."""
    part = entries.text % crowded.parts_of(entries.place)
    return entries._replace(place=part << PART_SHIFT | entries.place)


def first_listed(entries: KeyEntries) -> KeyEntries:
    """Return the first `candidate_index.LISTED` entries of each key: those that a key map can store.

    The result for a subset of the entries includes all listed entries that are in the subset, so subsets can
    be reduced before they are joined.
    """
    found = [
        own.take(_ranks(_map_keys(number, own)) < candidate_index.LISTED) for number, own in _by_map(entries)
    ]
    return KeyEntries.join([entries.take(np.empty(0, np.intp)), *found])


def in_every_part(listed: KeyEntries, crowded: CrowdedKeys) -> KeyEntries:
    """Copy the listed entries of crowded keys into each part of their key; the copies are not queries."""
    times = crowded.parts_of(listed.place)
    copies = listed.take(np.repeat(np.arange(len(times)), times))
    # For times 2, 3 the parts are 0, 1, 0, 1, 2.
    part = np.arange(len(copies.place)) - np.repeat(np.cumsum(times) - times, times)
    return copies._replace(place=part << PART_SHIFT | copies.place, asks=np.zeros_like(copies.asks))


def pairs(entries: KeyEntries, matching: Matching) -> FoundPairs:
    """Find the candidates of the queries in one partition.

    A text with one record finds earlier texts only; a text with several records finds later texts as well.

    Args:
        entries: The entries of a partition; complete for each place in it.
        matching: From the recipe.
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
    """Remove duplicate pairs, and apply the limit of `candidate_index.FOUND` candidates per text and map.

    Args:
        pairs: All pairs of each text in them.
    """
    # The two entries of a segment can both find a pair: it counts once towards the limit.
    pairs = _once(pairs, pairs.other, pairs.by, pairs.text)
    pairs = pairs.take(_ranks(pairs.text, pairs.by) < candidate_index.FOUND)
    return _once(pairs, pairs.other, pairs.text)


def _by_map(entries: KeyEntries) -> Iterator[tuple[int, KeyEntries]]:
    """Yield the number of each map, and its entries ordered by text, with each text once."""
    # The part above the number of the map is cut off.
    maps = (entries.place >> MAP_SHIFT).astype(np.uint8)
    by_map = np.argsort(maps, kind="stable")
    bounds = np.searchsorted(maps[by_map], np.arange(256))
    for number, (start, stop) in enumerate(pairwise(bounds.tolist())):
        own = entries.take(by_map[start:stop])
        # A part has a query of its own and, if that is listed too, a copy: the query comes first and is kept.
        own = own.take(np.lexsort((~own.asks, own.text)))
        if len(own.text):
            yield number, own.take(np.append(True, own.text[1:] != own.text[:-1]))


def _map_keys(number: int, entries: KeyEntries) -> npt.NDArray[np.uint32]:
    """Return the keys as a map of the index stores them: uint32, shape (n,)."""
    if number < SEGMENT_MAPS:
        return candidate_index.segment_keys(entries.bits, number // 2)
    return entries.place.astype(np.uint32)


def _looked_up(
    rule: KeyRule, keys: npt.NDArray[np.uint32], entries: KeyEntries, by: int
) -> Iterator[FoundPairs]:
    """Insert entries into a key map and search it for their candidates.

    Args:
        rule: The limits of the map.
        keys: uint32, shape (n,), keys of the entries.
        entries: The entries of one map, ordered by text.
        by: Number of the segment or band, for the pairs.
    """
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
        pairs = FoundPairs(entries.text[row], entries.text[other], np.full(len(row), by), distance)
        yield pairs.take((other < row) | entries.again[row])


def _ranks(*columns: npt.NDArray[np.integer]) -> Numbers:
    """Return, for each row, the number of equal rows before it."""
    order, begins = _runs(columns)
    places = np.arange(len(order))
    ranks = np.empty_like(places)
    ranks[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ranks


def _once(pairs: FoundPairs, *columns: Numbers) -> FoundPairs:
    """Remove pairs that are equal in these columns, and sort by the columns, the last one first."""
    order, begins = _runs(columns)
    return pairs.take(order[begins])


def _runs(columns: tuple[npt.NDArray[np.integer], ...]) -> tuple[npt.NDArray[np.intp], Flags]:
    """Sort rows and find runs of equal rows.

    Args:
        columns: Sort keys; the last one is the primary key, as in `numpy.lexsort`.

    Returns:
        The sorted row numbers, and for each of them whether it begins a run.
    """
    order = np.lexsort(columns)
    begins = np.zeros(len(order), np.bool_)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[order][1:] != column[order][:-1]
    return order, begins
