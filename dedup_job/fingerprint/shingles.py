"""Shingles: the set of a text's short runs of characters, as sorted 32-bit hashes.

Only letters, marks, digits, symbols and `#%&@` count, in lower case: two texts that differ only in
punctuation or spacing have the same set (Broder, "On the resemblance and containment of documents", 1997,
section 2). A shingle that begins with a Chinese, Japanese or Korean character has three characters, any other
five. The length depends on nothing else, so that the similarity of two texts depends on these two texts
alone. A text that is too short for a shingle is a single one itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.term_hashes_and_tables import hash_strings
from dedup_job.native.arrays import Ragged
from dedup_job.native.numba_compile import compiled, compiled_helper
from dedup_job.text.code_points import CODE_POINT, COMPARED_BIT, is_cjk, is_compared

CJK_LENGTH, OTHER_LENGTH = 3, 5  # characters
# Signs that NFKC does not write with digits: ❶ ➀ ⓵ ⓿ ㉈.
_NUMBER_SIGNS = "\u24eb-\u24ff\u2776-\u2793\u3248-\u324f\U0001f10b\U0001f10c"
# `5`, `2.40` or ❶; and `.5`, where its point follows no letter, digit or other point. It begins with all
# first characters because `re` then skips to them: three times as fast as three alternatives.
NUMBER_PATTERN = re.compile(
    rf"[\d.{_NUMBER_SIGNS}](?:(?<=\d)\d*(?:\.\d+)?|(?<=\.)(?<![\w.]\.)\d+|(?<=[{_NUMBER_SIGNS}]))"
)


class _ComparedCharacters(dict[int, str]):
    """Maps each code point to its character if it is compared, otherwise to an empty string."""

    def __missing__(self, code: int) -> str:
        self[code] = chr(code) if is_compared(chr(code)) else ""
        return self[code]


# `str.translate` asks for each character once, and then finds it here: three times as fast as `filter`.
_COMPARED = _ComparedCharacters()


def comparable_text(text: str) -> str:
    """Return the characters of a cleaned text that are compared, in lower case.

    Of `C++ 价格: <100元>, Very_Cheap!` these are `c++价格<100元>verycheap`.
    """
    return text.lower().translate(_COMPARED)


def number_seeds(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return a seed for each cleaned text that depends only on the numbers in it and their order.

    Shingles that are hashed with different seeds have nothing in common. So texts with different numbers are
    not similar at all, and texts with the same numbers are as similar as without seeds.
    """
    seeds: npt.NDArray[np.uint64] = hash_strings(
        [" ".join(NUMBER_PATTERN.findall(text)) for text in texts], 64
    )[:, 0]
    return seeds


def shingle_sets(
    codes: Ragged, length: int | None = None, seeds: npt.NDArray[np.uint64] | None = None
) -> Ragged:
    """Return the sorted distinct shingle hashes of each text.

    Args:
        codes: Cleaned texts as `encode_lower_case` returns them.
        length: Of all shingles, in characters; None for three or five, by the first character.
        seeds: uint64 (n,), the seed of each text's hashes (see `number_seeds`); None for no seeds.
    """
    if seeds is None:
        seeds = np.zeros(len(codes), np.uint64)
    compared = codes.where((codes.values & COMPARED_BIT) != 0)
    lengths = (length, length) if length else (CJK_LENGTH, OTHER_LENGTH)
    hashed = Ragged(*_hash_shingles(compared.offsets, compared.values & CODE_POINT, *lengths, seeds))
    for row in hashed:
        # Not in compiled code: numpy's vectorised sort is 10 times as fast as numba's.
        row.sort()
    # A value is new if it differs from the one before it, or is the first of its row.
    is_new = np.ones(len(hashed.values) + 1, np.bool_)
    is_new[1:-1] = hashed.values[1:] != hashed.values[:-1]
    is_new[hashed.offsets] = True
    return hashed.where(is_new[:-1])


@compiled
def _hash_shingles(
    starts: npt.NDArray[np.int64],
    codes: npt.NDArray[np.uint32],
    cjk: int,
    other: int,
    seeds: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Hash the shingle that begins at each place, if it does not reach beyond the end of the text.

    Args:
        starts: int64 (n + 1,): text i is codes[starts[i] : starts[i + 1]].
        cjk: Length of a shingle that begins with a Chinese, Japanese or Korean character.
        other: Length of any other shingle.
        seeds: uint64 (n,).

    Returns:
        Offsets and hashes, in the order of the text, with repeats.
    """
    offsets, values = np.zeros_like(starts), np.empty(len(codes), np.uint32)
    filled = 0
    for text in range(len(starts) - 1):
        start, stop = starts[text], starts[text + 1]
        for place in range(start, stop):
            end = place + (cjk if is_cjk(codes[place]) else other)
            if end <= stop:
                values[filled] = _hash_characters(codes, place, end, seeds[text])
                filled += 1
        # A text that is too short for a shingle is hashed as a whole.
        if start < stop and filled == offsets[text]:
            values[filled] = _hash_characters(codes, start, stop, seeds[text])
            filled += 1
        offsets[text + 1] = filled
    return offsets, values[:filled]


@compiled_helper
def _hash_characters(codes: npt.NDArray[np.uint32], start: int, stop: int, seed: np.uint64) -> np.uint32:
    state = np.uint64(0x9E3779B97F4A7C15) ^ seed
    for place in range(start, stop):
        state = (state ^ np.uint64(codes[place])) * np.uint64(0xD6E8FEB86659FD93)
        state ^= state >> np.uint64(32)
    return np.uint32(state >> np.uint64(16))
