"""Shingles: the set of a text's character k-grams, as sorted 32-bit hashes.

Shingles are taken from the normalised text: lower case, letters and digits only, so that two texts which
differ in punctuation or spacing alone have the same set (Broder, "On the resemblance and containment of
documents", 1997, section 2).  A text shorter than k is its own only shingle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from dedup_job.compiled import compiled
from dedup_job.fingerprint.characters import CODE, LETTER, encoded, offsets_of
from dedup_job.ragged import Ragged

NOT_ALPHANUMERIC = re.compile(r"[\W_]+")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def normalised(text: str) -> str:
    """Return the letters and digits of a cleaned text, in lower case.

    >>> normalised("价格: <100元>, Very Cheap!")
    '价格100元verycheap'
    """
    return NOT_ALPHANUMERIC.sub("", text.lower())


def number_seeds(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return a seed for each cleaned text that depends on the numbers in it and their order alone.

    Shingles that are hashed with different seeds have nothing in common, so texts with different numbers
    are not similar at all, and texts with the same numbers are as similar as before.
    """
    joined = (" ".join(NUMBER.findall(text)).encode() for text in texts)
    return np.array([xxhash.xxh3_64_intdigest(numbers) for numbers in joined], np.uint64)


def shingles(texts: Sequence[str], length: int, seeds: npt.NDArray[np.uint64] | None = None) -> Ragged:
    """Return the sorted distinct shingle hashes of normalised texts, hashed with a seed for each text.

    With `length` 2, "abcab" has the shingles ab, bc, ca: three distinct hashes.
    """
    return _sets(Ragged(offsets_of(texts), encoded("".join(texts))), length, seeds)


def letter_shingles(codes: Ragged, length: int, seeds: npt.NDArray[np.uint64] | None = None) -> Ragged:
    """Return the shingles of texts that are not normalised, given as `characters.lower_case` has them."""
    return _sets(Ragged(*_letters(codes.offsets, codes.values)), length, seeds)


def _sets(letters: Ragged, length: int, seeds: npt.NDArray[np.uint64] | None) -> Ragged:
    if seeds is None:
        seeds = np.zeros(len(letters), np.uint64)
    offsets, values = _hashed(letters.offsets, letters.values, length, seeds)
    for row in range(len(letters)):
        values[offsets[row] : offsets[row + 1]].sort()  # numpy's vectorised sort: 10 times numba's
    return Ragged(*_distinct(offsets, values))


@compiled("Tuple((int64[::1], uint32[::1]))(int64[::1], uint32[::1])")
def _letters(
    starts: npt.NDArray[np.int64], codes: npt.NDArray[np.uint32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return the code points of the letters and digits alone: what `normalised` leaves of a text."""
    kept = np.empty_like(codes)
    ends = np.zeros_like(starts)
    filled = 0
    for text in range(len(starts) - 1):
        for place in range(starts[text], starts[text + 1]):
            kept[filled] = codes[place] & CODE
            filled += codes[place] >= LETTER
        ends[text + 1] = filled
    return ends, kept[:filled].copy()


@compiled(
    "Tuple((int64[::1], uint32[::1]))(int64[::1], Array(uint32, 1, 'C', readonly=True), int64, uint64[::1])",
)
def _hashed(
    starts: npt.NDArray[np.int64],
    codes: npt.NDArray[np.uint32],
    length: int,
    seeds: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Hash every window of `length` code points; a shorter text has one window.

    All windows of a text go forward together, a point at a time: the processor then works on many at once.
    """
    texts = len(starts) - 1
    offsets = np.zeros(texts + 1, np.int64)
    values = np.empty(len(codes), np.uint32)
    room = np.empty(np.diff(starts).max() if texts else 0, np.uint64)
    for text in range(texts):
        start, stop = starts[text], starts[text + 1]
        size = min(length, stop - start)
        windows = stop - start - size + 1 if size else 0
        states = room[:windows]
        states[:] = np.uint64(0x9E3779B97F4A7C15) ^ seeds[text]
        for place in range(start, start + size):
            points = codes[place : place + windows]
            for window in range(windows):
                state = (states[window] ^ np.uint64(points[window])) * np.uint64(0xD6E8FEB86659FD93)
                states[window] = state ^ state >> np.uint64(32)
        offsets[text + 1] = offsets[text] + windows
        hashes = values[offsets[text] : offsets[text + 1]]
        for window in range(windows):
            hashes[window] = np.uint32(states[window] >> np.uint64(16))
    return offsets, values[: offsets[-1]].copy()


@compiled("Tuple((int64[::1], uint32[::1]))(int64[::1], uint32[::1])")
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
