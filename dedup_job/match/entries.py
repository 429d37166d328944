"""The memory layout of a key map: buckets of entries, and how an entry is inserted.

A key has 32 bits.  Its highest bits choose a bucket.  The rest is stored in the bucket next to the number of
the text: the lowest 8 bits as a tag, in an array of its own that is searched first; the bits in between above
the text's number.  With 16 bits for the bucket, the text number 9 with the key 0x1234_5678 is in bucket
0x1234 with the tag 0x78 and the number 0x56_000009; in a map that has grown to 20 bits, it is in bucket
0x12345 with the same tag and the number 0x6_0000009.  More buckets leave more bits for text numbers: 256
numbers for each bucket, several times as many as there are texts.  So an entry takes 5 bytes.

Buckets lie one behind the other, each with some free slots at its end.  A full bucket takes a slot from the
nearest bucket behind it that has a free one; the buckets in between shift by one slot.  (Such gaps are what
makes insertion cheap in library sort: Bender, Farach-Colton and Mosteiro, "Insertion sort is O(n log n)",
2006.)  The order of entries within a bucket has no meaning.
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
# Keys are grouped by this many highest bits before they are inserted.
PARTITION_BITS = 8
# Least and greatest number of bits that choose a bucket.
LEAST_WIDTH, MOST_WIDTH = 8, 24
# The number of a free slot.
FREE = 0xFFFF_FFFF
# A loop prefetches the memory of the key this many rows later, and the directory of the key twice as far.
AHEAD = 4


class Entries(NamedTuple):
    """The entries of a key map.

    Attributes:
        directory: uint32, shape (buckets + 1,); bucket k has the slots directory[k] to directory[k + 1].
        tags: uint8, shape (slots,), padded to a whole number of 8-byte words.
        numbers: uint32, same shape as `tags`; FREE in every slot of a bucket behind its last entry.
    """

    directory: npt.NDArray[np.uint32]
    tags: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.uint32]


@inlined
def bucket_width(directory: npt.NDArray[np.uint32]) -> np.int64:
    """Return how many bits of a key choose its bucket."""
    # There are 2**width buckets and one more offset: len - 2 is 2**width - 1, a number of `width` set bits.
    return np.int64(popcount(np.uint64(len(directory) - 2)))


@inlined
def bucket_of(key: int, width: int) -> np.int64:
    """Return the bucket of a key: its highest bits."""
    return np.int64(np.uint64(key) >> np.uint64(KEY_BITS - width))


@inlined
def tag_of(key: int) -> np.uint8:
    """Return the tag of a key: its lowest bits."""
    return np.uint8(np.uint64(key) & np.uint64((1 << TAG_BITS) - 1))


@inlined
def middle_of(key: int, width: int) -> np.uint32:
    """Return the bits of a key between bucket and tag, shifted above the bits of a text's number."""
    number = np.uint64(text_mask(width))
    return np.uint32(np.uint64(key) << np.uint64(width) & np.uint64(0xFFFF_FFFF) & ~number)


@inlined
def text_mask(width: int) -> np.uint32:
    """Return a mask of the bits in an entry's number that hold the text's number."""
    return np.uint32((np.uint64(1) << np.uint64(width + TAG_BITS)) - np.uint64(1))


@inlined
def key_at(bucket: int, slot: int, entries: Entries) -> np.uint64:
    """Return the key of the entry in a slot of a bucket."""
    width = bucket_width(entries.directory)
    middle = np.uint64(entries.numbers[slot] & ~text_mask(width)) >> np.uint64(width)
    return np.uint64(bucket) << np.uint64(KEY_BITS - width) | middle | np.uint64(entries.tags[slot])


@inlined
def write_entry(key: int, text: int, slot: int, entries: Entries) -> None:
    """Write the entry of a key and a text's number into a slot."""
    entries.tags[slot] = tag_of(key)
    entries.numbers[slot] = middle_of(key, bucket_width(entries.directory)) | np.uint32(text)


@inlined
def find_free_slot(bucket: int, entries: Entries) -> np.int64:
    """Return the first free slot of a bucket, or the end of the bucket if it is full."""
    low, high = np.int64(entries.directory[bucket]), np.int64(entries.directory[bucket + 1])
    # Binary search: all entries of a bucket come before its free slots.
    while low < high:
        half = (low + high) >> 1
        if entries.numbers[half] == np.uint32(FREE):
            high = half
        else:
            low = half + 1
    return low


@inlined
def count_key(key: int, begin: int, end: int, entries: Entries) -> np.int64:
    """Count the entries that have a key, among slots that all belong to the key's bucket."""
    width = bucket_width(entries.directory)
    tag, middle, count = tag_of(key), middle_of(key, width), np.int64(0)
    for slot in range(begin, end):
        if entries.tags[slot] == tag:
            count += entries.numbers[slot] & ~text_mask(width) == middle
    return count


