"""Terms: what is left of a text's words for scoring, each with its TF-IDF weight as an integer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.idf import SCALE, Idf
from dedup_job.fingerprint.segment import Segmenter, broken_runs
from dedup_job.fingerprint.shingles import normalised
from dedup_job.fingerprint.simhash import term_hash

DROPPED = -1
LARGEST_TF = 1 << 16


@dataclass(frozen=True, slots=True)
class TermRule:
    """Which tokens count as terms, and how their weight grows with their frequency.

    features    "words", "words:N" (runs of N consecutive words) or "chars:N" (character N-grams)
    min_length  shortest term, in characters
    weight      "log": (1 + ln tf) x IDF, "raw": tf x IDF, "tf": tf, "uniform": 1
    top         only the heaviest so many terms of a text; 0 takes all
    """

    features: str = "words"
    min_length: int = 1
    weight: str = "log"
    top: int = 0


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """The distinct terms of n texts: text i owns entries offsets[i] .. offsets[i + 1].

    rows     int64, row of each term in the vocabulary
    weights  int64, fixed-point weight of each term, at least 1
    """

    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    weights: npt.NDArray[np.int64]


class Vocabulary(dict[str, int]):
    """Rows for terms, met once and remembered: hash and IDF by row, or DROPPED for what is no term."""

    def __init__(self, rule: TermRule, idf: Idf, stop_words: frozenset[str], bits: int) -> None:
        super().__init__()
        self._rule, self._idf, self._stop_words, self._bits = rule, idf, stop_words, bits
        self._hashes: list[tuple[int, ...]] = []
        self._idfs: list[int] = []

    def __missing__(self, token: str) -> int:
        row = self[token] = self._row(token)
        return row

    def _row(self, token: str) -> int:
        if len(token) < self._rule.min_length or token in self._stop_words:
            return DROPPED
        if not any(map(str.isalnum, token)):
            return DROPPED
        self._hashes.append(term_hash(token, self._bits))
        self._idfs.append(self._idf[token] if self._rule.weight in ("log", "raw") else SCALE)
        return len(self._idfs) - 1

    def hashes(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Return the hashes of these rows, uint64 (n, bits / 64)."""
        words = self._bits // 64
        return np.array([self._hashes[row] for row in rows.tolist()], np.uint64).reshape(-1, words)

    def idfs(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the fixed-point IDF of these rows."""
        return np.array([self._idfs[row] for row in rows.tolist()], np.int64)


class Tokenizer:
    """Text -> tokens, as the rule's features say."""

    def __init__(self, rule: TermRule, segmenter: Segmenter) -> None:
        kind, _, length = rule.features.partition(":")
        self._segmenter = segmenter
        self._length = int(length or 1)
        self._tokens = {"words": self._words, "chars": self._characters}[kind]

    def __call__(self, text: str) -> list[str]:
        """Return the tokens of a cleaned text, in lower case, in order, with repeats."""
        return self._tokens(text)

    def _words(self, text: str) -> list[str]:
        words = self._segmenter(broken_runs(text.lower()))
        if self._length == 1:
            return words
        words = [word for word in words if any(map(str.isalnum, word))]
        return [" ".join(words[i : i + self._length]) for i in range(len(words) - self._length + 1)]

    def _characters(self, text: str) -> list[str]:
        text = normalised(text)
        return [text[i : i + self._length] for i in range(len(text) - self._length + 1)]


@cache
def term_frequency_weights(weight: str) -> npt.NDArray[np.int64]:
    """Return the fixed-point weight of each term frequency from 0 to 65,535.

    >>> term_frequency_weights("log")[[1, 2, 3]].tolist()
    [1024, 1734, 2149]
    """
    if weight == "uniform":
        return np.full(LARGEST_TF, SCALE, np.int64)
    if weight == "log":
        return np.array([0, *(round((1 + log(tf)) * SCALE) for tf in range(1, LARGEST_TF))], np.int64)
    return np.arange(LARGEST_TF, dtype=np.int64) * SCALE


def weigh(token_rows: Sequence[Sequence[int]], vocabulary: Vocabulary, rule: TermRule) -> WeightedTerms:
    """Count and weigh the terms of n texts, each given as vocabulary rows of its tokens."""
    lengths = np.array([len(rows) for rows in token_rows], np.int64)
    rows = np.array([row for rows in token_rows for row in rows], np.int64)
    texts = np.repeat(np.arange(len(token_rows)), lengths)[rows != DROPPED]
    rows = rows[rows != DROPPED]
    size = int(rows.max(initial=0)) + 1
    keys, frequencies = np.unique(texts * size + rows, return_counts=True)
    texts, rows = np.divmod(keys, size)
    frequency_weights = term_frequency_weights(rule.weight)[np.minimum(frequencies, LARGEST_TF - 1)]
    weights = frequency_weights * _idf_column(vocabulary, rows)
    if rule.top:
        heaviest = _heaviest(texts, weights, vocabulary.hashes(rows)[:, 0], rule.top)
        texts, rows, weights = texts[heaviest], rows[heaviest], weights[heaviest]
    offsets = np.searchsorted(texts, np.arange(len(token_rows) + 1))
    return WeightedTerms(offsets.astype(np.int64), rows, weights)


def _idf_column(vocabulary: Vocabulary, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    distinct, where = np.unique(rows, return_inverse=True)
    return vocabulary.idfs(distinct)[where]


def _heaviest(
    texts: npt.NDArray[np.int64],
    weights: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.uint64],
    top: int,
) -> npt.NDArray[np.int64]:
    """Return the entries of each text's `top` heaviest terms; ties go to the smaller hash."""
    order = np.lexsort((hashes, -weights, texts))
    starts = np.searchsorted(texts, texts)
    rank = np.arange(len(texts)) - starts[order]
    return np.sort(order[rank < top])
