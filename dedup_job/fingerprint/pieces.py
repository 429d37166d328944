"""Pieces: the parts of a text between two gaps, numbered, with the vocabulary rows of their words."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.interning import Interned, Numbers
from dedup_job.native.compiled import compiled
from dedup_job.native.ragged import Ragged

Rows = tuple[Numbers, Numbers]
"""Offsets, shape (n + 1,), and rows of a vocabulary."""


class Pieces:
    """Numbers pieces, and remembers the rows of each piece's words."""

    def __init__(self) -> None:
        self._interned = Interned()
        self.forget()

    def forget(self) -> None:
        """Remove all pieces."""
        self._interned.forget()
        self._stops = array("q", [0])
        self._rows = array("q")

    @property
    def characters(self) -> int:
        """Characters of all pieces."""
        return self._interned.characters

    def numbers(self, pieces: Ragged) -> tuple[Numbers, Ragged]:
        """Return the number of each piece, and the new pieces; `learn` must be called for the new ones."""
        return self._interned.numbers(pieces)

    def learn(self, ends: npt.NDArray[np.bool_], rows: Numbers) -> None:
        """Add the rows of the new pieces that `numbers` has returned.

        Args:
            ends: Whether a piece ends after each entry of `rows`.
            rows: The rows of the pieces' words; entries below 0 are no terms, and left out.
        """
        kept = rows >= 0
        self._stops.frombytes((len(self._rows) + np.cumsum(kept)[ends]).tobytes())
        self._rows.frombytes(rows[kept].tobytes())

    def rows(self, offsets: Numbers, numbers: Numbers) -> Rows:
        """Return the rows of each text; text i has the pieces numbers[offsets[i] : offsets[i + 1]]."""
        stops, rows = np.frombuffer(self._stops, np.int64), np.frombuffer(self._rows, np.int64)
        return _rows_of(offsets, numbers, stops, rows)


@compiled
def _rows_of(offsets: Numbers, numbers: Numbers, stops: Numbers, rows: Numbers) -> Rows:
    """Replace each piece by its rows: piece n has rows[stops[n] : stops[n + 1]].

    With stops [0, 2, 3] and rows [7, 8, 9], a text with the pieces [1, 0] has the rows [9, 7, 8].
    """
    total = 0
    for number in numbers:
        total += stops[number + 1] - stops[number]
    found, ends = np.empty(total, np.int64), np.zeros_like(offsets)
    filled = 0
    for text in range(len(offsets) - 1):
        for place in range(offsets[text], offsets[text + 1]):
            for row in range(stops[numbers[place]], stops[numbers[place] + 1]):
                found[filled] = rows[row]
                filled += 1
        ends[text + 1] = filled
    return ends, found
