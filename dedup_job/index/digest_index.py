"""A digest index: find an identical text by its digest."""

from __future__ import annotations

from secrets import token_bytes
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.arrays import Flags, Numbers, ensure_capacity
from dedup_job.native.numba_compile import compiled, compiled_inline, prefetch

Digests = npt.NDArray[np.uint64]  # (n, 2)
ShortDigests = npt.NDArray[np.uint32]  # (n, 3)
ShortDigest = npt.NDArray[np.uint32]  # (3,)
Slots = npt.NDArray[np.uint32]

# Slots per text: in a new table, and the least before the table is rebuilt.
SLOTS, FULL = 1.32, 1.11
# A loop prefetches the slot of the text this many rows later.
AHEAD = 16


class Table(NamedTuple):
    """A hash table of texts.

    Attributes:
        digests: uint32, shape (capacity, 3), by text number.
        slots: uint32; the lower bits hold a text's number counted from 1, the upper bits a tag of its digest;
            0 is an empty slot.
        number_bits: How many bits of a slot hold the number.
    """

    digests: ShortDigests
    slots: Slots
    number_bits: int


class DigestIndex:
    """Finds texts by their digests; texts are numbered in order of first arrival."""

    def __init__(self) -> None:
        self._count = 0
        self._digests = np.empty((0, 3), np.uint32)
        # Three random 64-bit factors, from the system's random numbers: nobody can foresee them.
        self._factors = np.frombuffer(token_bytes(24), np.uint64)
        self._slots = np.zeros(1, np.uint32)

    def __len__(self) -> int:
        return self._count

    def number(self, digests: Digests) -> tuple[Numbers, Flags]:
        """Give each text a number, and add the texts that are new.

        Args:
            digests: uint64, shape (n, 2); a row of zeros where there is no text.

        Returns:
            The texts' numbers, int64, shape (n,), -1 where there is no text; and which of them are new, bool,
            shape (n,).
        """
        self.reserve(self._count + len(digests))
        numbers, is_new = np.full(len(digests), -1, np.int64), np.zeros(len(digests), np.bool_)
        is_text = (digests[:, 0] | digests[:, 1]) != 0
        short = self._shorten(digests)
        self._count = _insert(short, is_text, self._table, self._count, numbers, is_new)
        return numbers, is_new

    def find(self, digests: Digests) -> Numbers:
        """Return the number of the text with each of these digests, -1 where there is none.

        Args:
            digests: uint64, shape (n, 2).

        Returns:
            int64, shape (n,).
        """
        short = self._shorten(digests)
        numbers = np.empty(len(short), np.int64)
        _find(short, self._table, numbers)
        return numbers

    @property
    def _table(self) -> Table:
        return Table(self._digests, self._slots, len(self._slots).bit_length())

    def reserve(self, texts: int) -> None:
        """Make room for this many texts in all; rebuild the table if it would be nearly full."""
        self._digests = ensure_capacity(self._digests, texts)
        if texts * FULL >= len(self._slots):
            # Freed first, so that there are never two tables in memory: the digests are enough to rebuild it.
            del self._slots
            self._slots = np.zeros(int(texts * SLOTS) + 16, np.uint32)
            _insert_all(self._table, self._count)

    def _shorten(self, digests: Digests) -> ShortDigests:
        """Return 96 bits of each digest, uint32 (n, 3), which depend on all of its bits."""
        words = np.ascontiguousarray(digests).view(np.uint32)
        short: ShortDigests = words[:, :3] + (words[:, 3:] * self._factors >> np.uint64(32)).astype(np.uint32)
        return short


@compiled_inline
def _first_slot(digest: ShortDigest, slots: Slots) -> np.uint64:
    """Return the slot at which the search for a digest begins."""
    # The second word of the digest, scaled to the number of slots; the tag is taken from the first word.
    slot: np.uint64 = np.uint64(digest[1]) * np.uint64(len(slots)) >> np.uint64(32)
    return slot


