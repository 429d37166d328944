"""Interning: number strings of code points in order of their first occurrence.

The strings are in a hash table with open addressing, under keys of 64 bits. A string of at most three code
points is its own key: each code point plus 1 in 21 bits, the first lowest. So most Chinese words are found by
comparing keys alone. The key of a longer string is its hash with the highest bit set. Its code points are
compared as well, so two different strings are never confused.

    string   key                                     hexadecimal
    "ab"     98 | 99 << 21                           0xc600062
    "abcd"   1 << 63 | lower 63 bits of its hash     0x8... to 0xf...
"""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.arrays import Ragged
from dedup_job.native.compiled import compiled, compiled_helper, prefetch
from dedup_job.text.characters import decode_texts

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint32]
Slots = npt.NDArray[np.uint64]
"""Shape (n, 2): a key; then 1 + number in the upper half (0: free slot), and the place in all codes in the
lower."""

_FEWEST_SLOTS: Final = 1 << 12
_LONGEST_KEY: Final = 3
_END: Final = np.uint32(0x110000)  # after each string; not a code point
_LOW: Final = np.uint64(0xFFFFFFFF)
_FAR, _NEAR = 24, 12  # prefetch distances, in strings: of a slot, and of the string in it


class Interned:
    """Numbers strings, of fewer than 2**32 code points in all."""

    def __init__(self) -> None:
        self._slots = np.zeros((_FEWEST_SLOTS, 2), np.uint64)
        self._codes = np.empty(0, np.uint32)  # all strings, _END after each
        self._stops = array("q", [0])  # after each _END

    def __len__(self) -> int:
        return len(self._stops) - 1

    @property
    def characters(self) -> int:
        """Code points of all strings."""
        return self._stops[-1] - len(self)

    def numbers(self, given: Ragged) -> tuple[Numbers, Ragged]:
        """Return the number of each string, and the strings that were added, in order of their numbers."""
        self._make_room(given)
        before = len(self)
        numbers, stops = _numbers(
            given.offsets, given.values, self._slots, self._codes, before, self._stops[-1]
        )
        self._stops.frombytes(stops[1:].tobytes())
        return numbers, self._since(before)

    def known(self, given: Ragged) -> Numbers:
        """Return the number of each string, -1 for a string that is not in the table."""
        return _numbers(given.offsets, given.values, self._slots, self._codes, -1, 0)[0]

    def forget(self) -> None:
        """Remove all strings, and keep the memory for as many."""
        self._slots[:] = 0
        self._stops = array("q", [0])

    def strings(self) -> list[str]:
        """Return all strings, in order of their numbers."""
        return decode_texts(self._since(0))

    def _since(self, number: int) -> Ragged:
        """Return the strings that have this number or a greater one."""
        stops = np.array(self._stops[number:], np.int64)
        codes = self._codes[stops[0] : stops[-1]]
        return Ragged(stops - stops[0] - np.arange(len(stops)), codes[codes != _END])

    def _make_room(self, given: Ragged) -> None:
        """Grow the arrays: all given strings must fit, even if all are new, and half of the slots stay
        free."""
        filled, most = self._stops[-1] + len(given.values) + len(given), len(self) + len(given)
        if filled > len(self._codes):
            grown = np.empty(2 * filled, np.uint32)
            grown[: self._stops[-1]] = self._codes[: self._stops[-1]]
            self._codes = grown
        if 2 * most > len(self._slots):
            slots = np.zeros((1 << (2 * most).bit_length(), 2), np.uint64)
            _move(self._slots, slots)
            self._slots = slots


