"""Searching a key map: the texts that have a key and are near enough.

Nearly all of the time would be spent waiting for memory, so it is asked for some queries ahead.  A search
goes over its queries in three passes, for some thousand entries at a time: which entries have the key, which
texts these belong to, how far those are.  In each pass what is asked for next is known well ahead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.match.entries import (
    FREE,
    Entries,
    Flags,
    Keys,
    bucket_of,
    middle_of,
    number_mask,
    tag_of,
    width_of,
)
from dedup_job.match.found import NO_DISTANCE, Fingerprints, Found, differing_bits, note
from dedup_job.match.tags import EIGHT, alike, first_of, repeated, without_first
from dedup_job.native.compiled import compiled, inlined
from dedup_job.native.instructions import popcount, prefetch

Numbers = npt.NDArray[np.int64]

SEGMENT_BITS = 16
UPPER, LOWER = 14, 2  # bits of the scattered segment above the next one in a key, and below it
AHEAD = 4  # queries by which the first pass looks ahead of itself, in two steps
PAIRS_AHEAD = 16  # pairs by which the last one does
MET_AT_ONCE = 1 << 10  # pairs that a pass goes over: they stay in the processor's first cache


class Prints(NamedTuple):
    """The fingerprints of some texts: uint64 (n, words), and whether there is one."""

    bits: Fingerprints
    is_there: Flags


class Limits(NamedTuple):
    """What a search goes by.

    distance  bits by which the fingerprints may differ
    found     texts that are noted for a query, the first ones
    segment   place of the segment that the keys are made of, -1 for keys of another kind
    """

    distance: int
    found: int
    segment: int


class Met(NamedTuple):
    """What queries have met, a row for each pair; those of a query lie together.

    queries  int64 (n,)
    others   int64 (n,), first places of entries, then the numbers of their texts
    near     uint64 (n,), of one query: what is near enough, as numbers that sort by the text
    """

    queries: Numbers
    others: Numbers
    near: npt.NDArray[np.uint64]


class Queries(NamedTuple):
    """The texts that are looked for, n rows.

    texts   int64 (n,), their own numbers, which are not found; -1 for one that is not looked up
    prints  their fingerprints
    """

    texts: Numbers
    prints: Prints


@compiled
def search(
    keys: Keys, queries: Queries, limits: Limits, prints: Prints, entries: Entries, found: Found
) -> None:
    """Note the texts that each query's key finds, and are not the query itself.

    keys    uint32 (n,), those of the queries
    prints  of all texts, by number
    """
    met, query, texts = _room_for(MET_AT_ONCE), 0, queries.texts
    while query < len(keys):
        after, count = _meet(keys, texts, query, limits.segment, entries, met)
        if after == query:  # one query has met more than there is room for
            met = _room_for(2 * len(met.queries))
        query, count = after, _name(keys, texts, 0 if limits.segment < 0 else 1, entries, met, count)
        _note_near(queries.prints, limits, prints, met, count, found)


@compiled
def _room_for(pairs: int) -> Met:
    return Met(np.empty(pairs, np.int64), np.empty(pairs, np.int64), np.empty(pairs, np.uint64))


@compiled
def _meet(
    keys: Keys, texts: Numbers, query: int, segment: int, entries: Entries, met: Met
) -> tuple[int, int]:
    """Write down the places that have the tag of a query's key, from this query on, as long as there is room.

    Returns the query to go on with, and how many places were written down for those before it.
    """
    directory, words = entries.directory, entries.tags.view(np.uint64)
    width, count = width_of(directory), 0
    buckets, fixed = _looked_through(segment, width)
    while query < len(keys):
        _ask_ahead(query, keys, buckets, entries)
        before, wanted = count, repeated(tag_of(keys[query]))
        for flip in range(buckets if texts[query] >= 0 else 0):
            bucket = _flipped(keys[query], flip, width)
            begin, end = np.int64(directory[bucket]), np.int64(directory[bucket + 1])
            for word in range(begin // EIGHT, (end + EIGHT - 1) // EIGHT):
                marks = alike(words[word], wanted, repeated(fixed if flip == 0 else 0xFF))
                while marks:
                    place = word * EIGHT + first_of(marks)
                    marks = without_first(marks)
                    if begin <= place < end:
                        if count == len(met.others):
                            return query, before
                        met.queries[count], met.others[count] = query, place
                        prefetch(entries.numbers, place)
                        count += 1
        query += 1
    return query, count


@inlined
def _looked_through(segment: int, width: int) -> tuple[int, int]:
    """How many buckets a key is looked for in, and which bits of the tag must be its own in the first.

    Bits of the next segment that choose the bucket are flipped one by one; of the others, one may differ.
    """
    if segment < 0:
        return 1, 0xFF
    return 1 + max(0, width - UPPER), (1 << LOWER) - 1


@inlined
def _flipped(key: int, flip: int, width: int) -> np.int64:
    """The bucket of a key, and after it those that differ in one bit."""
    return np.int64(bucket_of(key, width) ^ (1 << flip >> 1))


@inlined
def _ask_ahead(query: int, keys: Keys, buckets: int, entries: Entries) -> None:
    """Ask for the memory that later queries need: first where their buckets lie, then what is in them."""
    width = width_of(entries.directory)
    for flip in range(buckets if query + 2 * AHEAD < len(keys) else 0):
        prefetch(entries.directory, _flipped(keys[query + 2 * AHEAD], flip, width))
    for flip in range(buckets if query + AHEAD < len(keys) else 0):
        bucket = _flipped(keys[query + AHEAD], flip, width)
        prefetch(entries.tags, np.int64(entries.directory[bucket]))
        prefetch(entries.tags, np.int64(entries.directory[bucket + 1]) - 1)  # may lie in another line


@compiled
def _name(keys: Keys, texts: Numbers, apart: int, entries: Entries, met: Met, count: int) -> int:
    """Put numbers of texts where places were; leave out free ones, other keys, and queries' own texts.

    apart  bits by which the keys may differ

    Returns how many are left.
    """
    left, width = 0, width_of(entries.directory)
    mask = number_mask(width)
    for pair in range(count):
        query, place = met.queries[pair], met.others[pair]
        number = entries.numbers[place]
        other = np.int64(number & mask)
        if number == np.uint32(FREE) or other == texts[query]:
            continue
        middle = (number ^ middle_of(keys[query], width)) & ~mask
        tag = entries.tags[place] ^ tag_of(keys[query])
        if popcount(np.uint64(middle)) + popcount(np.uint64(tag)) <= np.uint64(apart):
            met.queries[left], met.others[left] = query, other
            left += 1
    return left


@compiled
def _note_near(own: Prints, limits: Limits, prints: Prints, met: Met, count: int, found: Found) -> None:
    """Note those that are near enough, or have no fingerprint to tell: the first ones for each query."""
    pair = 0
    while pair < count:
        query, near = met.queries[pair], 0
        while pair < count and met.queries[pair] == query:
            if pair + PAIRS_AHEAD < count:
                prefetch(prints.bits, met.others[pair + PAIRS_AHEAD] * prints.bits.shape[1])
                if limits.segment < 0:
                    prefetch(prints.is_there, met.others[pair + PAIRS_AHEAD])
            other = met.others[pair]
            distance = _distance(own, query, prints, other, limits.segment)
            if distance <= limits.distance or distance == NO_DISTANCE:
                met.near[near] = np.uint64(other) << np.uint64(8) | np.uint64(distance)
                near += 1
            pair += 1
        if near > limits.found:
            met.near[:near].sort()
        for one in met.near[: min(near, limits.found)]:
            note(query, np.int64(one & np.uint64(0xFF)), np.int64(one >> np.uint64(8)), found)


@inlined
def _distance(own: Prints, query: int, prints: Prints, other: int, segment: int) -> np.int64:
    """The bits in which two fingerprints differ, NO_DISTANCE without them; too many where keys differ.

    What is in the map of a segment has a fingerprint.
    """
    if segment < 0 and not (own.is_there[query] and prints.is_there[other]):
        return np.int64(NO_DISTANCE)
    if segment >= 0 and not _share_segments(own.bits, query, prints.bits, other, segment):
        return np.int64(NO_DISTANCE - 1)
    return np.int64(differing_bits(own.bits, query, prints.bits, other))


@inlined
def _share_segments(ones: Fingerprints, one: int, others: Fingerprints, other: int, segment: int) -> bool:
    """Whether two fingerprints agree in a segment, and differ in one bit at most in the next one."""
    following = (segment + 1) % (ones.shape[1] * 4)
    return bool(
        _apart(ones, one, others, other, segment) == np.uint64(0)
        and popcount(_apart(ones, one, others, other, following)) <= np.uint64(1)
    )


@inlined
def _apart(ones: Fingerprints, one: int, others: Fingerprints, other: int, segment: int) -> np.uint64:
    """The bits of a segment in which two fingerprints differ."""
    return segment_of(ones, one, segment) ^ segment_of(others, other, segment)  # type: ignore[no-any-return]


@inlined
def segment_of(bits: Fingerprints, row: int, place: int) -> np.uint64:
    """A segment of a fingerprint, a number of 16 bits."""
    shift = np.uint64(SEGMENT_BITS * (place % 4))
    segment: np.uint64 = bits[row, place // 4] >> shift & np.uint64(0xFFFF)
    return segment
