"""The tables of the segmenter: jieba's dictionary with the user's words, and jieba's hidden Markov model.

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

from collections.abc import Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from math import log
from pathlib import Path
from string import ascii_letters, digits
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled, compiled_helper
from dedup_job.text.characters import encode_text

Codes = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Slots = npt.NDArray[np.uint64]

UserWords = Sequence[tuple[str, int | None]]
"""Words with their frequency; None for a frequency that is just great enough to keep the word whole."""

FIRST_HAN: Final = 0x4E00
LAST_HAN: Final = 0x9FD5
"""The Chinese characters that a word can have are FIRST_HAN to this one; jieba knows no others."""

BEGIN, MIDDLE, END, SINGLE = range(4)  # states of the Markov model: the place of a character in its word
IMPOSSIBLE: Final = -3.14e100  # jieba's logarithm of 0

# Indexes of scores; those of words are greater.
UNKNOWN, PREFIX = 0, 1
# Kinds of characters. LETTER and PLAIN are ASCII letters and digits; a PLAIN one begins no longer word.
OTHER, HAN, PERCENT, SIGN, LETTER, PLAIN = range(6)

FIRST_SLOT: Final = 1 << 16
_FEWEST_SLOTS: Final = 1 << 20
_MOST_SLOTS: Final = 1 << 23  # a node's number has 24 bits
_LOAD: Final = 0.6
_KEY: Final = np.uint64((1 << 40) - 1)
_SCORE_SHIFT: Final = np.uint64(40)
_SCORE: Final = np.uint64((1 << 22) - 1)
_LONGER: Final = np.uint64(1 << 62)
_FORCED: Final = np.uint64(1 << 23)  # after the shift
_SPACE, _NEWLINE, _ZERO, _NINE = b" \n09"


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


def jieba_folder() -> Path:
    """Return the folder of jieba's files.

    Raises:
        FileNotFoundError: If jieba is not installed.
    """
    # Not imported: that takes 0.15 s.
    package = find_spec("jieba")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError("jieba is not installed")
    return Path(package.submodule_search_locations[0])


def load_tables(user_words: UserWords) -> Tables:
    """Return the tables for jieba's dictionary and these words, which are added in order.

    Raises:
        OSError: If a file of jieba cannot be read.
        ValueError: If there are too many user words.
    """
    return _Builder(user_words).tables if user_words else _load_shared_tables()


@cache
def _load_shared_tables() -> Tables:
    return _Builder(()).tables


class _Builder:
    """Builds the tables: first those of jieba's dictionary, then one user word after the other."""

    def __init__(self, user_words: UserWords) -> None:
        path = jieba_folder()
        offsets, codes, frequencies = _parse_words(np.frombuffer((path / "dict.txt").read_bytes(), np.uint8))
        self._total = int(frequencies.sum())
        distinct, indexes = np.unique(frequencies, return_inverse=True)
        self._frequencies: list[int] = [1, 0, *distinct.tolist()]  # by index
        self._indexes = {
            frequency: index for index, frequency in enumerate(self._frequencies) if index >= PREFIX
        }
        # Python's logarithm, as in jieba: numpy's may differ in the last bit, and so decide ties otherwise.
        self._logs = np.array([log(frequency or 1) for frequency in self._frequencies])
        values = (indexes + PREFIX + 1).astype(np.uint64)
        kinds = _make_kinds()
        # Slots number the nodes and cannot be moved, so the user's words need their room from the start.
        needed = sum(len(word) for word, _ in user_words)
        size, filled = _FEWEST_SLOTS, -1
        while filled < 0:
            if size > _MOST_SLOTS:
                raise ValueError("there are too many user words")
            # Not `zeros`: numpy asks for large memory pages only if it fills the array. Lookups in large
            # pages take a tenth less time.
            singles, slots = np.zeros(FIRST_SLOT, np.int32), np.full(size, 0, np.uint64)
            filled = _insert(offsets, codes, values, kinds, singles, slots, int(_LOAD * size) - needed)
            size *= 2
        model = _read_markov_model(path / "finalseg")
        self.tables = Tables(kinds, singles, slots, self._scores(), *model, has_forced=False)
        for word, frequency in user_words:
            self._add(word, self._suggest_frequency(word) if frequency is None else frequency)
        has_forced = any(frequency == 0 for _, frequency in user_words)
        self.tables = self.tables._replace(scores=self._scores(), has_forced=has_forced)

    def _scores(self) -> Floats:
        return self._logs - log(self._total)

    def _add(self, word: str, frequency: int) -> None:
        """Add a word of the user, like jieba's `add_word`."""
        if frequency not in self._indexes:
            self._indexes[frequency] = len(self._frequencies)
            self._frequencies.append(frequency)
            self._logs = np.append(self._logs, log(frequency))
        self._total += frequency
        codes, tables = encode_text(word), self.tables
        value = np.array([self._indexes[frequency]], np.uint64)
        if frequency == 0 and len(codes) > 1:
            value |= _FORCED
        offsets = np.array([0, len(codes)])
        _insert(offsets, codes, value, tables.kinds, tables.singles, tables.slots, len(tables.slots))

    def _suggest_frequency(self, word: str) -> int:
        """Return a frequency that keeps a word whole, like jieba's `suggest_freq`."""
        # Imported here, because the segmenter is made of these tables.
        from dedup_job.fingerprint.segment import Segmenter

        share = 1.0
        for part in Segmenter(self.tables._replace(scores=self._scores()), hmm=False)(word):
            share *= self._frequency(part) / self._total
        return max(int(share * self._total) + 1, self._frequency(word))

    def _frequency(self, word: str) -> int:
        """Return a word's frequency: 0 for the prefix of a word, and 1 for anything else."""
        index = _find_word(encode_text(word), self.tables.singles, self.tables.slots)
        return self._frequencies[index]


