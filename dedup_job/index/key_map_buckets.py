"""The memory layout of a key map: buckets of entries, how an entry is added, how buckets are rebuilt."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.arrays import Flags
from dedup_job.native.numba_compile import compiled, compiled_inline, popcount, prefetch

# Tags in a word.
TAGS_PER_WORD = 8
# Masks of the lowest bit, the lower seven bits, and the highest bit of each byte.
LOWEST_BITS = np.uint64(0x0101_0101_0101_0101)
LOWER_BITS = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
HIGHEST_BITS = np.uint64(0x8080_8080_8080_8080)


@compiled_inline
def repeat_tag(tag: int) -> np.uint64:
    """Return a word that holds the same tag eight times."""
    return np.uint64(tag) * LOWEST_BITS


@compiled_inline
def match_tags(word: np.uint64, tags: np.uint64, fixed: np.uint64) -> np.uint64:
    """Mark the bytes of a word that differ from the tags in at most one bit, and in no fixed bit.

    For the tag 0x11 with the lowest bit fixed, 0x11, 0x31 and 0x91 match; 0x10 differs in the fixed bit, 0x12
    and 0xD1 in two bits:

    word   0x00_11_10_31_91_12_D1_F1
    marks  0x00_80_00_80_80_00_00_00

    Args:
        word: Eight tags of a bucket.
        tags: The wanted tag, eight times.
        fixed: Bits of each byte that must be equal.

    Returns:
        A word with the highest bit set in each matching byte.
    """
    differing = word ^ tags
    # `differing & (differing - 1)` clears the lowest differing bit; a zero byte counts as a match, too.
    mismatches = differing & ((differing | HIGHEST_BITS) - LOWEST_BITS) | differing & fixed
    # Adding 0x7F carries into the highest bit of every byte that has a lower bit set.
    return ~((mismatches & LOWER_BITS) + LOWER_BITS | mismatches) & HIGHEST_BITS


@compiled_inline
def first_mark(marks: np.uint64) -> np.int64:
    """Return the index of the lowest marked byte; at least one must be marked."""
    # The lowest set bit less one has as many bits set as there are bits below it.
    return np.int64(popcount((marks & (~marks + np.uint64(1))) - np.uint64(1))) >> 3


@compiled_inline
def clear_first_mark(marks: np.uint64) -> np.uint64:
    """Clear the lowest mark."""
    return marks & (marks - np.uint64(1))


Keys = npt.NDArray[np.uint32]

KEY_BITS, TAG_BITS = 32, 8
# Keys are grouped by this many highest bits before they are inserted.
PARTITION_BITS = 8
# Least and greatest number of bits that choose a bucket.
LEAST_WIDTH, MOST_WIDTH = 8, 24
# The number of a free slot.
FREE = 0xFFFF_FFFF
# A loop prefetches the memory of the key this many rows later, and the directory of the key twice as far.
KEYS_AHEAD = 4


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


@compiled_inline
def bucket_width(directory: npt.NDArray[np.uint32]) -> np.int64:
    """Return how many bits of a key choose its bucket."""
    # There are 2**width buckets and one more offset: len - 2 is 2**width - 1, a number of `width` set bits.
    return np.int64(popcount(np.uint64(len(directory) - 2)))


@compiled_inline
def bucket_of(key: int, width: int) -> np.int64:
    """Return the bucket of a key: its highest bits."""
    return np.int64(np.uint64(key) >> np.uint64(KEY_BITS - width))


@compiled_inline
def tag_of(key: int) -> np.uint8:
    """Return the tag of a key: its lowest bits."""
    return np.uint8(np.uint64(key) & np.uint64((1 << TAG_BITS) - 1))


@compiled_inline
def middle_of(key: int, width: int) -> np.uint32:
    """Return the bits of a key between bucket and tag, shifted above the bits of a text's number."""
    number = np.uint64(text_mask(width))
    return np.uint32(np.uint64(key) << np.uint64(width) & np.uint64(0xFFFF_FFFF) & ~number)


@compiled_inline
def text_mask(width: int) -> np.uint32:
    """Return a mask of the bits in an entry's number that hold the text's number."""
    return np.uint32((np.uint64(1) << np.uint64(width + TAG_BITS)) - np.uint64(1))


@compiled_inline
def key_at(bucket: int, slot: int, entries: Entries) -> np.uint64:
    """Return the key of the entry in a slot of a bucket."""
    width = bucket_width(entries.directory)
    middle = np.uint64(entries.numbers[slot] & ~text_mask(width)) >> np.uint64(width)
    return np.uint64(bucket) << np.uint64(KEY_BITS - width) | middle | np.uint64(entries.tags[slot])


