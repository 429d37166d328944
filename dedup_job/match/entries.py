"""The entries of a key map: how they lie in memory, and how one is added.

A key has 32 bits.  Its upper bits choose a bucket, in which the rest is kept beside the number of the text:
the lowest 8 as a tag, in an array of its own that is looked through first, what is left of them above the
number.  With 16 bits for the bucket, the text number 9 with the key 0x1234_5678 stands in bucket 0x1234 with
the tag 0x78 and the number 0x56_000009; in a map that has grown to 20 bits, in bucket 0x12345 with the same
tag and the number 0x6_0000009.  The more buckets, the more bits are there for a number: 256 for each bucket,
several times as many texts as there are.  So an entry takes 5 bytes.

Buckets lie one behind the other, each with some free places at its end.  A full one takes a place from the
nearest bucket behind it that has one free; those between move up.  (Such gaps are what makes insertion cheap
in library sort: Bender, Farach-Colton and Mosteiro, "Insertion sort is O(n log n)", 2006.)  The order of
entries within a bucket means nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled, inlined
from dedup_job.native.instructions import popcount, prefetch

Keys = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

KEY_BITS, TAG_BITS = 32, 8
FIRST_BITS = 8  # by which keys are sorted before they are entered
LEAST_WIDTH, MOST_WIDTH = 8, 24  # bits that choose a bucket
FREE = 0xFFFF_FFFF  # where an entry can be put
AHEAD = 4  # keys by which a loop looks ahead of itself, in two steps


class Entries(NamedTuple):
    """The entries of a map.

    directory  uint32 (buckets + 1,): bucket k has the places from directory[k] to directory[k + 1]
    tags       uint8 (places,), and some more so that there is a whole number of words
    numbers    uint32, as many: FREE for all places of a bucket behind the last one taken
    """

    directory: npt.NDArray[np.uint32]
    tags: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.uint32]


@inlined
def width_of(directory: npt.NDArray[np.uint32]) -> np.int64:
    """The bits that choose a bucket."""
    return np.int64(popcount(np.uint64(len(directory) - 2)))


@inlined
def bucket_of(key: int, width: int) -> np.int64:
    """The bucket of a key."""
    return np.int64(np.uint64(key) >> np.uint64(KEY_BITS - width))


@inlined
def tag_of(key: int) -> np.uint8:
    """The lowest bits of a key."""
    return np.uint8(np.uint64(key) & np.uint64((1 << TAG_BITS) - 1))


@inlined
def middle_of(key: int, width: int) -> np.uint32:
    """The bits of a key between those that choose the bucket and those of the tag, above a text's number."""
    number = np.uint64(number_mask(width))
    return np.uint32(np.uint64(key) << np.uint64(width) & np.uint64(0xFFFF_FFFF) & ~number)


@inlined
def number_mask(width: int) -> np.uint32:
    """The bits of an entry's number that are the text's."""
    return np.uint32((np.uint64(1) << np.uint64(width + TAG_BITS)) - np.uint64(1))


@inlined
def key_at(bucket: int, place: int, entries: Entries) -> np.uint64:
    """The key of an entry in a bucket."""
    width = width_of(entries.directory)
    middle = np.uint64(entries.numbers[place] & ~number_mask(width)) >> np.uint64(width)
    return np.uint64(bucket) << np.uint64(KEY_BITS - width) | middle | np.uint64(entries.tags[place])


@inlined
def put(key: int, number: int, place: int, entries: Entries) -> None:
    """Put an entry where a place is free."""
    entries.tags[place] = tag_of(key)
    entries.numbers[place] = middle_of(key, width_of(entries.directory)) | np.uint32(number)


@inlined
def first_free(bucket: int, entries: Entries) -> np.int64:
    """The first free place of a bucket; that behind it when there is none."""
    low, high = np.int64(entries.directory[bucket]), np.int64(entries.directory[bucket + 1])
    while low < high:
        half = (low + high) >> 1
        if entries.numbers[half] == np.uint32(FREE):
            high = half
        else:
            low = half + 1
    return low


