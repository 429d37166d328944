"""Fill the segmenter's tables from jieba's files and the user's words."""

from __future__ import annotations

from functools import lru_cache
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from math import log
from pathlib import Path
from string import ascii_letters, digits
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.segment import Segmenter
from dedup_job.fingerprint.segmenter_trie import (
    FIRST_HAN,
    FIRST_SLOT,
    FORCED,
    HAN,
    LAST_HAN,
    PERCENT,
    PLAIN,
    PREFIX,
    SIGN,
    Codes,
    Floats,
    Tables,
    find_word,
    insert_words,
)
from dedup_job.text.code_points import encode_text, encode_texts

UserWords = tuple[tuple[str, int | None], ...]
"""Words with their frequency; None for a frequency that is just great enough to keep the word whole."""

IMPOSSIBLE: Final = -3.14e100  # jieba's logarithm of 0

_FEWEST_SLOTS: Final = 1 << 20
_MOST_SLOTS: Final = 1 << 23  # a node's number has 24 bits
_LOAD: Final = 0.6


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


@lru_cache(maxsize=2)
def load_tables(user_words: UserWords) -> Tables:
    """Return the tables for jieba's dictionary and these words, which are added in order.

    Raises:
        OSError: If a file of jieba cannot be read.
        ValueError: If there are too many user words.
    """
    return _Builder(user_words).tables


class _Builder:
    """Builds the tables: first those of jieba's dictionary, then one user word after the other."""

    def __init__(self, user_words: UserWords) -> None:
        path = jieba_folder()
        offsets, codes, frequencies = _parse_words((path / "dict.txt").read_text("utf-8"))
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
            filled = insert_words(offsets, codes, values, kinds, singles, slots, int(_LOAD * size) - needed)
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
            value |= FORCED
        offsets = np.array([0, len(codes)])
        insert_words(offsets, codes, value, tables.kinds, tables.singles, tables.slots, len(tables.slots))

    def _suggest_frequency(self, word: str) -> int:
        """Return a frequency that keeps a word whole, like jieba's `suggest_freq`."""
        share = 1.0
        for part in Segmenter(self.tables._replace(scores=self._scores()), hmm=False)(word):
            share *= self._frequency(part) / self._total
        return max(int(share * self._total) + 1, self._frequency(word))

    def _frequency(self, word: str) -> int:
        """Return a word's frequency: 0 for the prefix of a word, and 1 for anything else."""
        index = find_word(encode_text(word), self.tables.singles, self.tables.slots)
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


def _parse_words(text: str) -> tuple[npt.NDArray[np.int64], Codes, npt.NDArray[np.int64]]:
    """Read the lines `word frequency tag` of jieba's dictionary.

    Returns:
        The offsets of the words' code points, the code points, and the frequencies.
    """
    fields = text.split()
    words = encode_texts(fields[::3])
    return words.offsets, words.values, np.array(fields[1::3], np.int64)
