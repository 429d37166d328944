"""The tables of the segmenter: jieba's dictionary with the user's words, and jieba's hidden Markov model.

`jieba_to_segmenter_trie.py` fills them; here is their layout, and how compiled code adds and finds words.

All words and their prefixes are nodes of a trie. The number of a node that is a single character is its code
point. Longer prefixes are in a hash table with open addressing, and the number of such a node is its slot
plus 65,536. A slot has 64 bits (0: free):

    bits 0 to 15     the last character of the prefix
    bits 16 to 39    the number of the node of all characters before it
    bits 40 to 61    the index of the word's frequency in `Tables.scores`; PREFIX if it is no word
    bit 62           set if the table has longer prefixes that begin with this one
    bit 63           set if the user's frequency of the word is 0: it is always split into characters

If 数据 (U+6570, U+636E) has slot 7, its node has the number 65543, and the lower 40 bits of the slot of
数据库 (U+5E93) are 65543 << 16 | 0x5E93.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.numba_compile import compiled, compiled_helper

Codes = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Slots = npt.NDArray[np.uint64]

FIRST_HAN: Final = 0x4E00
LAST_HAN: Final = 0x9FD5
"""The Chinese characters that a word can have are FIRST_HAN to this one; jieba knows no others."""

BEGIN, MIDDLE, END, SINGLE = range(4)  # states of the Markov model: the place of a character in its word

# Indexes of scores; those of words are greater.
UNKNOWN, PREFIX = 0, 1
# Kinds of characters. LETTER and PLAIN are ASCII letters and digits; a PLAIN one begins no longer word.
OTHER, HAN, PERCENT, SIGN, LETTER, PLAIN = range(6)

FIRST_SLOT: Final = 1 << 16
_KEY: Final = np.uint64((1 << 40) - 1)
_SCORE_SHIFT: Final = np.uint64(40)
_SCORE: Final = np.uint64((1 << 22) - 1)
_LONGER: Final = np.uint64(1 << 62)
FORCED: Final = np.uint64(1 << 23)  # after the shift


class Tables(NamedTuple):
    """What compiled code needs to split texts into words.

    Attributes:
        kinds: uint8 (65536,), by code point: OTHER, HAN, PERCENT, SIGN, LETTER or PLAIN.
        singles: int32 (65536,), by code point: the index of the character's score.
        slots: uint64, the nodes of longer prefixes.
        scores: float64, ln(frequency / sum of all frequencies). The first two are for characters without an
            entry (UNKNOWN) and for prefixes that are no words (PREFIX): jieba counts both as frequency 1.
        emissions: float64 (n, 4), by code point less FIRST_HAN and state: ln P(character | state).
        starts: float64 (4,), by state: ln P(first state).
        transitions: float64 (4, 4): ln P(next state | state).
        has_forced: Whether a word must be split into its characters.
    """

    kinds: npt.NDArray[np.uint8]
    singles: npt.NDArray[np.int32]
    slots: npt.NDArray[np.uint64]
    scores: npt.NDArray[np.float64]
    emissions: npt.NDArray[np.float64]
    starts: npt.NDArray[np.float64]
    transitions: npt.NDArray[np.float64]
    has_forced: bool


@compiled
def insert_words(
    offsets: Numbers,
    codes: Codes,
    values: Slots,
    kinds: npt.NDArray[np.uint8],
    singles: npt.NDArray[np.int32],
    slots: Slots,
    room: int,
) -> int:
    """Insert words, but for those with a character of the kind OTHER: texts are split at these first.

    Args:
        values: The index of each word's frequency, and the bit FORCED.
        room: Slots that may be filled.

    Returns:
        The number of slots that were filled, -1 if there was no room.
    """
    filled = 0
    for word in range(len(offsets) - 1):
        start, stop = offsets[word], offsets[word + 1]
        is_findable = stop > start
        for place in range(start, stop):
            is_findable &= codes[place] < FIRST_SLOT and kinds[codes[place] & (FIRST_SLOT - 1)] != OTHER
        if not is_findable:
            continue
        first = codes[start]
        if stop == start + 1:
            singles[first] = values[word]
            continue
        singles[first] = max(singles[first], PREFIX)
        kinds[first] = min(kinds[first], LETTER)
        node = int(np.int64(first))
        for place in range(start + 1, stop):
            if node >= FIRST_SLOT:
                slots[node - FIRST_SLOT] |= _LONGER
            slot = find_slot(node, codes[place], slots)
            if slots[slot] == 0:
                filled += 1
                if filled > room:
                    return -1
                slots[slot] = np.uint64(PREFIX) << _SCORE_SHIFT | _key_of(node, codes[place])
            node = slot + FIRST_SLOT
        # A word that was once forced apart stays so, as in jieba.
        slots[slot] = values[word] << _SCORE_SHIFT | slots[slot] & (_KEY | _LONGER | FORCED << _SCORE_SHIFT)
    return filled


@compiled
def find_word(codes: Codes, singles: npt.NDArray[np.int32], slots: Slots) -> int:
    """Return the index of a word's score."""
    if len(codes) == 0 or codes.max() >= FIRST_SLOT:
        return UNKNOWN
    if len(codes) == 1:
        return int(singles[codes[0]])
    return score_index(find_entry(codes, 0, len(codes), slots))


@compiled_helper
def _key_of(node: int, code: int) -> np.uint64:
    """Return the lower 40 bits of the slot for a node's child."""
    return np.uint64(node) << np.uint64(16) | np.uint64(code)


@compiled_helper
def home_of(node: int, code: int, slots: Slots) -> int:
    """Return the slot at which the search for a node's child begins."""
    mixed = _key_of(node, code) * np.uint64(0x9E3779B97F4A7C15)
    return int(np.int64((mixed >> np.uint64(32)) & np.uint64(len(slots) - 1)))


@compiled_helper
def find_slot(node: int, code: int, slots: Slots) -> int:
    """Return the slot of a node's child, or the free slot for it; the child's number is FIRST_SLOT more."""
    key, slot = _key_of(node, code), home_of(node, code, slots)
    while slots[slot] != 0 and slots[slot] & _KEY != key:
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@compiled_helper
def score_index(entry: np.uint64) -> int:
    """Return the index of the score in an entry of `Tables.slots`; UNKNOWN for a free slot."""
    return int(np.int64(entry >> _SCORE_SHIFT & _SCORE))


@compiled_helper
def is_forced(entry: np.uint64) -> bool:
    """Return whether an entry is a word that must be split into its characters."""
    return bool(entry >> _SCORE_SHIFT >= FORCED)


@compiled_helper
def has_longer(entry: np.uint64) -> bool:
    """Return whether the table has longer prefixes that begin with the prefix of an entry."""
    return bool(entry & _LONGER)


@compiled_helper
def find_entry(codes: Codes, start: int, stop: int, slots: Slots) -> np.uint64:
    """Return the entry of a word of two or more characters; 0 if there is none."""
    node, entry = int(np.int64(codes[start])), np.uint64(0)
    for place in range(start + 1, stop):
        slot = find_slot(node, codes[place], slots)
        entry = slots[slot]
        if entry == 0:
            break
        node = slot + FIRST_SLOT
    return entry