@inlined
def times_there(key: int, begin: int, end: int, entries: Entries) -> np.int64:
    """How many of these places have the key; all are in its bucket."""
    width = width_of(entries.directory)
    tag, middle, times = tag_of(key), middle_of(key, width), np.int64(0)
    for place in range(begin, end):
        if entries.tags[place] == tag:
            times += entries.numbers[place] & ~number_mask(width) == middle
    return times


def roughly_sorted(keys: Keys, has_key: Flags, first: int) -> tuple[Keys, Keys]:
    """Return the keys of the texts that have one, by their first 8 bits, and these texts' numbers.

    Texts whose keys begin alike stay in their order.  Entered so they meet one part of a map after the other,
    and each part stays in the processor's cache.

    keys     uint32 (n,)
    has_key  bool (n,)
    first    the number of the first text
    """
    # Made here, not in compiled code: numpy asks for large pages, which makes filling a third faster.
    by_key, numbers = np.empty_like(keys), np.empty_like(keys)
    count = _sort_roughly(keys, has_key, first, by_key, numbers)
    return by_key[:count], numbers[:count]


@compiled
def _sort_roughly(keys: Keys, has_key: Flags, first: int, by_key: Keys, numbers: Keys) -> int:
    """Write keys and numbers as `roughly_sorted` returns them; returns how many there are."""
    unsorted = np.uint32(KEY_BITS - FIRST_BITS)
    ends = np.zeros(1 << FIRST_BITS, np.int64)
    for row in range(len(keys)):
        ends[keys[row] >> unsorted] += has_key[row]
    ends[:] = np.cumsum(ends)
    places = np.append(0, ends[:-1])
    for row in range(len(keys)):
        if has_key[row]:
            place = places[keys[row] >> unsorted]
            by_key[place], numbers[place] = keys[row], first + row
            places[keys[row] >> unsorted] += 1
    return int(ends[-1])


@compiled
def enter(keys: Keys, numbers: Keys, listed: int, entries: Entries) -> tuple[int, int]:
    """Add an entry for each key, unless `listed` texts have it already.

    keys     uint32 (n,)
    numbers  uint32 (n,), of the texts

    Returns how many keys were done until there was no place, n when all were; and how many were added.
    """
    width, added = width_of(entries.directory), 0
    for row in range(len(keys)):
        _ask_ahead(row, keys, entries)
        bucket = bucket_of(keys[row], width)
        begin, place = np.int64(entries.directory[bucket]), first_free(bucket, entries)
        if place - begin >= listed and times_there(keys[row], begin, place, entries) >= listed:
            continue
        if place == entries.directory[bucket + 1] and not _take_place(bucket, entries):
            return row, added
        put(keys[row], numbers[row], place, entries)
        added += 1
    return len(keys), added


@inlined
def _ask_ahead(row: int, keys: Keys, entries: Entries) -> None:
    """Ask for the memory that later texts need: first where their buckets lie, then what is in them."""
    width = width_of(entries.directory)
    if row + 2 * AHEAD < len(keys):
        prefetch(entries.directory, bucket_of(keys[row + 2 * AHEAD], width))
    if row + AHEAD < len(keys):
        bucket = bucket_of(keys[row + AHEAD], width)
        begin, end = np.int64(entries.directory[bucket]), np.int64(entries.directory[bucket + 1])
        prefetch(entries.numbers, (begin + end) >> 1)
        prefetch(entries.tags, begin)


@compiled
def _take_place(bucket: int, entries: Entries) -> bool:
    """Let a full bucket have one place more, from the nearest one behind it that has a free one.

    Each bucket between moves up: what is in its first place goes to its end.
    """
    directory, tags, numbers = entries.directory, entries.tags, entries.numbers
    giver = bucket + 1
    while giver < len(directory) - 1 and first_free(giver, entries) == directory[giver + 1]:
        giver += 1
    if giver == len(directory) - 1:
        return False
    for moved in range(giver, bucket, -1):
        first, free = np.int64(directory[moved]), first_free(moved, entries)
        if first < free:
            tags[free], numbers[free] = tags[first], numbers[first]
        numbers[first] = np.uint32(FREE)
        directory[moved] += np.uint32(1)
    return True
