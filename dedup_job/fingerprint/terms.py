"""Terms: what is left of a text's words for scoring, each with its TF-IDF weight as an integer.

The weight of a term is a function of its frequency in the text times a function of its IDF.  Both are damped
by default: undamped, a single frequent or rare word decides most bits, and one edit flips too many.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cache
from math import isqrt, log

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.idf import SCALE, Idf
from dedup_job.fingerprint.interning import Interned
from dedup_job.fingerprint.simhash import term_hashes
from dedup_job.native.compiled import compiled
from dedup_job.native.ragged import Ragged
from dedup_job.text.characters import is_chinese, joined, letters

DROPPED = -1  # the row of what is no term
SPACE = -2  # the row of a space, which is no term either
LARGEST_TF = 1 << 16
EXACT = 1 << 42  # below it the root of 1,024 times a number is right in floating point, too


@dataclass(frozen=True, slots=True)
class TermRule:
    """Which tokens count as terms, and how their weight grows with their frequency.

    features    "words"; "words+han" (words, and each Chinese character: a text of few words then still
                has many terms); "words:N" (runs of N consecutive words); "chars:N" (character N-grams)
    min_length  shortest word, in characters
    tf          what frequency is worth: "log" is 1 + ln tf, "raw" is tf, "binary" is 1
    idf         what rarity is worth: "full" is IDF, "sqrt" its square root, "none" is 1
    top         only the heaviest so many terms of a text; 0 takes all
    """

    features: str = "words+han"
    min_length: int = 2
    tf: str = "log"
    idf: str = "sqrt"
    top: int = 0


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """The distinct terms of n texts: text i owns entries offsets[i] .. offsets[i + 1].

    rows      int64, row of each term in the vocabulary
    weights   int64, fixed-point weight of each term, at least 1
    distinct  int64 (n,), how many distinct terms each text had before the heaviest were taken
    """

    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    weights: npt.NDArray[np.int64]
    distinct: npt.NDArray[np.int64]


class Vocabulary:
    """Rows for terms, met once and remembered: hash and IDF by row, or DROPPED for what is no term."""

    def __init__(self, rule: TermRule, idf: Idf, stop_words: frozenset[str], bits: int) -> None:
        self._rule, self._idf, self._bits = rule, idf, bits
        self._tokens = Interned()
        self._rows = array("q")  # by the number of a token
        self._hashes = array("Q")
        self._idfs = array("q")
        known, _ = self._tokens.numbers(joined([" ", *stop_words]))
        self._rows.extend([SPACE] + [DROPPED] * (len(known) - 1))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def characters(self) -> int:
        """Characters of all tokens that were met."""
        return self._tokens.characters

    def rows(self, tokens: Ragged) -> npt.NDArray[np.int64]:
        """Return the row of each token; those that were not met before are learned all at once."""
        numbers, new = self._tokens.numbers(tokens)
        if len(new):
            self._learn(new)
        return np.frombuffer(self._rows, np.int64)[numbers]

    def _learn(self, tokens: Ragged) -> None:
        is_han = self._rule.features == "words+han"
        is_term = _are_terms(tokens.offsets, tokens.values, letters(), self._rule.min_length, is_han)
        rows = np.where(is_term, self.size - 1 + np.cumsum(is_term), DROPPED)
        self._rows.frombytes(rows.tobytes())
        terms = tokens.take(np.flatnonzero(is_term))
        self._hashes.frombytes(term_hashes(terms, self._bits).tobytes())
        self._idfs.frombytes(rarities(self._idf(terms), self._rule.idf).tobytes())

    @property
    def size(self) -> int:
        """Rows, each that of one term."""
        return len(self._idfs)

    def terms(self) -> list[str]:
        """Return the term of every row."""
        tokens = zip(self._tokens.strings(), self._rows, strict=True)
        return [token for token, row in tokens if row >= 0]

    def hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of every row, uint64 (n, bits / 64); to be let go before another term is met."""
        return np.frombuffer(self._hashes, np.uint64).reshape(-1, self._bits // 64)

    def idfs(self) -> npt.NDArray[np.int64]:
        """Return the fixed-point IDF of every row; to be let go before another term is met."""
        return np.frombuffer(self._idfs, np.int64)


@compiled
def _are_terms(
    offsets: npt.NDArray[np.int64],
    codes: npt.NDArray[np.uint32],
    letters: npt.NDArray[np.bool_],
    min_length: int,
    is_han: bool,
) -> npt.NDArray[np.bool_]:
    """Tell which tokens are terms: a letter or digit in so many characters, or a Chinese one alone."""
    are_terms = np.zeros(len(offsets) - 1, np.bool_)
    for token in range(len(are_terms)):
        start, stop = offsets[token], offsets[token + 1]
        if is_han and stop == start + 1 and is_chinese(codes[start]):
            are_terms[token] = True
        elif stop - start >= min_length:
            for place in range(start, stop):
                are_terms[token] |= letters[codes[place]]
    return are_terms


def rarities(idfs: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.int64]:
    """Return what each fixed-point IDF is worth, as a fixed-point number, rounded down.

    >>> [rarities(np.array([4 * 1024]), kind).item() for kind in ("full", "sqrt", "none")]
    [4096, 2048, 1024]
    """
    if kind == "none":
        return np.full_like(idfs, SCALE)
    if kind == "full":
        return idfs
    if idfs.max(initial=0) < EXACT:
        return np.sqrt(idfs * SCALE).astype(np.int64)
    return np.array([isqrt(idf * SCALE) for idf in idfs.tolist()], np.int64)


@cache
def term_frequency_weights(tf: str) -> npt.NDArray[np.int64]:
    """Return what each term frequency from 0 to 65,535 is worth, fixed-point.

    >>> term_frequency_weights("log")[[1, 2, 3]].tolist()
    [1024, 1734, 2149]
    """
    if tf == "binary":
        return np.full(LARGEST_TF, SCALE, np.int64)
    if tf == "log":
        return np.array([0, *(round((1 + log(count)) * SCALE) for count in range(1, LARGEST_TF))], np.int64)
    return np.arange(LARGEST_TF, dtype=np.int64) * SCALE


def weigh(
    offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], vocabulary: Vocabulary, rule: TermRule
) -> WeightedTerms:
    """Count and weigh the terms of n texts; the tokens of text i are rows[offsets[i] : offsets[i + 1]]."""
    offsets, rows, weights = _weighed(offsets, rows, vocabulary.idfs(), term_frequency_weights(rule.tf))
    distinct = np.diff(offsets)
    if rule.top:
        texts = np.repeat(np.arange(len(distinct)), distinct)
        heaviest = _heaviest(texts, weights, vocabulary.hashes()[rows, 0], rule.top)
        texts, rows, weights = texts[heaviest], rows[heaviest], weights[heaviest]
        offsets = np.searchsorted(texts, np.arange(len(distinct) + 1)).astype(np.int64)
    return WeightedTerms(offsets, rows, weights, distinct)


@compiled
def _weighed(
    offsets: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    idfs: npt.NDArray[np.int64],
    tf_weights: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct rows of each text, without DROPPED, and their weights: by frequency, times IDF."""
    kept, weights = np.empty_like(rows), np.empty_like(rows)
    ends = np.zeros_like(offsets)
    places = np.full(len(idfs), -1, np.int32)  # where each row was last put in `kept`
    filled = 0
    for text in range(len(offsets) - 1):
        first = filled
        for entry in range(offsets[text], offsets[text + 1]):
            row = rows[entry]
            if row < 0:
                continue
            place = places[row]
            if place >= first:
                weights[place] = min(weights[place] + 1, LARGEST_TF - 1)  # for now, how often it occurs
            else:
                kept[filled], weights[filled], places[row] = row, 1, filled
                filled += 1
        for place in range(first, filled):
            weights[place] = tf_weights[weights[place]] * idfs[kept[place]]
        ends[text + 1] = filled
    return ends, kept[:filled].copy(), weights[:filled].copy()


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
