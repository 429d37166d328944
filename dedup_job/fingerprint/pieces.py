"""Pieces: what stands between two gaps of a text, each known by a number, and the rows of its words.

A table by hashing with open addressing, over the code points of the pieces themselves, so that no two pieces
are ever taken for each other.  Numbers are given in the order in which pieces are first met.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from dedup_job.compiled import compiled, part
from dedup_job.document import Ragged
from dedup_job.fingerprint.characters import decoded

Numbers = npt.NDArray[np.int64]
Rows = tuple[Numbers, Numbers]  # offsets (n + 1,), and rows of a vocabulary

_SPACE = 32
_FEWEST_SLOTS = 1 << 12


class Pieces:
    """Pieces that were met, and the rows of those that were learned."""

    def __init__(self) -> None:
        self._slots = np.zeros((_FEWEST_SLOTS, 2), np.int64)  # 1 + number (0: free), place in `_codes`
        self._codes = np.empty(0, np.uint32)  # all pieces, each followed by a space
        self._known = np.zeros(2, np.int64)  # code points, and pieces
        self._stops = array("q", [0])
        self._rows = array("q")

    @property
    def characters(self) -> int:
        """Code points of all pieces."""
        return int(self._known[0])

    def numbers(self, pieces: Ragged) -> tuple[Numbers, str]:
        """Return the number of each piece, and the text of those that were not met before.

        Pieces, given as code points, and in the text returned, are each followed by a space.
        """
        self._make_room(pieces)
        before = self.characters
        numbers = _numbers(pieces.offsets, pieces.values, self._slots, self._codes, self._known)
        return numbers, decoded(self._codes[before : self.characters])

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

    def _make_room(self, pieces: Ragged) -> None:
        """Have room for the pieces, were all of them new, and keep half of the slots free."""
        characters, known = self._known.tolist()
        if characters + len(pieces.values) > len(self._codes):
            grown = np.empty(2 * (characters + len(pieces.values)), np.uint32)
            grown[:characters] = self._codes[:characters]
            self._codes = grown
        if 2 * (known + len(pieces)) > len(self._slots):
            grown_slots = np.zeros((1 << (4 * (known + len(pieces))).bit_length(), 2), np.int64)
            _move(self._slots, grown_slots, self._codes)
            self._slots = grown_slots


# Helpers without a signature are compiled into their callers, and need not be loaded.
@part
def _slot_of(codes: npt.NDArray[np.uint32], place: int, slots: int) -> int:
    """Return the slot at which the search for the piece at a place begins."""
    state = np.uint64(0x9E3779B97F4A7C15)
    while codes[place] != _SPACE:
        state = (state ^ np.uint64(codes[place])) * np.uint64(0xD6E8FEB86659FD93)
        state ^= state >> np.uint64(32)
        place += 1
    return int(np.int64(state & np.uint64(slots - 1)))


@part
def _are_same(a: npt.NDArray[np.uint32], i: int, b: npt.NDArray[np.uint32], j: int) -> bool:
    """Tell whether two pieces, each followed by a space, are the same."""
    while a[i] == b[j]:
        if a[i] == _SPACE:
            return True
        i += 1
        j += 1
    return False


@compiled("void(int64[:, ::1], int64[:, ::1], uint32[::1])")
def _move(slots: Numbers, grown: Numbers, codes: npt.NDArray[np.uint32]) -> None:
    """Put what the slots hold into more of them."""
    for old in range(len(slots)):
        if slots[old, 0] > 0:
            slot = _slot_of(codes, slots[old, 1], len(grown))
            while grown[slot, 0] > 0:
                slot = (slot + 1) & (len(grown) - 1)
            grown[slot] = slots[old]


@compiled("int64[::1](int64[::1], uint32[::1], int64[:, ::1], uint32[::1], int64[::1])")
def _numbers(
    offsets: Numbers,
    given: npt.NDArray[np.uint32],
    slots: Numbers,
    codes: npt.NDArray[np.uint32],
    known: Numbers,
) -> Numbers:
    """Return the number of each piece; those that are new are put into `slots` and `codes` and counted."""
    numbers = np.empty(len(offsets) - 1, np.int64)
    for piece in range(len(numbers)):
        start, stop = offsets[piece], offsets[piece + 1]
        slot = _slot_of(given, start, len(slots))
        while slots[slot, 0] > 0 and not _are_same(given, start, codes, slots[slot, 1]):
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot, 0] == 0:
            codes[known[0] : known[0] + stop - start] = given[start:stop]
            slots[slot, 0], slots[slot, 1] = known[1] + 1, known[0]
            known[0] += stop - start
            known[1] += 1
        numbers[piece] = slots[slot, 0] - 1
    return numbers


@compiled(
    "Tuple((int64[::1], int64[::1]))(int64[::1], int64[::1], int64[::1], int64[::1])",
)
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