@compiled_helper
def _key_of(codes: Codes, start: int, stop: int) -> np.uint64:
    """Return the key of a string."""
    length = stop - start
    # The usual case, without a branch for each length: read three code points and mask the surplus.
    if length <= _LONGEST_KEY and start + _LONGEST_KEY <= len(codes):
        key = np.uint64(codes[start]) + np.uint64(1)
        key |= np.uint64(codes[start + 1]) + np.uint64(1) << np.uint64(21)
        key |= np.uint64(codes[start + 2]) + np.uint64(1) << np.uint64(42)
        return key & (np.uint64(1) << np.uint64(21 * length)) - np.uint64(1)
    if length <= _LONGEST_KEY:
        key = np.uint64(0)
        for place in range(start, stop):
            key |= np.uint64(codes[place]) + np.uint64(1) << np.uint64(21 * (place - start))
        return key
    state = np.uint64(0x9E3779B97F4A7C15)
    for place in range(start, stop):
        state = (state ^ np.uint64(codes[place])) * np.uint64(0xD6E8FEB86659FD93)
        state ^= state >> np.uint64(32)
    return state | np.uint64(1 << 63)


@compiled_helper
def _home(key: np.uint64, slots: Slots) -> int:
    """Return the slot at which the search for a key begins."""
    mixed = (key ^ key >> np.uint64(29)) * np.uint64(0xD6E8FEB86659FD93)
    return int(np.int64((mixed >> np.uint64(32)) & np.uint64(len(slots) - 1)))


@compiled_helper
def _are_same(given: Codes, start: int, stop: int, codes: Codes, place: int) -> bool:
    """Return whether given[start:stop] equals the string at a place of `codes`."""
    while start < stop and given[start] == codes[place]:
        start += 1
        place += 1
    return start == stop and codes[place] == _END


@compiled
def _move(slots: Slots, grown: Slots) -> None:
    """Copy all entries into a larger table."""
    for old in range(len(slots)):
        if old + _FAR < len(slots):
            prefetch(grown, 2 * _home(slots[old + _FAR, 0], grown))
        if slots[old, 1] > 0:
            slot = _home(slots[old, 0], grown)
            while grown[slot, 1] > 0:
                slot = (slot + 1) & (len(grown) - 1)
            grown[slot, 0], grown[slot, 1] = slots[old, 0], slots[old, 1]


@compiled
def _numbers(
    offsets: Numbers, given: Codes, slots: Slots, codes: Codes, known: int, filled: int
) -> tuple[Numbers, Numbers]:
    """Return the number of each string, and add new strings to `slots` and `codes`.

    Memory is prefetched: first the slot of a string, then the string that the slot refers to.

    Args:
        known: Strings in the table; -1 to add nothing, so that new strings have the number -1.
        filled: Entries of `codes` in use.

    Returns:
        The numbers; and `filled`, followed by the end of each new string in `codes`.
    """
    count = len(offsets) - 1
    numbers, keys = np.empty(count, np.int64), np.empty(count, np.uint64)
    stops = np.empty(count + 1, np.int64)
    stops[0] = filled
    new = 0
    for string in range(count):
        keys[string] = _key_of(given, offsets[string], offsets[string + 1])
        # Until the second loop, this is the slot where the search begins.
        numbers[string] = _home(keys[string], slots)
    for string in range(count):
        if string + _FAR < count:
            prefetch(slots, 2 * numbers[string + _FAR])
        if string + _NEAR < count and keys[string + _NEAR] >> np.uint64(63):
            prefetch(codes, np.int64(slots[numbers[string + _NEAR], 1] & _LOW))
        start, stop, key, slot = offsets[string], offsets[string + 1], keys[string], numbers[string]
        while slots[slot, 1] > 0:
            place = int(np.int64(slots[slot, 1] & _LOW))
            is_whole = not key >> np.uint64(63)
            if slots[slot, 0] == key and (is_whole or _are_same(given, start, stop, codes, place)):
                break
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot, 1] == 0 and known >= 0:
            new += 1
            slots[slot, 0], slots[slot, 1] = key, np.uint64(known + new) << np.uint64(32) | np.uint64(filled)
            codes[filled : filled + stop - start] = given[start:stop]
            filled += stop - start + 1
            codes[filled - 1] = _END
            stops[new] = filled
        numbers[string] = np.int64(slots[slot, 1] >> np.uint64(32)) - 1
    return numbers, stops[: new + 1].copy()
