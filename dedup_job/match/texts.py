"""The text index: which text is exactly this one, by the digest of it.

Of each 128-bit digest the index keeps 96 bits, to save memory: it multiplies the last 32 by three random
factors and adds the products to the first 96 (multiply-shift hashing: Dietzfelbinger, Hagerup, Katajainen and
Penttonen, "A reliable randomized algorithm for the closest-pair problem", Journal of Algorithms 25, 1997).

Chance: two of n different texts agree in these 96 bits with probability n^2 / 2^97, that is 1.6e-14 for fifty
million.
Intent: each index draws its own factors.  Two different digests that were chosen without knowing them agree
with probability 2^-93 at most, so a writer gains nothing by making two texts agree in only 96 bits, which
takes 2^48 digests, days of one graphics card.  All 128 bits must agree, which takes 2^64 digests.

A table of slots finds the texts by open addressing (Knuth, The Art of Computer Programming 3, section 6.4,
algorithm L): a slot holds a number and, in the bits that the number leaves free, a tag of the digest, so that
a wrong digest is hardly ever compared.
"""

from __future__ import annotations

from secrets import token_bytes
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.match.column import with_room
from dedup_job.native.compiled import compiled, inlined
from dedup_job.native.instructions import prefetch

Digests = npt.NDArray[np.uint64]  # (n, 2)
Short = npt.NDArray[np.uint32]  # (n, 3)
Slots = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SLOTS, FULL = 1.32, 1.11  # slots for each text when the table is made, and when it must be made anew
AHEAD = 16  # texts by which a loop looks ahead of itself


class Table(NamedTuple):
    """Texts and where they are found: a slot holds a number, counted from 1, of so many bits; 0 is none."""

    digests: Short
    slots: Slots
    number_bits: int


class TextIndex:
    """Finds texts by their digests; texts are numbered in the order in which they first come."""

    def __init__(self) -> None:
        self._count = 0
        self._digests = np.empty((0, 3), np.uint32)
        self._factors = np.frombuffer(token_bytes(24), np.uint64)
        self._slots = np.zeros(1, np.uint32)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._digests.nbytes + self._slots.nbytes

    def number(self, digests: Digests) -> tuple[Numbers, Flags]:
        """Return the number of each text, int64 (n,), and which of them came for the first time, bool (n,).

        digests  uint64 (n, 2); zeros where there is no text, and the number is -1
        """
        self.reserve(self._count + len(digests))
        numbers, is_new = np.full(len(digests), -1, np.int64), np.zeros(len(digests), np.bool_)
        is_there = (digests[:, 0] | digests[:, 1]) != 0
        self._count = enter(self._shortened(digests), is_there, self._table, self._count, numbers, is_new)
        return numbers, is_new

    def find(self, digests: Digests) -> npt.NDArray[np.int64]:
        """Return the number of the text with each of these digests, uint64 (n, 2); -1 where there is none."""
        short = self._shortened(digests)
        numbers = np.empty(len(short), np.int64)
        find(short, self._table, numbers)
        return numbers

    @property
    def _table(self) -> Table:
        return Table(self._digests, self._slots, len(self._slots).bit_length())

    def reserve(self, texts: int) -> None:
        """Have room for so many texts in all, in a larger table if this one would be nearly full."""
        self._digests = with_room(self._digests, texts)
        if texts * FULL >= len(self._slots):
            del self._slots  # before there is another
            self._slots = np.zeros(int(texts * SLOTS) + 16, np.uint32)
            enter_again(self._table, self._count)

    def _shortened(self, digests: Digests) -> Short:
        """Return 96 bits of each digest, uint32 (n, 3), which depend on all of its bits."""
        words = np.ascontiguousarray(digests).view(np.uint32)
        short: Short = words[:, :3] + (words[:, 3:] * self._factors >> np.uint64(32)).astype(np.uint32)
        return short


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


@compiled
def enter_again(table: Table, count: int) -> None:
    """Enter the first texts into an empty table."""
    for row in range(count):
        if row + AHEAD < count:
            prefetch(table.slots, np.int64(home(table.digests[row + AHEAD], table.slots)))
        place = home(table.digests[row], table.slots)
        while table.slots[place]:
            place = after(place, table.slots)
        table.slots[place] = tagged(table.digests[row], row + 1, table.number_bits)


@compiled
def enter(wanted: Short, is_there: Flags, table: Table, count: int, numbers: Numbers, is_new: Flags) -> int:
    """Write down the number of each text that is there; new ones are entered.  Returns how many texts are."""
    for q in range(len(wanted)):
        if q + AHEAD < len(wanted):
            prefetch(table.slots, np.int64(home(wanted[q + AHEAD], table.slots)))
        if is_there[q]:
            place = slot_of(wanted[q], table)
            if not table.slots[place]:
                table.digests[count], is_new[q] = wanted[q], True
                count += 1
                table.slots[place] = tagged(wanted[q], count, table.number_bits)
            numbers[q] = number_in(table.slots[place], table.number_bits)
    return count


@compiled
def find(wanted: Short, table: Table, numbers: Numbers) -> None:
    """Write down the number of the text with each digest, or -1."""
    for q in range(len(wanted)):
        if q + AHEAD < len(wanted):
            prefetch(table.slots, np.int64(home(wanted[q + AHEAD], table.slots)))
        numbers[q] = number_in(table.slots[slot_of(wanted[q], table)], table.number_bits)


@inlined
def slot_of(wanted: Short, table: Table) -> np.uint64:
    """The slot of a text, or the empty one where it would be."""
    place: np.uint64 = home(wanted, table.slots)
    while table.slots[place]:
        number = number_in(table.slots[place], table.number_bits)
        if tagged(wanted, number + 1, table.number_bits) == table.slots[place] and same(
            table.digests[number], wanted
        ):
            break
        place = after(place, table.slots)
    return place


@inlined
def after(place: np.uint64, slots: Slots) -> np.uint64:
    """The slot behind one; the first one behind the last."""
    return place + np.uint64(1) if place + np.uint64(1) < np.uint64(len(slots)) else np.uint64(0)


@inlined
def number_in(slot: np.uint32, number_bits: int) -> np.int64:
    """The number of the text in a slot; -1 for an empty one."""
    mask = (np.uint64(1) << np.uint64(number_bits)) - np.uint64(1)
    return np.int64(np.uint64(slot) & mask) - 1


@inlined
def same(one: Short, other: Short) -> bool:
    """Whether two digests are the same."""
    return bool(one[0] == other[0] and one[1] == other[1] and one[2] == other[2])
