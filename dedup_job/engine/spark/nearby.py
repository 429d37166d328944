"""Nearby texts: what each text's keys find, in groups of entries that share a key; pure.

`match.index` looks texts up one after the other.  Here all entries with a key come together, in the order of
their texts, and give the same: a key is remembered with its first texts, and finds the first near ones.

For a band the key is that of the band.  A segment's map is asked for the segment and the next one, of which
one bit may be another: so one half of the next one is the same, 8 bits of it.  There are two keys, then: the
segment with either half.  Entries that share one of them differ in a bit at most of the other half; where
both halves are the same, the first one counts.  All texts with one segment and one next one are in both
groups, so each tells of how many came before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.recipe import Matching
from dedup_job.match.found import NO_DISTANCE
from dedup_job.match.index import FOUND, LISTED, WORD_BITS
from dedup_job.match.search import SEGMENT_BITS
from dedup_job.native.compiled import compiled, inlined
from dedup_job.native.instructions import popcount

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAP_SHIFT = 32  # bits of a key, below the number of its map
HALF_BITS = 8
SEGMENT_MAPS = 32  # the numbers of segments' maps come before this one, two for each, those of bands after
ROOM = 1 << 12


@dataclass(frozen=True, slots=True)
class Texts:
    """Different texts, as columns.

    text   int64 (n,), the order of the first record that has it
    bits   uint64 (n, words), its fingerprint
    near   bool (n,), whether it has one
    keys   uint32 (n, bands), of its bands; zeros where it has none
    again  bool (n,), whether another record has it, which may find what came in between
    """

    text: Numbers
    bits: npt.NDArray[np.uint64]
    near: Flags
    keys: npt.NDArray[np.uint32]
    again: Flags


class Entries(NamedTuple):
    """Texts by one of their keys.

    key    int64 (n,), with the number of its map above it
    the others as in Texts
    """

    key: Numbers
    text: Numbers
    bits: npt.NDArray[np.uint64]
    near: Flags
    again: Flags


class Pairs(NamedTuple):
    """What keys have found: `text` finds `other`.

    by        int64 (n,), the number of the segment or of the band that has found it, bands behind segments
    distance  int64 (n,), in bits; NO_DISTANCE where one of the two has no fingerprint
    """

    text: Numbers
    other: Numbers
    by: Numbers
    distance: Numbers


class _Rule(NamedTuple):
    radius: int
    band_radius: int
    listed: int
    found: int


def entries(texts: Texts, matching: Matching) -> Entries:
    """Return the entries of texts under all their keys.

    A text with a fingerprint has two for each segment of it, one with shingles one for each band.
    """
    rows, keys = [], []
    printed, shingled = np.flatnonzero(texts.near), np.flatnonzero(texts.keys.any(axis=1))
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
    all_rows = np.concatenate([np.empty(0, np.intp), *rows])
    return Entries(
        np.concatenate([np.empty(0, np.int64), *keys]),
        texts.text[all_rows],
        texts.bits[all_rows],
        texts.near[all_rows],
        texts.again[all_rows],
    )


def pairs(entries: Entries, matching: Matching, listed: int = LISTED, found: int = FOUND) -> Pairs:
    """Return what the texts find in groups of entries, in which all entries with a key are.

    A text finds later ones only when it comes again.
    """
    order = np.lexsort((entries.text, entries.key))
    ordered = Entries._make(column[order] for column in entries)
    rule = _Rule(matching.radius, matching.band_radius, listed, found)
    return Pairs(*_pairs(ordered, rule))


def first_found(pairs: Pairs, found: int = FOUND) -> Pairs:
    """Return each pair once, of the pairs that a map has found for a text only the first; all are there."""
    order = np.lexsort((pairs.other, pairs.by, pairs.text))
    pairs = Pairs(*(column[order] for column in pairs))
    is_first = np.append(True, (np.diff(pairs.text) != 0) | (np.diff(pairs.by) != 0))[: len(order)]
    begins = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    pairs = Pairs(*(column[np.arange(len(order)) - begins < found] for column in pairs))
    order = np.lexsort((pairs.other, pairs.text))
    pairs = Pairs(*(column[order] for column in pairs))
    is_new = np.append(True, (np.diff(pairs.text) != 0) | (np.diff(pairs.other) != 0))[: len(order)]
    return Pairs(*(column[is_new] for column in pairs))


@compiled
def _pairs(entries: Entries, rule: _Rule) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    room = np.empty((ROOM, 4), np.int64)
    count, start = 0, 0
    lists, lengths = np.empty((1 << HALF_BITS, rule.listed), np.int64), np.zeros(1 << HALF_BITS, np.int64)
    while start < len(entries.key):
        stop = start + 1
        while stop < len(entries.key) and entries.key[stop] == entries.key[start]:
            stop += 1
        map_ = entries.key[start] >> MAP_SHIFT
        if stop - start > 1 and map_ < SEGMENT_MAPS:
            _list(entries, start, stop, lists, lengths)
        for row in range(start, stop if stop - start > 1 else start):
            if len(room) - count < (2 * HALF_BITS + 1) * rule.listed:
                room = np.concatenate((room, np.empty_like(room)))
            if map_ < SEGMENT_MAPS:
                count = _find_by_segment(entries, row, rule, lists, lengths, room, count)
            else:
                count = _find_by_band(entries, row, (start, stop), rule, room, count)
        start = stop
    return room[:count, 0].copy(), room[:count, 1].copy(), room[:count, 2].copy(), room[:count, 3].copy()


@inlined
def _other_half(entries: Entries, row: int) -> np.int64:
    """The half of the next segment that is not in the key."""
    map_ = entries.key[row] >> MAP_SHIFT
    segments = entries.bits.shape[1] * (WORD_BITS // SEGMENT_BITS)
    following = (map_ // 2 + 1) % segments
    shift = SEGMENT_BITS * (following % 4) + HALF_BITS * (1 - map_ % 2)
    return np.int64(entries.bits[row, following // 4] >> np.uint64(shift) & np.uint64(0xFF))


@inlined
def _list(entries: Entries, start: int, stop: int, lists: Numbers, lengths: Numbers) -> None:
    """Remember the first rows of a group for each value of the other half."""
    lengths[:] = 0
    for row in range(start, stop):
        half = _other_half(entries, row)
        if lengths[half] < lists.shape[1]:
            lists[half, lengths[half]] = row
            lengths[half] += 1


@inlined
def _find_by_segment(
    entries: Entries, row: int, rule: _Rule, lists: Numbers, lengths: Numbers, room: Numbers, count: int
) -> int:
    """Write down what lies within the radius and differs in a bit of the other half, or in none."""
    map_ = entries.key[row] >> MAP_SHIFT
    own = _other_half(entries, row)
    for flip in range(map_ % 2, HALF_BITS + 1):
        half = own ^ (1 << flip >> 1)
        for place in range(lengths[half]):
            other = lists[half, place]
            if other > row and not entries.again[row]:
                break
            distance = _distance(entries, row, other)
            if other != row and distance <= rule.radius:
                _note(entries, row, other, map_ // 2, distance, room, count)
                count += 1
    return count


@inlined
def _find_by_band(
    entries: Entries, row: int, group: tuple[int, int], rule: _Rule, room: Numbers, count: int
) -> int:
    """Write down the first that are near enough, or have no fingerprint to tell."""
    noted, by = 0, entries.key[row] >> MAP_SHIFT
    for other in range(group[0], min(group[1], group[0] + rule.listed)):
        if noted == rule.found or (other > row and not entries.again[row]):
            break
        distance = _distance(entries, row, other)
        if other != row and (distance <= rule.band_radius or distance == NO_DISTANCE):
            _note(entries, row, other, by, distance, room, count)
            noted += 1
            count += 1
    return count


@inlined
def _distance(entries: Entries, row: int, other: int) -> np.int64:
    if not (entries.near[row] and entries.near[other]):
        return np.int64(NO_DISTANCE)
    distance = np.int64(0)
    for word in range(entries.bits.shape[1]):
        distance += np.int64(popcount(entries.bits[row, word] ^ entries.bits[other, word]))
    return distance


@inlined
def _note(entries: Entries, row: int, other: int, by: int, distance: int, room: Numbers, count: int) -> None:
    room[count, 0], room[count, 1] = entries.text[row], entries.text[other]
    room[count, 2], room[count, 3] = by, distance
