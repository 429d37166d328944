"""Compare eight tags in one machine word: which equal a given tag, or differ from it in one bit.

A byte has at most one bit set when it has no bit in common with itself less one: 0b0100 and 0b0011 have none,
0b0110 and 0b0101 have one.  One subtraction tests all eight bytes; their highest bits are set first so that
no byte borrows from the next (Warren, Hacker's Delight, 2nd edition, sections 2-18 and 6-1).
"""

from __future__ import annotations

import numpy as np

from dedup_job.native.compiled import inlined
from dedup_job.native.instructions import popcount

# Tags in a word.
EIGHT = 8
# Masks of the lowest bit, the lower seven bits, and the highest bit of each byte.
LOWEST_BITS = np.uint64(0x0101_0101_0101_0101)
LOWER_BITS = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
HIGHEST_BITS = np.uint64(0x8080_8080_8080_8080)


@inlined
def repeated(tag: int) -> np.uint64:
    """Return a word that holds the same tag eight times."""
    return np.uint64(tag) * LOWEST_BITS


@inlined
def alike(word: np.uint64, tags: np.uint64, fixed: np.uint64) -> np.uint64:
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


@inlined
def first_of(marks: np.uint64) -> np.int64:
    """Return the index of the lowest marked byte; at least one must be marked."""
    # The lowest set bit less one has as many bits set as there are bits below it.
    return np.int64(popcount((marks & (~marks + np.uint64(1))) - np.uint64(1))) >> 3


@inlined
def without_first(marks: np.uint64) -> np.uint64:
    """Clear the lowest mark."""
    return marks & (marks - np.uint64(1))
