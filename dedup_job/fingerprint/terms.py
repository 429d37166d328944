"""Terms: what is left of a text's words for scoring, each with its TF-IDF weight as an integer.

The weight of a term is a function of its frequency in the text times a function of its IDF.  Both are damped
by default: undamped, a single frequent or rare word decides most bits, and one edit flips too many.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import isqrt, log

import numpy as np
import numpy.typing as npt

from dedup_job.compiled import compiled
from dedup_job.fingerprint.characters import offsets_of
from dedup_job.fingerprint.idf import SCALE, Idf
from dedup_job.fingerprint.simhash import term_hashes

DROPPED = -1  # the row of what is no term
SPACE = -2  # the row of a space, which is no term either
HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
LARGEST_TF = 1 << 16


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


class Vocabulary(dict[str, int]):
    """Rows for terms, met once and remembered: hash and IDF by row, or DROPPED for what is no term."""

    def __init__(self, rule: TermRule, idf: Idf, stop_words: frozenset[str], bits: int) -> None:
        super().__init__({" ": SPACE})
        self._rule, self._idf, self._stop_words, self._bits = rule, idf, stop_words, bits
        self._hashes = array("Q")
        self._idfs = array("q")

    def rows(self, tokens: Sequence[str]) -> list[int]:
        """Return the row of each token; those that were not met before are learned all at once."""
        self._learn([token for token in tokens if token not in self])
        return [self[token] for token in tokens]

    def _learn(self, tokens: Sequence[str]) -> None:
        terms = dict.fromkeys(filter(self._is_term, tokens))
        self.update(dict.fromkeys(tokens, DROPPED))
        self.update(zip(terms, range(self.size, self.size + len(terms)), strict=True))
        self._hashes.frombytes(term_hashes(terms, self._bits).tobytes())
        self._idfs.extend([rarity(self._idf[term], self._rule.idf) for term in terms])

    def _is_term(self, token: str) -> bool:
        if token in self._stop_words:
            return False
        if len(token) >= self._rule.min_length and (token.isalnum() or any(map(str.isalnum, token))):
            return True
        return self._rule.features == "words+han" and HAN.fullmatch(token) is not None

    @property
    def size(self) -> int:
        """Rows, each that of one term."""
        return len(self._idfs)

    def hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of every row, uint64 (n, bits / 64); to be let go before another term is met."""
        return np.frombuffer(self._hashes, np.uint64).reshape(-1, self._bits // 64)

    def idfs(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the fixed-point IDF of these rows."""
        return np.frombuffer(self._idfs, np.int64)[rows]


@cache
def rarity(idf: int, kind: str) -> int:
    """Return what a fixed-point IDF is worth, as a fixed-point number.

    >>> rarity(4 * 1024, "full"), rarity(4 * 1024, "sqrt"), rarity(4 * 1024, "none")
    (4096, 2048, 1024)
    """
    if kind == "none":
        return SCALE
    return isqrt(idf * SCALE) if kind == "sqrt" else idf


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


def weigh(token_rows: Sequence[Sequence[int]], vocabulary: Vocabulary, rule: TermRule) -> WeightedTerms:
    """Count and weigh the terms of n texts, each given as vocabulary rows of its tokens."""
    offsets = offsets_of(token_rows)
    rows = np.fromiter(chain.from_iterable(token_rows), np.int64, offsets[-1])
    return weighed(offsets, rows, vocabulary, rule)


def weighed(
    offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], vocabulary: Vocabulary, rule: TermRule
) -> WeightedTerms:
    """Count and weigh the terms of n texts; the tokens of text i are rows[offsets[i] : offsets[i + 1]]."""
    offsets, rows, frequencies = _counted(offsets, rows, vocabulary.size)
    distinct = np.diff(offsets)
    weights = term_frequency_weights(rule.tf)[frequencies] * vocabulary.idfs(rows)
    if rule.top:
        texts = np.repeat(np.arange(len(distinct)), distinct)
        heaviest = _heaviest(texts, weights, vocabulary.hashes()[rows, 0], rule.top)
        texts, rows, weights = texts[heaviest], rows[heaviest], weights[heaviest]
        offsets = np.searchsorted(texts, np.arange(len(distinct) + 1)).astype(np.int64)
    return WeightedTerms(offsets, rows, weights, distinct)


@compiled("Tuple((int64[::1], int64[::1], int64[::1]))(int64[::1], int64[::1], int64)")
def _counted(
    offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct rows of each text, below `size`, without DROPPED, and how often each occurs."""
    kept, counts = np.empty_like(rows), np.empty_like(rows)
    ends = np.zeros_like(offsets)
    places = np.full(size, -1, np.int64)  # where each row was last put in `kept`
    filled = 0
    for text in range(len(offsets) - 1):
        first = filled
        for entry in range(offsets[text], offsets[text + 1]):
            row = rows[entry]
            if row < 0:
                continue
            place = places[row]
            if place >= first:
                counts[place] = min(counts[place] + 1, LARGEST_TF - 1)
            else:
                kept[filled], counts[filled], places[row] = row, 1, filled
                filled += 1
        ends[text + 1] = filled
    return ends, kept[:filled].copy(), counts[:filled].copy()


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
