"""Shingles: the set of a text's short runs of characters, as sorted 32-bit hashes.

What counts of a text are letters, marks, digits, symbols and `#%&@`, in lower case: two texts that differ in
punctuation or spacing alone have the same set (Broder, "On the resemblance and containment of documents",
1997, section 2).  A shingle that begins with a Chinese, Japanese or Korean character has three characters,
any other five, so that the similarity of two texts depends on these two alone.  A text without any shingle is
its own only one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from dedup_job.native.compiled import compiled
from dedup_job.native.ragged import Ragged
from dedup_job.text.characters import CODE, COMPARED, is_cjk, is_compared, lower_case

CJK_LENGTH, OTHER_LENGTH = 3, 5  # characters
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def compared(text: str) -> str:
    """Return what counts of a cleaned text when it is compared.

    >>> compared("C++ 价格: <100元>, Very_Cheap!")
    'c++价格<100元>verycheap'
    """
    return "".join(filter(is_compared, text.lower()))


def number_seeds(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return a seed for each cleaned text that depends on the numbers in it and their order alone.

    Shingles that are hashed with different seeds have nothing in common, so texts with different numbers
    are not similar at all, and texts with the same numbers are as similar as before.
    """
    joined = (" ".join(NUMBER.findall(text)).encode() for text in texts)
    return np.array([xxhash.xxh3_64_intdigest(numbers) for numbers in joined], np.uint64)


def shingles(
    texts: Sequence[str], length: int | None = None, seeds: npt.NDArray[np.uint64] | None = None
) -> Ragged:
    """Return the shingles of cleaned texts; for `length` and `seeds` see `shingles_of`.

    >>> [len(row) for row in shingles(["今天天气很好", "weather", "今a"])]
    [4, 3, 1]
    """
    return shingles_of(lower_case(texts), length, seeds)


def shingles_of(
    codes: Ragged, length: int | None = None, seeds: npt.NDArray[np.uint64] | None = None
) -> Ragged:
    """Return the sorted distinct shingle hashes of texts, given as `characters.lower_case` has them.

    length  of all shingles, in characters; None for three or five, by the character that they begin with
    seeds   uint64 (n,), what the shingles of each text are hashed with; None for the same for all
    """
    if seeds is None:
        seeds = np.zeros(len(codes), np.uint64)
    offsets, letters = _compared(codes.offsets, codes.values)
    lengths = (length, length) if length else (CJK_LENGTH, OTHER_LENGTH)
    offsets, values = _hashed(offsets, letters, *lengths, seeds)
    for row in range(len(codes)):
        values[offsets[row] : offsets[row + 1]].sort()  # numpy's vectorised sort: 10 times numba's
    return Ragged(*_distinct(offsets, values))


@compiled
def _compared(
    starts: npt.NDArray[np.int64], codes: npt.NDArray[np.uint32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return the code points that count: what `compared` leaves of a text."""
    kept = np.empty_like(codes)
    ends = np.zeros_like(starts)
    filled = 0
    for text in range(len(starts) - 1):
        for place in range(starts[text], starts[text + 1]):
            kept[filled] = codes[place] & CODE
            filled += (codes[place] & COMPARED) != 0
        ends[text + 1] = filled
    return ends, kept[:filled].copy()


@compiled
def _hashed(
    starts: npt.NDArray[np.int64],
    codes: npt.NDArray[np.uint32],
    cjk: int,
    other: int,
    seeds: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Hash the shingle that begins at each place, `cjk` or `other` characters long; at the end there is none.

    All of a text go forward together, a character at a time: the processor then works on many at once.
    """
    texts, least, most = len(starts) - 1, min(cjk, other), max(cjk, other)
    offsets = np.zeros(texts + 1, np.int64)
    values = np.empty(len(codes), np.uint32)
    room = np.empty(np.diff(starts).max() if texts else 0, np.uint64)
    filled = 0
    for text in range(texts):
        start, stop = starts[text], starts[text + 1]
        length = stop - start
        states = room[:length]
        states[:] = np.uint64(0x9E3779B97F4A7C15) ^ seeds[text]
        for done in range(least):
            _go_on(states, codes[start:stop], done)
        for place in range(length - least + 1):
            if (cjk if is_cjk(codes[start + place]) else other) == least:
                values[filled] = np.uint32(states[place] >> np.uint64(16))
                filled += 1
        for done in range(least, most):
            _go_on(states, codes[start:stop], done)
        for place in range(length - most + 1 if most > least else 0):
            if (cjk if is_cjk(codes[start + place]) else other) == most:
                values[filled] = np.uint32(states[place] >> np.uint64(16))
                filled += 1
        if length and filled == offsets[text]:
            states[:1] = np.uint64(0x9E3779B97F4A7C15) ^ seeds[text]
            for done in range(length):
                _go_on(states[:1], codes[start + done : start + done + 1], 0)
            values[filled] = np.uint32(states[0] >> np.uint64(16))
            filled += 1
        offsets[text + 1] = filled
    return offsets, values[:filled].copy()


@compiled
def _go_on(states: npt.NDArray[np.uint64], codes: npt.NDArray[np.uint32], done: int) -> None:
    """Take the next character into each shingle that has one: that `done` places behind where it begins."""
    for place in range(len(codes) - done):
        state = (states[place] ^ np.uint64(codes[place + done])) * np.uint64(0xD6E8FEB86659FD93)
        states[place] = state ^ state >> np.uint64(32)


@compiled
def _distinct(
    offsets: npt.NDArray[np.int64], values: npt.NDArray[np.uint32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Drop the repeats in each sorted row."""
    kept = np.empty_like(values)
    ends = np.zeros_like(offsets)
    filled = 0
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            if i == offsets[row] or values[i] != values[i - 1]:
                kept[filled] = values[i]
                filled += 1
        ends[row + 1] = filled
    return ends, kept[:filled].copy()