@compiled_inline
def write_entry(key: int, text: int, slot: int, entries: Entries) -> None:
    """Write the entry of a key and a text's number into a slot."""
    entries.tags[slot] = tag_of(key)
    entries.numbers[slot] = middle_of(key, bucket_width(entries.directory)) | np.uint32(text)


@compiled_inline
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


@compiled_inline
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


@compiled_inline
def _prefetch_buckets(row: int, keys: Keys, entries: Entries) -> None:
    """Prefetch what later keys need: first where their buckets lie, then the buckets themselves."""
    width = bucket_width(entries.directory)
    if row + 2 * KEYS_AHEAD < len(keys):
        prefetch(entries.directory, bucket_of(keys[row + 2 * KEYS_AHEAD], width))
    if row + KEYS_AHEAD < len(keys):
        bucket = bucket_of(keys[row + KEYS_AHEAD], width)
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


Counts = npt.NDArray[np.uint32]

# Rebuild a second time when less than this share of the slots counted for entries is used.
LEAST_USED = 0.9
# A rebuilt bucket has one free slot per this many entries, and one more.
ENTRIES_PER_FREE_SLOT = 4


def build_empty(width: int) -> Entries:
    """Build an empty map whose buckets are chosen by `width` bits of a key."""
    return _allocate(np.zeros(1 << width, np.uint32))


def rebuild(entries: Entries, width: int, keys: Keys, texts: Keys, max_texts: int) -> tuple[Entries, int]:
    """Copy all entries and some new ones into buckets that are chosen by `width` bits of a key.

    Args:
        entries: The present entries; not changed.
        width: Bits that choose a bucket.
        keys: uint32, shape (n,), keys of the new entries.
        texts: uint32, shape (n,), numbers of their texts.
        max_texts: Entries that one key may have; further ones are left out.

    Returns:
        The new map and the number of entries in it.
    """
    counts = np.zeros(1 << width, np.uint32)
    _count_entries(entries, keys, width, counts)
    rebuilt, used = _allocate(counts), np.zeros_like(counts)
    _copy_entries(entries, rebuilt, used)
    _insert_new(keys, texts, max_texts, rebuilt, used)
    # Keys with more than `max_texts` texts were counted for every text, and most of their slots stay unused.
    if used.sum() < LEAST_USED * counts.sum():
        return rebuild(rebuilt, width, keys[:0], texts[:0], max_texts)
    return rebuilt, int(used.sum())


def _allocate(counts: Counts) -> Entries:
    """Build empty buckets with room for `counts` entries each, and some free slots."""
    directory = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts + counts // ENTRIES_PER_FREE_SLOT + 1, out=directory[1:])
    # Rounded up to whole words, because a search compares eight tags at once.
    slots = -(-int(directory[-1]) // TAGS_PER_WORD) * TAGS_PER_WORD
    return Entries(directory, np.zeros(slots, np.uint8), np.full(slots, FREE, np.uint32))


@compiled
def _count_entries(entries: Entries, keys: Keys, width: int, counts: Counts) -> None:
    """Count the entries that each new bucket will get at most."""
    for bucket in range(len(entries.directory) - 1):
        for slot in range(entries.directory[bucket], find_free_slot(bucket, entries)):
            counts[bucket_of(key_at(bucket, slot, entries), width)] += np.uint32(1)
    for key in keys:
        counts[bucket_of(key, width)] += np.uint32(1)


@compiled
def _copy_entries(entries: Entries, rebuilt: Entries, used: Counts) -> None:
    """Copy all entries into the new buckets, and count in `used` how many slots of each are used."""
    width, mask = bucket_width(rebuilt.directory), text_mask(bucket_width(entries.directory))
    for bucket in range(len(entries.directory) - 1):
        for slot in range(entries.directory[bucket], find_free_slot(bucket, entries)):
            key, text = key_at(bucket, slot, entries), entries.numbers[slot] & mask
            to = bucket_of(key, width)
            write_entry(key, text, np.int64(rebuilt.directory[to]) + np.int64(used[to]), rebuilt)
            used[to] += np.uint32(1)


@compiled
def _insert_new(keys: Keys, texts: Keys, max_texts: int, rebuilt: Entries, used: Counts) -> None:
    """Write new entries behind the copied ones, up to `max_texts` for each key."""
    width = bucket_width(rebuilt.directory)
    for row in range(len(keys)):
        bucket = bucket_of(keys[row], width)
        begin = np.int64(rebuilt.directory[bucket])
        slot = begin + np.int64(used[bucket])
        if used[bucket] < max_texts or count_key(keys[row], begin, slot, rebuilt) < max_texts:
            write_entry(keys[row], texts[row], slot, rebuilt)
            used[bucket] += np.uint32(1)
