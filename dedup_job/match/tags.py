"""Tags, eight in a word: which of them are a certain one, or differ from it in one bit.

A byte differs in one bit at most when it has no bit in common with itself less one: 0b0100 and 0b0011 have
none, 0b0110 and 0b0101 have one.  All eight bytes are tried with one subtraction, their highest bits being
set so that none borrows from the next (Warren, Hacker's Delight, 2nd edition, sections 2-18 and 6-1).
"""

from __future__ import annotations

import numpy as np

from dedup_job.native.compiled import inlined
from dedup_job.native.instructions import popcount

EIGHT = 8
EACH = np.uint64(0x0101_0101_0101_0101)
LOWER = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
HIGHEST = np.uint64(0x8080_8080_8080_8080)


@inlined
def repeated(tag: int) -> np.uint64:
    """A word of eight times the same tag."""
    return np.uint64(tag) * EACH


@inlined
def alike(word: np.uint64, tags: np.uint64, fixed: np.uint64) -> np.uint64:
    """The highest bit of each byte of a word that differs in one bit at most, and not in one that is fixed.

    For the tag 0x11, the lowest bit being fixed, 0x11, 0x31 and 0x91 are alike; 0x10 differs in a fixed bit,
    0x12 and 0xD1 in two bits:

    word   0x00_11_10_31_91_12_D1_F1
    marks  0x00_80_00_80_80_00_00_00
    """
    apart = word ^ tags
    others = apart & ((apart | HIGHEST) - EACH) | apart & fixed  # bytes that are zero are alike
    return ~((others & LOWER) + LOWER | others) & HIGHEST


@inlined
def first_of(marks: np.uint64) -> np.int64:
    """Which byte of a word the lowest mark is in; there must be one."""
    return np.int64(popcount((marks & (~marks + np.uint64(1))) - np.uint64(1))) >> 3


@inlined
def without_first(marks: np.uint64) -> np.uint64:
    """The other marks."""
    return marks & (marks - np.uint64(1))
