"""Split texts into tokens: words, runs of words, or runs of characters."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.interning import Interned, Numbers
from dedup_job.fingerprint.segment import Segmenter, pieces, prepare_for_segmenter
from dedup_job.fingerprint.terms import SPACE, TermRule, Vocabulary
from dedup_job.native.arrays import Ragged
from dedup_job.native.compiled import compiled
from dedup_job.text.characters import (
    CHINESE,
    CODE_POINT,
    LAST_CHINESE,
    decode_text,
    encode_texts,
    is_chinese,
    keep_letters_and_digits,
    offsets_of,
)

Rows = tuple[Numbers, Numbers]
"""Offsets, shape (n + 1,), and rows of a vocabulary."""


class Pieces:
    """Numbers pieces, and remembers the rows of each piece's words."""

    def __init__(self) -> None:
        self._interned = Interned()
        self.forget()

    def forget(self) -> None:
        """Remove all pieces."""
        self._interned.forget()
        self._stops = array("q", [0])
        self._rows = array("q")

    @property
    def characters(self) -> int:
        """Characters of all pieces."""
        return self._interned.characters

    def numbers(self, pieces: Ragged) -> tuple[Numbers, Ragged]:
        """Return the number of each piece, and the new pieces; `learn` must be called for the new ones."""
        return self._interned.numbers(pieces)

    def learn(self, ends: npt.NDArray[np.bool_], rows: Numbers) -> None:
        """Add the rows of the new pieces that `numbers` has returned.

        Args:
            ends: Whether a piece ends after each entry of `rows`.
            rows: The rows of the pieces' words; entries below 0 are no terms, and left out.
        """
        kept = rows >= 0
        self._stops.frombytes((len(self._rows) + np.cumsum(kept)[ends]).tobytes())
        self._rows.frombytes(rows[kept].tobytes())

    def rows(self, offsets: Numbers, numbers: Numbers) -> Rows:
        """Return the rows of each text; text i has the pieces numbers[offsets[i] : offsets[i + 1]]."""
        stops, rows = np.frombuffer(self._stops, np.int64), np.frombuffer(self._rows, np.int64)
        return _rows_of(offsets, numbers, stops, rows)


@compiled
def _rows_of(offsets: Numbers, numbers: Numbers, stops: Numbers, rows: Numbers) -> Rows:
    """Replace each piece by its rows: piece n has rows[stops[n] : stops[n + 1]].

    With stops [0, 2, 3] and rows [7, 8, 9], a text with the pieces [1, 0] has the rows [9, 7, 8].
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


UNKNOWN = -3  # the row of a character that is not in the table yet
AT_ONCE = 8_000  # characters that are segmented at once, so that their words stay in the processor's cache
MOST_CHARACTERS = 4_000_000  # of the remembered pieces

TokenRows = Callable[[Sequence[str], Ragged], Rows]
"""Returns the vocabulary rows of n texts' tokens: text i has rows[offsets[i] : offsets[i + 1]].

Args: the cleaned texts, and the same texts as `encode_lower_case` returns them. Tokens that are no terms have
a row below 0, or none. After an error it cannot be used again.
"""


class Tokenizer:
    """Splits a text into tokens, as the rule's features say."""

    def __init__(self, rule: TermRule, segmenter: Segmenter, stop_words: frozenset[str]) -> None:
        kind, _, length = rule.features.partition(":")
        self.segmenter = segmenter
        self._stop_words = stop_words
        self._length = int(length or 1)
        kinds = {"words": self._words, "words+han": self._words_and_han, "chars": self._characters}
        self._tokens = kinds[kind]

    def __call__(self, text: str) -> list[str]:
        """Return the tokens of a cleaned text, in lower case, in order, with repeats."""
        return self._tokens(text)

    def _words(self, text: str) -> list[str]:
        words = self.segmenter(prepare_for_segmenter(text.lower()))
        if self._length == 1:
            return words
        words = [word for word in words if word not in self._stop_words and any(map(str.isalnum, word))]
        return [" ".join(words[i : i + self._length]) for i in range(len(words) - self._length + 1)]

    def _words_and_han(self, text: str) -> list[str]:
        words = self.segmenter(prepare_for_segmenter(text.lower()))
        return words + CHINESE.findall(text)

    def _characters(self, text: str) -> list[str]:
        text = keep_letters_and_digits(text)
        return [text[i : i + self._length] for i in range(len(text) - self._length + 1)]