def partition_keys(keys: Keys, has_key: Flags, first: int) -> tuple[Keys, Keys]:
    """Group keys by their highest 8 bits, and leave out texts without a key.

    Inserted in this order, keys fill one part of a map after the other, and each part stays in the
    processor's cache.  Within a group the texts keep their order.

    Args:
        keys: uint32, shape (n,).
        has_key: bool, shape (n,).
        first: Number of the first text; the others have the numbers that follow.

    Returns:
        Keys and text numbers, both uint32, shape (texts with a key,).
    """
    # Allocated here and not in compiled code: numpy asks for large memory pages, which makes filling the
    # arrays a third faster.
    by_key, texts = np.empty_like(keys), np.empty_like(keys)
    count = _write_partitions(keys, has_key, first, by_key, texts)
    return by_key[:count], texts[:count]


@compiled
def _write_partitions(keys: Keys, has_key: Flags, first: int, by_key: Keys, texts: Keys) -> int:
    """Write keys and text numbers in the order of `partition_keys`, by counting sort; return their count."""
    shift = np.uint32(KEY_BITS - PARTITION_BITS)
    ends = np.zeros(1 << PARTITION_BITS, np.int64)
    for row in range(len(keys)):
        ends[keys[row] >> shift] += has_key[row]
    ends[:] = np.cumsum(ends)
    next_places = np.append(0, ends[:-1])
    for row in range(len(keys)):
        if has_key[row]:
            place = next_places[keys[row] >> shift]
            by_key[place], texts[place] = keys[row], first + row
            next_places[keys[row] >> shift] += 1
    return int(ends[-1])


@compiled
def insert_entries(keys: Keys, texts: Keys, max_texts: int, entries: Entries) -> tuple[int, int]:
    """Insert an entry for each key, except for keys that `max_texts` texts have already.

    Args:
        keys: uint32, shape (n,).
        texts: uint32, shape (n,), numbers of the texts.
        max_texts: Entries that one key may have.
        entries: Changed in place.

    Returns:
        The row of the first key that found no free slot, n if every key found one; and the number of
        entries inserted before that.
    """
    width, inserted = bucket_width(entries.directory), 0
    for row in range(len(keys)):
        _prefetch_buckets(row, keys, entries)
        bucket = bucket_of(keys[row], width)
        begin, slot = np.int64(entries.directory[bucket]), find_free_slot(bucket, entries)
        # A bucket with fewer than `max_texts` entries cannot hold `max_texts` of this key: most need no
        # count.
        if slot - begin >= max_texts and count_key(keys[row], begin, slot, entries) >= max_texts:
            continue
        if slot == entries.directory[bucket + 1] and not _take_slot(bucket, entries):
            return row, inserted
        write_entry(keys[row], texts[row], slot, entries)
        inserted += 1
    return len(keys), inserted


@inlined
def _prefetch_buckets(row: int, keys: Keys, entries: Entries) -> None:
    """Prefetch what later keys need: first where their buckets lie, then the buckets themselves."""
    width = bucket_width(entries.directory)
    if row + 2 * AHEAD < len(keys):
        prefetch(entries.directory, bucket_of(keys[row + 2 * AHEAD], width))
    if row + AHEAD < len(keys):
        bucket = bucket_of(keys[row + AHEAD], width)
        begin, end = np.int64(entries.directory[bucket]), np.int64(entries.directory[bucket + 1])
        # The search for a free slot begins in the middle of a bucket, the comparison of tags at its start.
        prefetch(entries.numbers, (begin + end) >> 1)
        prefetch(entries.tags, begin)


@compiled
def _take_slot(bucket: int, entries: Entries) -> bool:
    """Give a full bucket one more slot, from the nearest bucket behind it that has a free one.

    Every bucket in between shifts by one slot: its first entry moves to its end.

    Returns:
        False if no bucket behind it has a free slot.
    """
    directory, tags, numbers = entries.directory, entries.tags, entries.numbers
    giver = bucket + 1
    while giver < len(directory) - 1 and find_free_slot(giver, entries) == directory[giver + 1]:
        giver += 1
    if giver == len(directory) - 1:
        return False
    # From the giver backwards, so that the end of each bucket is free before its first entry moves there.
    for shifted in range(giver, bucket, -1):
        first, free = np.int64(directory[shifted]), find_free_slot(shifted, entries)
        if first < free:
            tags[free], numbers[free] = tags[first], numbers[first]
        numbers[first] = np.uint32(FREE)
        directory[shifted] += np.uint32(1)
    return True
