"""Known texts: what came of those that were fingerprinted lately, for when one comes again.

A job that removes duplicates meets many texts twice, most of them long after.  To segment and weigh a text
takes three quarters of a worker's time; to know it again takes its digest, which is needed anyway.

Processes may share the memory, and none waits for another.  A row that is read while it is written, or that
two have written at once, is a mixture.  So a digest is kept combined with a seal over the rest of its row,
and a mixture is the row of no text: Hyatt and Mann, "A lock-less transposition table implementation for
parallel search", ICGA Journal 25 (2002), have positions of a game in such a table.

    row    digest ^ seal (2 words), fingerprint (1 or 2), number of terms (1)
    seal   64 bits, made of the recipe, the fingerprint and the number of terms
"""

from __future__ import annotations

from mmap import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

PLACES = 1 << 19  # 16 MB with fingerprints of 64 bits
MOST_WORDS: Final = 5  # of a row
_MULTIPLIER: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)


class KnownTexts:
    """Simhashes and numbers of terms by the digest of the text.

    The lowest bits of a digest say at which place it is looked for.  A text takes its place from the one that
    had it, so that the latest are known and memory is bounded.
    """

    def __init__(self, recipe: str, words: int, memory: Words | None = None) -> None:
        """Know what others that share the memory have put there for the same recipe.

        recipe  its digest, in hexadecimal
        words   of 64 bits in a fingerprint
        memory  of `new_memory`; by default one's own
        """
        if memory is None:
            memory = new_memory()
        size = 2 + words + 1
        self._rows = memory[: PLACES * size].reshape(PLACES, size)
        self._seed = np.uint64(int(recipe[:16], 16))

    def find(self, digests: Words) -> tuple[npt.NDArray[np.bool_], Words, Counts]:
        """Return which of n texts are known, bool (n,), their fingerprints and how many terms each has.

        digests  uint64 (n, 2)

        Rows of texts that are not known hold anything.
        """
        rows = self._rows[_places(digests)]
        is_known = (rows[:, :2] ^ self._seals(rows[:, 2:]) == digests).all(axis=1)
        return is_known, rows[:, 2:-1], rows[:, -1].astype(np.int64)

    def put(self, digests: Words, bits: Words, counts: Counts) -> None:
        """Know these texts from now on."""
        values = np.column_stack([bits, counts.astype(np.uint64)])
        self._rows[_places(digests)] = np.column_stack([digests ^ self._seals(values), values])

    def _seals(self, values: Words) -> Words:
        """Return the seal over each row of values, uint64 (n, 1): with another bit anywhere it is another."""
        seals = np.full(len(values), self._seed)
        for column in values.T:
            seals = (seals ^ column) * _MULTIPLIER
            seals ^= seals >> _HALF
        return seals[:, None]


def new_memory() -> Words:
    """Return memory for known texts, zeros; processes that are forked from this one share it."""
    return np.frombuffer(mmap(-1, PLACES * MOST_WORDS * 8), np.uint64)


def _places(digests: Words) -> npt.NDArray[np.intp]:
    return (digests[:, 0] & np.uint64(PLACES - 1)).astype(np.intp)
