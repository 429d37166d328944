"""Pieces: what stands between two gaps of a text, each known by a number, and the rows of its words."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.interning import Interned, Numbers
from dedup_job.native.compiled import compiled
from dedup_job.native.ragged import Ragged

Rows = tuple[Numbers, Numbers]  # offsets (n + 1,), and rows of a vocabulary


class Pieces:
    """Pieces that were met, and the rows of those that were learned."""

    def __init__(self) -> None:
        self._interned = Interned()
        self.forget()

    def forget(self) -> None:
        """Know no piece any more."""
        self._interned.forget()
        self._stops = array("q", [0])
        self._rows = array("q")

    @property
    def characters(self) -> int:
        """Characters of all pieces that were met."""
        return self._interned.characters

    def numbers(self, pieces: Ragged) -> tuple[Numbers, Ragged]:
        """Return the number of each piece, and those that were not met before, which are to be learned."""
        return self._interned.numbers(pieces)

    def learn(self, ends: npt.NDArray[np.bool_], rows: Numbers) -> None:
        """Take the rows of the pieces that were last met: `ends` says after which entries of `rows` one ends.

        Entries below 0 are no terms, and left out.
        """
        kept = rows >= 0
        self._stops.frombytes((len(self._rows) + np.cumsum(kept)[ends]).tobytes())
        self._rows.frombytes(rows[kept].tobytes())

    def rows(self, offsets: Numbers, numbers: Numbers) -> Rows:
        """Return the rows of texts whose pieces are numbers[offsets[i] : offsets[i + 1]]."""
        stops, rows = np.frombuffer(self._stops, np.int64), np.frombuffer(self._rows, np.int64)
        return _rows_of(offsets, numbers, stops, rows)


@compiled
def _rows_of(offsets: Numbers, numbers: Numbers, stops: Numbers, rows: Numbers) -> Rows:
    """Put the rows in the place of each piece: piece n has rows[stops[n] : stops[n + 1]].

    With stops [0, 2, 3] and rows [7, 8, 9], a text of the pieces [1, 0] has the rows [9, 7, 8].
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
