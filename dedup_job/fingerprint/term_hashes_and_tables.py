"""Stable hashes of terms, and tables of values by hash.

The hash of a term is computed from its code points, so that no string is made of it. Each code point is mixed
into the state by a multiplication; the last two multiplications are those of XXH64, after which each bit of
the hash depends on all bits of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.numba_compile import compiled, compiled_helper, prefetch
from dedup_job.text.code_points import CODE_POINT, encode_texts

Codes = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

_AHEAD: Final = 8  # lookups that are prefetched
_SEEDS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0x27D4EB2F165667C5))  # one for each word of a hash
_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_LAST_FACTORS = (np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))


def hash_terms(codes: Codes, starts: Numbers, stops: Numbers, bits: int) -> Hashes:
    """Return the stable hash of each term, uint64 (n, bits / 64), least significant word first.

    Args:
        codes: Code points; other bits are ignored.
        starts: Where each term begins in `codes`.
        stops: Where each term ends.
        bits: 64 or 128; the first 64 bits are the same.

    >>> from dedup_job.text.code_points import encode_text
    >>> f"{hash_terms(encode_text('hello'), np.array([0]), np.array([5]), 64)[0, 0]:x}"
    '3fa71535d345a62f'
    """
    hashes = np.empty((len(starts), bits // 64), np.uint64)
    _write_hashes(codes, starts, stops, hashes)
    return hashes


def hash_strings(terms: Sequence[str], bits: int) -> Hashes:
    """Return the stable hash of each term, like `hash_terms`."""
    encoded = encode_texts(terms)
    return hash_terms(encoded.values, encoded.offsets[:-1], encoded.offsets[1:], bits)


@compiled
def _write_hashes(codes: Codes, starts: Numbers, stops: Numbers, hashes: Hashes) -> None:
    for term in range(len(starts)):
        for word in range(hashes.shape[1]):
            state = _SEEDS[word]
            for place in range(starts[term], stops[term]):
                state = (state ^ np.uint64(codes[place] & CODE_POINT)) * _FACTOR
                state ^= state >> np.uint64(32)
            state = (state ^ state >> np.uint64(33)) * _LAST_FACTORS[0]
            state = (state ^ state >> np.uint64(29)) * _LAST_FACTORS[1]
            hashes[term, word] = state ^ state >> np.uint64(32)


def build_table(hashes: Hashes, values: Numbers) -> Hashes:
    """Build a table of values greater than 0 by hash; the last value of a hash counts.

    Returns:
        uint64 (m, 2): slots of a hash table with open addressing, each a hash and its value, 0 if free.
    """
    # At most half of the slots are filled. Not `zeros`, so that numpy asks for large memory pages.
    slots = np.full((2 << len(hashes).bit_length(), 2), 0, np.uint64)
    _fill_table(hashes, values, slots)
    return slots


@compiled
def _fill_table(hashes: Hashes, values: Numbers, slots: Hashes) -> None:
    for entry in range(len(hashes)):
        slot = find_hash(hashes[entry], slots)
        slots[slot, 0], slots[slot, 1] = hashes[entry], values[entry]


@compiled_helper
def find_hash(value: np.uint64, slots: Hashes) -> int:
    """Return the slot of a hash in a table, or the free slot for it."""
    slot = int(np.int64(value & np.uint64(len(slots) - 1)))
    while slots[slot, 1] != 0 and slots[slot, 0] != value:
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@compiled
def look_up(hashes: Hashes, slots: Hashes, unknown: int) -> Numbers:
    """Return the value of each hash, int64; `unknown` for a hash that is not in the table."""
    values = np.empty(len(hashes), np.int64)
    for entry in range(len(hashes)):
        if entry + _AHEAD < len(hashes):
            prefetch(slots, np.int64(hashes[entry + _AHEAD] & np.uint64(len(slots) - 1)) * 2)
        values[entry] = np.int64(slots[find_hash(hashes[entry], slots), 1]) or unknown
    return values
