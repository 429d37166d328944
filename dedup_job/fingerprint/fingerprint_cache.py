"""A shared cache of recent texts' fingerprints, for texts that come again."""

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


class FingerprintCache:
    """A cache of simhashes and numbers of terms, by the digest of the text.

    The lowest bits of a digest are its place. A text replaces the text that was there, so that the cache
    holds recent texts in bounded memory.
    """

    def __init__(self, recipe: str, words: int, memory: Words | None = None) -> None:
        """Open a cache, with the texts that other processes have put into the memory for the same recipe.

        Args:
            recipe: The digest of the recipe, in hexadecimal.
            words: Number of 64-bit words in a fingerprint.
            memory: From `new_memory`; by default memory that is not shared.
        """
        if memory is None:
            memory = new_memory()
        size = 2 + words + 1
        self._rows = memory[: PLACES * size].reshape(PLACES, size)
        self._seed = np.uint64(int(recipe[:16], 16))

    def find(self, digests: Words) -> tuple[npt.NDArray[np.bool_], Words, Counts]:
        """Look up n texts by their digests.

        Args:
            digests: uint64 (n, 2).

        Returns:
            Which texts are known, bool (n,); their fingerprints; and their numbers of terms. The rows of
            unknown texts hold arbitrary values.
        """
        rows = self._rows[_places(digests)]
        is_known = (rows[:, :2] ^ self._seals(rows[:, 2:]) == digests).all(axis=1)
        return is_known, rows[:, 2:-1], rows[:, -1].astype(np.int64)

    def put(self, digests: Words, bits: Words, counts: Counts) -> None:
        """Add texts to the cache, replacing older ones."""
        values = np.column_stack([bits, counts.astype(np.uint64)])
        self._rows[_places(digests)] = np.column_stack([digests ^ self._seals(values), values])

    def _seals(self, values: Words) -> Words:
        """Return the seal over each row of values, uint64 (n, 1); it changes if any bit changes."""
        seals = np.full(len(values), self._seed)
        for column in values.T:
            seals = (seals ^ column) * _MULTIPLIER
            seals ^= seals >> _HALF
        return seals[:, None]


def new_memory() -> Words:
    """Allocate zeroed memory for a cache; processes that are forked from this one share it."""
    return np.frombuffer(mmap(-1, PLACES * MOST_WORDS * 8), np.uint64)


def _places(digests: Words) -> npt.NDArray[np.intp]:
    return (digests[:, 0] & np.uint64(PLACES - 1)).astype(np.intp)
