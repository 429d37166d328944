"""Rebuild the buckets of a key map: insert new entries, leave free slots in each bucket, add buckets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.match.entries import (
    FREE,
    Entries,
    Keys,
    bucket_of,
    bucket_width,
    count_key,
    find_free_slot,
    key_at,
    text_mask,
    write_entry,
)
from dedup_job.match.tags import EIGHT
from dedup_job.native.compiled import compiled

Counts = npt.NDArray[np.uint32]

# Rebuild a second time when less than this share of the slots counted for entries is used.
LEAST_USED = 0.9
# A rebuilt bucket has one free slot per this many entries, and one more.
ENTRIES_PER_FREE_SLOT = 4


def no_entries(width: int) -> Entries:
    """Build an empty map whose buckets are chosen by `width` bits of a key."""
    return _allocate(np.zeros(1 << width, np.uint32))


def laid_out(entries: Entries, width: int, keys: Keys, texts: Keys, max_texts: int) -> tuple[Entries, int]:
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
        return laid_out(rebuilt, width, keys[:0], texts[:0], max_texts)
    return rebuilt, int(used.sum())


def _allocate(counts: Counts) -> Entries:
    """Build empty buckets with room for `counts` entries each, and some free slots."""
    directory = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts + counts // ENTRIES_PER_FREE_SLOT + 1, out=directory[1:])
    # Rounded up to whole words, because a search compares eight tags at once.
    slots = -(-int(directory[-1]) // EIGHT) * EIGHT
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