def _make_kinds() -> npt.NDArray[np.uint8]:
    """Return the kind of each character."""
    kinds = np.zeros(FIRST_SLOT, np.uint8)
    kinds[FIRST_HAN : LAST_HAN + 1] = HAN
    for characters, kind in ((ascii_letters + digits, PLAIN), ("%", PERCENT), ("+#&", SIGN)):
        kinds[list(map(ord, characters))] = kind
    return kinds


def _read_markov_model(folder: Path) -> tuple[Floats, Floats, Floats]:
    """Return emissions, starts and transitions: see `Tables`."""
    states = "BMES"
    tables = {}
    for name in ("start", "trans", "emit"):
        # The module alone: importing it as `jieba.finalseg.prob_emit` would import all of jieba.
        loader = SourceFileLoader(f"jieba_{name}", str(folder / f"prob_{name}.py"))
        module = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
        loader.exec_module(module)
        tables[name] = module.P
    emissions = np.full((LAST_HAN + 1 - FIRST_HAN, len(states)), IMPOSSIBLE)
    for column, state in enumerate(states):
        codes = np.fromiter(map(ord, tables["emit"][state]), np.int64)
        values = np.fromiter(tables["emit"][state].values(), np.float64)
        is_han = (codes >= FIRST_HAN) & (codes <= LAST_HAN)
        emissions[codes[is_han] - FIRST_HAN, column] = values[is_han]
    starts = np.array([tables["start"][state] for state in states])
    transitions = [[tables["trans"][state].get(after, IMPOSSIBLE) for after in states] for state in states]
    return emissions, starts, np.array(transitions)


@compiled
def _parse_words(raw: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], Codes, npt.NDArray[np.int64]]:
    """Read the lines `word frequency tag` of jieba's dictionary, in UTF-8.

    Returns:
        The offsets of the words' code points, the code points, and the frequencies.
    """
    lines = 1
    for octet in raw:
        lines += octet == _NEWLINE
    offsets, frequencies = np.zeros(lines + 1, np.int64), np.zeros(lines, np.int64)
    codes = np.empty(len(raw), np.uint32)
    filled = words = place = 0
    while place < len(raw):
        while place < len(raw) and raw[place] != _SPACE:
            # The number of ones at the top of the first byte of a character is its length: 0b1110xxxx begins
            # one of three bytes. Each byte after it has six bits of the code point, 0b10xxxxxx.
            first, length = np.uint32(raw[place]), 1
            code = first
            if first >= 0xC0:
                length = int(2 + (first >= 0xE0) + (first >= 0xF0))
                code = first & np.uint32((1 << (7 - length)) - 1)
            for after in range(1, length):
                code = code << np.uint32(6) | np.uint32(raw[place + after] & 0x3F)
            codes[filled] = code
            filled += 1
            place += length
        place += 1
        while place < len(raw) and 48 <= raw[place] <= 57:
            frequencies[words] = 10 * frequencies[words] + raw[place] - 48
            place += 1
        while place < len(raw) and raw[place] != _NEWLINE:
            place += 1
        place += 1
        words += 1
        offsets[words] = filled
    return offsets[: words + 1].copy(), codes[:filled].copy(), frequencies[:words].copy()


@compiled
def _insert(
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
        values: The index of each word's frequency, and the bit _FORCED.
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
        slots[slot] = values[word] << _SCORE_SHIFT | slots[slot] & (_KEY | _LONGER | _FORCED << _SCORE_SHIFT)
    return filled


@compiled
def _find_word(codes: Codes, singles: npt.NDArray[np.int32], slots: Slots) -> int:
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
    return bool(entry >> _SCORE_SHIFT >= _FORCED)


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
