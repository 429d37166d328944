"""The text index: which text is exactly this one, by the digest of it.

Of each 128-bit digest 96 bits are kept.  Among n texts two different ones are alike in these with a chance
of about n^2 / 2^97: 1.6e-14 for fifty million.  A table of slots finds them by open addressing (Knuth, The
Art of Computer Programming 3, section 6.4, algorithm L): a slot holds a number and, in the bits that the
number leaves free, a tag of the digest, so that a wrong digest is hardly ever looked at.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.compiled import compiled, inlined
from dedup_job.instructions import prefetch
from dedup_job.match._column import make_room

Digests = npt.NDArray[np.uint64]  # (n, 2)
Short = npt.NDArray[np.uint32]  # (n, 3)
Slots = npt.NDArray[np.uint32]

SLOTS, FULL = 1.32, 1.11  # slots for each text when the table is made, and when it must be made anew
AHEAD = 16  # texts by which a loop looks ahead of itself


class TextIndex:
    """Finds texts by their digests; texts are numbered in the order in which they are added."""

    def __init__(self) -> None:
        self._count = 0
        self._entered = 0
        self._digests = np.empty((0, 3), np.uint32)
        self._slots = np.zeros(1, np.uint32)
        self._number_bits = 1

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._digests.nbytes + self._slots.nbytes

    def add(self, digests: Digests) -> None:
        """Add texts by their digests, uint64 (n, 2), at the next n numbers."""
        last = self._count + len(digests)
        make_room(self._digests, last)
        self._digests[self._count : last] = _short(digests)
        self._count = last

    def find(self, digests: Digests) -> npt.NDArray[np.int64]:
        """Return the number of the text with each of these digests, uint64 (n, 2); -1 where there is none."""
        self._enter()
        short = _short(digests)
        numbers = np.empty(len(short), np.int64)
        find(short, (self._digests, self._slots, self._number_bits), numbers)
        return numbers

    def _enter(self) -> None:
        """Enter what was added since the last search, in a larger table if this one is nearly full."""
        if self._count * FULL >= len(self._slots):
            del self._slots  # before there is another
            self._slots = np.zeros(int(self._count * SLOTS) + 16, np.uint32)
            self._number_bits = len(self._slots).bit_length()
            self._entered = 0
        if self._entered < self._count:
            enter(self._digests, (self._entered, self._count), self._slots, self._number_bits)
            self._entered = self._count


def _short(digests: Digests) -> Short:
    """Return the first 96 bits of each."""
    return np.ascontiguousarray(np.ascontiguousarray(digests).view(np.uint32)[:, :3])


@inlined
def home(digest: Short, slots: Slots) -> np.uint64:
    """The slot at which the search for a digest begins: its share of the table, by the second 32 bits."""
    place: np.uint64 = np.uint64(digest[1]) * np.uint64(len(slots)) >> np.uint64(32)
    return place


@inlined
def tagged(digest: Short, number: int, number_bits: int) -> np.uint32:
    """A number of so many bits, with as much of the digest above it as there is room in a slot."""
    slot = np.uint64(digest[0]) << np.uint64(number_bits) | np.uint64(number)
    return np.uint32(slot & np.uint64(0xFFFFFFFF))


@compiled()
def enter(digests: Short, rows: tuple[int, int], slots: Slots, number_bits: int) -> None:
    """Enter the texts from row `rows[0]` to `rows[1]`; there must be a slot free for each, and one more."""
    first, last = rows
    for row in range(first, last):
        if row + AHEAD < last:
            prefetch(slots, np.int64(home(digests[row + AHEAD], slots)))
        place = home(digests[row], slots)
        while slots[place]:
            place += np.uint64(1)
            if place == np.uint64(len(slots)):
                place = np.uint64(0)
        slots[place] = tagged(digests[row], row + 1, number_bits)


@compiled()
def find(wanted: Short, table: tuple[Short, Slots, int], numbers: npt.NDArray[np.int64]) -> None:
    """Write down the number of the first text with each digest, or -1."""
    digests, slots, number_bits = table
    mask = np.uint32((np.uint64(1) << np.uint64(number_bits)) - np.uint64(1))
    for q in range(len(wanted)):
        if q + AHEAD < len(wanted):
            prefetch(slots, np.int64(home(wanted[q + AHEAD], slots)))
        numbers[q] = -1
        place, tag = home(wanted[q], slots), tagged(wanted[q], 0, number_bits)
        while slots[place]:
            number = np.uint64(slots[place] & mask) - np.uint64(1)
            if slots[place] & ~mask == tag and same(digests[number], wanted[q]):
                numbers[q] = number
                break
            place += np.uint64(1)
            if place == np.uint64(len(slots)):
                place = np.uint64(0)


@inlined
def same(one: Short, other: Short) -> bool:
    """Whether two digests are the same."""
    return bool(one[0] == other[0] and one[1] == other[1] and one[2] == other[2])
