"""Laying the entries of a key map out anew: with new ones, free places in each bucket, and more buckets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.match.entries import (
    FREE,
    Entries,
    Keys,
    bucket_of,
    first_free,
    key_at,
    number_mask,
    put,
    times_there,
    width_of,
)
from dedup_job.match.tags import EIGHT
from dedup_job.native.compiled import compiled

LEAST_USED = 0.9  # of the places that were counted
SPARE = 4  # one free place for so many taken ones, and one for each bucket


def no_entries(width: int) -> Entries:
    """Return no entries, in buckets chosen by so many bits."""
    return _with_places(np.zeros(1 << width, np.uint32))


def laid_out(entries: Entries, width: int, keys: Keys, numbers: Keys, listed: int) -> tuple[Entries, int]:
    """Return all entries and some more in buckets chosen by so many bits, and how many there are.

    keys     uint32 (n,), of the new ones; a key that `listed` texts have already is left out
    numbers  uint32 (n,), of their texts
    """
    counts = np.zeros(1 << width, np.uint32)
    _count(entries, keys, width, counts)
    anew, taken = _with_places(counts), np.zeros_like(counts)
    _move(entries, anew, taken)
    _fill(keys, numbers, listed, anew, taken)
    if taken.sum() < LEAST_USED * counts.sum():  # of crowded keys: their places are not needed
        return laid_out(anew, width, keys[:0], numbers[:0], listed)
    return anew, int(taken.sum())


def _with_places(counts: npt.NDArray[np.uint32]) -> Entries:
    """Return no entries in buckets with places for so many, and free ones behind them."""
    directory = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts + counts // SPARE + 1, out=directory[1:])
    places = -(-int(directory[-1]) // EIGHT) * EIGHT
    return Entries(directory, np.zeros(places, np.uint8), np.full(places, FREE, np.uint32))


@compiled
def _count(entries: Entries, keys: Keys, width: int, counts: npt.NDArray[np.uint32]) -> None:
    """Count the entries that each bucket will have."""
    for bucket in range(len(entries.directory) - 1):
        for place in range(entries.directory[bucket], first_free(bucket, entries)):
            counts[bucket_of(key_at(bucket, place, entries), width)] += np.uint32(1)
    for key in keys:
        counts[bucket_of(key, width)] += np.uint32(1)


@compiled
def _move(entries: Entries, anew: Entries, taken: npt.NDArray[np.uint32]) -> None:
    """Put all entries into other buckets, `taken` being how many places of each are taken."""
    width, mask = width_of(anew.directory), number_mask(width_of(entries.directory))
    for bucket in range(len(entries.directory) - 1):
        for place in range(entries.directory[bucket], first_free(bucket, entries)):
            key, number = key_at(bucket, place, entries), entries.numbers[place] & mask
            to = bucket_of(key, width)
            put(key, number, np.int64(anew.directory[to]) + np.int64(taken[to]), anew)
            taken[to] += np.uint32(1)


@compiled
def _fill(keys: Keys, numbers: Keys, listed: int, anew: Entries, taken: npt.NDArray[np.uint32]) -> None:
    """Put new entries behind those that are there."""
    width = width_of(anew.directory)
    for row in range(len(keys)):
        bucket = bucket_of(keys[row], width)
        begin = np.int64(anew.directory[bucket])
        place = begin + np.int64(taken[bucket])
        if taken[bucket] < listed or times_there(keys[row], begin, place, anew) < listed:
            put(keys[row], numbers[row], place, anew)
            taken[bucket] += np.uint32(1)
