"""Interning: strings of code points, each known by a number.

A table by hashing with open addressing, over the code points themselves, so that no two strings are ever
taken for each other.  Numbers are given in the order in which strings are first met.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.compiled import compiled, part
from dedup_job.document import Ragged
from dedup_job.fingerprint.characters import decoded
from dedup_job.instructions import prefetch

Numbers = npt.NDArray[np.int64]

END = 32  # the code point that follows each string: a space
_FEWEST_SLOTS = 1 << 12
_FAR, _NEAR = 24, 12  # strings by which a look-up is ahead of itself


class Interned:
    """Strings without spaces that were met."""

    def __init__(self) -> None:
        self._slots = np.zeros((_FEWEST_SLOTS, 2), np.int64)  # 1 + number (0: free), place in `_codes`
        self._codes = np.empty(0, np.uint32)  # all strings, each followed by a space
        self._known = np.zeros(2, np.int64)  # code points, and strings

    @property
    def characters(self) -> int:
        """Code points of all strings."""
        return int(self._known[0])

    def numbers(self, strings: Ragged) -> tuple[Numbers, str]:
        """Return the number of each string, and the text of those that were not met before.

        Strings, given as code points, and in the text returned, are each followed by a space.
        """
        self._make_room(strings)
        before = self.characters
        numbers = _numbers(strings.offsets, strings.values, self._slots, self._codes, self._known)
        return numbers, decoded(self._codes[before : self.characters])

    def _make_room(self, strings: Ragged) -> None:
        """Have room for the strings, were all of them new, and keep half of the slots free."""
        characters, known = self._known.tolist()
        if characters + len(strings.values) > len(self._codes):
            grown = np.empty(2 * (characters + len(strings.values)), np.uint32)
            grown[:characters] = self._codes[:characters]
            self._codes = grown
        if 2 * (known + len(strings)) > len(self._slots):
            grown_slots = np.zeros((1 << (4 * (known + len(strings))).bit_length(), 2), np.int64)
            _move(self._slots, grown_slots, self._codes)
            self._slots = grown_slots


# Helpers without a signature are compiled into their callers, and need not be loaded.
@part
def _slot_of(codes: npt.NDArray[np.uint32], place: int, slots: int) -> int:
    """Return the slot at which the search for the string at a place begins."""
    state = np.uint64(0x9E3779B97F4A7C15)
    while codes[place] != END:
        state = (state ^ np.uint64(codes[place])) * np.uint64(0xD6E8FEB86659FD93)
        state ^= state >> np.uint64(32)
        place += 1
    return int(np.int64(state & np.uint64(slots - 1)))


@part
def _are_same(a: npt.NDArray[np.uint32], i: int, b: npt.NDArray[np.uint32], j: int) -> bool:
    """Tell whether two strings, each followed by a space, are the same."""
    while a[i] == b[j]:
        if a[i] == END:
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


@compiled(
    "int64[::1](int64[::1], Array(uint32, 1, 'C', readonly=True), int64[:, ::1], uint32[::1], int64[::1])",
)
def _numbers(
    offsets: Numbers,
    given: npt.NDArray[np.uint32],
    slots: Numbers,
    codes: npt.NDArray[np.uint32],
    known: Numbers,
) -> Numbers:
    """Return the number of each string; those that are new are put into `slots` and `codes` and counted.

    Memory is asked for ahead: first for the slot, then for the string that is there.
    """
    numbers = np.empty(len(offsets) - 1, np.int64)
    for string in range(len(numbers)):
        numbers[string] = _slot_of(given, offsets[string], len(slots))  # for now
    for string in range(len(numbers)):
        if string + _FAR < len(numbers):
            prefetch(slots, 2 * numbers[string + _FAR])
        if string + _NEAR < len(numbers):
            prefetch(codes, slots[numbers[string + _NEAR], 1])
        start, stop, slot = offsets[string], offsets[string + 1], numbers[string]
        while slots[slot, 0] > 0 and not _are_same(given, start, codes, slots[slot, 1]):
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot, 0] == 0:
            codes[known[0] : known[0] + stop - start] = given[start:stop]
            slots[slot, 0], slots[slot, 1] = known[1] + 1, known[0]
            known[0] += stop - start
            known[1] += 1
        numbers[string] = slots[slot, 0] - 1
    return numbers