def token_rows(rule: TermRule, tokenizer: Tokenizer, vocabulary: Vocabulary) -> TokenRows:
    """Return the fastest function for the rule's features; it may return the tokens in another order."""
    if rule.features == "words":
        return WordRows(tokenizer.segmenter, vocabulary)
    if rule.features == "words+han":
        return WordAndHanRows(tokenizer.segmenter, vocabulary)
    return RunRows(tokenizer, vocabulary)


class RunRows:
    """Finds the rows of runs of words or characters, text by text, because runs cross the gaps."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        self._tokenizer, self._vocabulary = tokenizer, vocabulary

    def __call__(self, texts: Sequence[str], codes: Ragged) -> Rows:
        """Return the rows of the runs of each text."""
        tokens = list(map(self._tokenizer, texts))
        offsets = offsets_of(tokens)
        return offsets, self._vocabulary.rows(encode_texts(list(chain.from_iterable(tokens))))


class WordRows:
    """Finds the rows of words, piece by piece."""

    def __init__(self, segmenter: Segmenter, vocabulary: Vocabulary) -> None:
        self._segmenter, self._vocabulary = segmenter, vocabulary
        self._pieces = Pieces()

    def __call__(self, texts: Sequence[str], codes: Ragged) -> Rows:
        """Return the rows of the words of each text."""
        if self._pieces.characters > MOST_CHARACTERS:
            self._pieces.forget()
        offsets, found = pieces(codes)
        numbers, new = self._pieces.numbers(found)
        if len(new):
            rows = self._vocabulary.rows(self._words(new))
            ends = rows == SPACE
            # The spaces mark the pieces: without one of them, words would go to the wrong piece.
            if ends.sum() != len(new):
                raise ValueError("the segmenter lost a space")
            self._pieces.learn(ends, rows)
        return self._pieces.rows(offsets, numbers)

    def _words(self, found: Ragged) -> Ragged:
        """Return the words of some pieces, including the space after each piece."""
        text = decode_text(found.values)
        begins = found.offsets[np.searchsorted(found.offsets, np.arange(0, len(text), AT_ONCE))]
        parts = pairwise(dict.fromkeys([*begins.tolist(), len(text)]))
        words = [offsets_of(self._segmenter(text[start:stop]))[1:] + start for start, stop in parts]
        offsets = np.concatenate([[0], *words])
        if offsets[-1] != len(text):
            raise ValueError("the segmenter lost a character")
        return Ragged(offsets, found.values)


class WordAndHanRows:
    """Finds the rows of words, and of each Chinese character."""

    def __init__(self, segmenter: Segmenter, vocabulary: Vocabulary) -> None:
        self._words, self._vocabulary = WordRows(segmenter, vocabulary), vocabulary
        # The row of each code point.
        self._table = np.full(LAST_CHINESE + 1, UNKNOWN, np.int64)

    def __call__(self, texts: Sequence[str], codes: Ragged) -> Rows:
        """Return the rows of each text's words, followed by the rows of its Chinese characters."""
        offsets, found = _han(codes.offsets, codes.values)
        rows = self._table[found]
        unknown = np.unique(found[rows == UNKNOWN]).tolist()
        if unknown:
            self._table[unknown] = self._vocabulary.rows(encode_texts(list(map(chr, unknown))))
            rows = self._table[found]
        return _side_by_side(*self._words(texts, codes), offsets, rows)


@compiled
def _han(starts: npt.NDArray[np.int64], codes: npt.NDArray[np.uint32]) -> Rows:
    """Return the code points of the Chinese characters of each text, as the pattern CHINESE finds them."""
    found, ends = np.empty(len(codes), np.int64), np.zeros_like(starts)
    filled = 0
    for text in range(len(starts) - 1):
        for place in range(starts[text], starts[text + 1]):
            code = codes[place] & CODE_POINT
            if is_chinese(code):
                found[filled] = code
                filled += 1
        ends[text + 1] = filled
    return ends, found[:filled].copy()


@compiled
def _side_by_side(
    first_offsets: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    second_offsets: npt.NDArray[np.int64],
    second: npt.NDArray[np.int64],
) -> Rows:
    """Join two sets of rows text by text: each text's rows of the first set, then of the second."""
    offsets = first_offsets + second_offsets
    rows = np.empty(offsets[-1], np.int64)
    for text in range(len(offsets) - 1):
        middle = offsets[text] + first_offsets[text + 1] - first_offsets[text]
        rows[offsets[text] : middle] = first[first_offsets[text] : first_offsets[text + 1]]
        rows[middle : offsets[text + 1]] = second[second_offsets[text] : second_offsets[text + 1]]
    return offsets, rows