@compiled_inline
def _pack_slot(digest: ShortDigest, number: int, number_bits: int) -> np.uint32:
    """Return the content of a slot: a number in the lower bits, as much of the digest as fits above it."""
    packed = np.uint64(digest[0]) << np.uint64(number_bits) | np.uint64(number)
    return np.uint32(packed & np.uint64(0xFFFFFFFF))


@compiled
def _insert_all(table: Table, count: int) -> None:
    """Insert the first `count` digests of a table into its empty slots."""
    for row in range(count):
        if row + AHEAD < count:
            prefetch(table.slots, np.int64(_first_slot(table.digests[row + AHEAD], table.slots)))
        slot = _first_slot(table.digests[row], table.slots)
        while table.slots[slot]:
            slot = _next_slot(slot, table.slots)
        table.slots[slot] = _pack_slot(table.digests[row], row + 1, table.number_bits)


@compiled
def _insert(
    digests: ShortDigests, is_text: Flags, table: Table, count: int, numbers: Numbers, is_new: Flags
) -> int:
    """Write the number of each text into `numbers`, and insert new texts.

    Args:
        digests: Shape (n, 3).
        is_text: Shape (n,); other rows are skipped.
        table: Changed in place; it has room for n more texts.
        count: Texts in the table.
        numbers: Shape (n,); receives the numbers.
        is_new: Shape (n,); set for texts that were inserted.

    Returns:
        The number of texts in the table.
    """
    for row in range(len(digests)):
        if row + AHEAD < len(digests):
            prefetch(table.slots, np.int64(_first_slot(digests[row + AHEAD], table.slots)))
        if is_text[row]:
            slot = _find_slot(digests[row], table)
            if not table.slots[slot]:
                table.digests[count], is_new[row] = digests[row], True
                count += 1
                table.slots[slot] = _pack_slot(digests[row], count, table.number_bits)
            numbers[row] = _number_in(table.slots[slot], table.number_bits)
    return count


@compiled
def _find(digests: ShortDigests, table: Table, numbers: Numbers) -> None:
    """Write the number of the text with each digest into `numbers`, or -1."""
    for row in range(len(digests)):
        if row + AHEAD < len(digests):
            prefetch(table.slots, np.int64(_first_slot(digests[row + AHEAD], table.slots)))
        numbers[row] = _number_in(table.slots[_find_slot(digests[row], table)], table.number_bits)


@compiled_inline
def _find_slot(digest: ShortDigest, table: Table) -> np.uint64:
    """Return the slot of a text, or the empty slot where it would be inserted."""
    slot: np.uint64 = _first_slot(digest, table.slots)
    while table.slots[slot]:
        number = _number_in(table.slots[slot], table.number_bits)
        # The tag first: a digest in another part of memory is read only where the tag is the same.
        if _pack_slot(digest, number + 1, table.number_bits) == table.slots[slot] and _is_same(
            table.digests[number], digest
        ):
            break
        slot = _next_slot(slot, table.slots)
    return slot


@compiled_inline
def _next_slot(slot: np.uint64, slots: Slots) -> np.uint64:
    """Return the slot behind a slot; the first one behind the last."""
    return slot + np.uint64(1) if slot + np.uint64(1) < np.uint64(len(slots)) else np.uint64(0)


@compiled_inline
def _number_in(packed: np.uint32, number_bits: int) -> np.int64:
    """Return the number of the text in a slot, -1 for an empty slot."""
    mask = (np.uint64(1) << np.uint64(number_bits)) - np.uint64(1)
    return np.int64(np.uint64(packed) & mask) - 1


@compiled_inline
def _is_same(left: ShortDigest, right: ShortDigest) -> bool:
    """Return whether two short digests are equal."""
    return bool(left[0] == right[0] and left[1] == right[1] and left[2] == right[2])
