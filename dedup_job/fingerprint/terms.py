"""Terms: the tokens of a text that count, each with its TF-IDF weight as an integer.

The weight of a term is a function of its frequency in the text times a function of its IDF. Both functions
are damped by default: otherwise a single frequent or rare word decides most bits of a fingerprint, and
editing it flips too many of them.
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
from dedup_job.native.arrays import Ragged
from dedup_job.native.compiled import compiled
from dedup_job.text.characters import encode_texts, is_chinese, letter_table

DROPPED = -1  # the row of a token that is no term
SPACE = -2  # the row of a space, which is no term either
TF_LIMIT = 1 << 16  # greater term frequencies count as TF_LIMIT - 1
# Below it 1,024 times a number is less than 2**52, and the floor of its root is exact in floating point.
EXACT_SQRT_LIMIT = 1 << 42


@dataclass(frozen=True, slots=True)
class TermRule:
    """Which tokens count as terms, and how their weight depends on frequency and IDF.

    Attributes:
        features: "words"; "words+han" (words, and each Chinese character: a text of few words then still has
            many terms); "words:N" (runs of N consecutive words); "chars:N" (runs of N characters).
        min_length: Of a word, in characters.
        tf: The weight of a term frequency: "log" is 1 + ln tf, "raw" is tf, "binary" is 1.
        idf: The weight of an IDF: "full" is the IDF, "sqrt" its square root, "none" is 1.
        top: Use only this number of terms of a text, the heaviest; 0 uses all.
    """

    features: str = "words+han"
    min_length: int = 2
    tf: str = "log"
    idf: str = "sqrt"
    top: int = 0


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """The distinct terms of n texts, one after the other.

    Attributes:
        offsets: int64 (n + 1,): text i has the entries offsets[i] to offsets[i + 1] of `rows` and `weights`.
        rows: int64, the row of each term in the vocabulary.
        weights: int64, the fixed-point weight of each term, at least 1.
        distinct: int64 (n,), the number of distinct terms of each text, before `TermRule.top` applies.
    """

    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    weights: npt.NDArray[np.int64]
    distinct: npt.NDArray[np.int64]


class Vocabulary:
    """Numbers terms by row, with the hash and the IDF of each row.

    It also remembers tokens that are no terms, with the row DROPPED. Tokens are added when they are first
    asked for.
    """

    def __init__(self, rule: TermRule, idf: Idf, stop_words: frozenset[str], bits: int) -> None:
        self._rule, self._idf, self._bits = rule, idf, bits
        self._tokens = Interned()
        # By the number of a token, which is not its row: tokens that are no terms have numbers, too.
        self._rows = array("q")
        self._hashes = array("Q")
        self._idfs = array("q")
        known, _ = self._tokens.numbers(encode_texts([" ", *stop_words]))
        self._rows.extend([SPACE] + [DROPPED] * (len(known) - 1))

    def __len__(self) -> int:
        """Return the number of known tokens, including those that are no terms."""
        return len(self._rows)

    @property
    def characters(self) -> int:
        """Characters of all known tokens."""
        return self._tokens.characters

    def rows(self, tokens: Ragged) -> npt.NDArray[np.int64]:
        """Return the row of each token, int64; new tokens are added."""
        numbers, new = self._tokens.numbers(tokens)
        if len(new):
            self._add(new)
        return np.frombuffer(self._rows, np.int64)[numbers]

    def _add(self, tokens: Ragged) -> None:
        """Add distinct tokens that are not known yet."""
        is_han = self._rule.features == "words+han"
        is_term = _are_terms(tokens.offsets, tokens.values, letter_table(), self._rule.min_length, is_han)
        rows = np.where(is_term, self.size - 1 + np.cumsum(is_term), DROPPED)
        self._rows.frombytes(rows.tobytes())
        terms = tokens.take(np.flatnonzero(is_term))
        self._hashes.frombytes(term_hashes(terms, self._bits).tobytes())
        self._idfs.frombytes(idf_weights(self._idf(terms), self._rule.idf).tobytes())

    @property
    def size(self) -> int:
        """The number of rows, one for each term."""
        return len(self._idfs)

    def terms(self) -> list[str]:
        """Return the terms in the order of their rows."""
        tokens = zip(self._tokens.strings(), self._rows, strict=True)
        return [token for token, row in tokens if row >= 0]

    def hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of every row, uint64 (n, bits / 64).

        The array shares memory with the vocabulary; drop it before new tokens are added, which raises
        BufferError otherwise.
        """
        return np.frombuffer(self._hashes, np.uint64).reshape(-1, self._bits // 64)

    def idfs(self) -> npt.NDArray[np.int64]:
        """Return the weighted fixed-point IDF of every row, int64; drop the array like that of `hashes`."""
        return np.frombuffer(self._idfs, np.int64)


@compiled
def _are_terms(
    offsets: npt.NDArray[np.int64],
    codes: npt.NDArray[np.uint32],
    letters: npt.NDArray[np.bool_],
    min_length: int,
    is_han: bool,
) -> npt.NDArray[np.bool_]:
    """Return which tokens are terms: those that are long enough and have a letter or digit.

    Args:
        letters: Of `letter_table`.
        is_han: Whether a single Chinese character is a term, too.
    """
    are_terms = np.zeros(len(offsets) - 1, np.bool_)
    for token in range(len(are_terms)):
        start, stop = offsets[token], offsets[token + 1]
        if is_han and stop == start + 1 and is_chinese(codes[start]):
            are_terms[token] = True
        elif stop - start >= min_length:
            for place in range(start, stop):
                are_terms[token] |= letters[codes[place]]
    return are_terms


def idf_weights(idfs: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.int64]:
    """Return the weight of each fixed-point IDF, in fixed point, rounded down.

    >>> [idf_weights(np.array([4 * 1024]), kind).item() for kind in ("full", "sqrt", "none")]
    [4096, 2048, 1024]
    """
    if kind == "none":
        return np.full_like(idfs, SCALE)
    if kind == "full":
        return idfs
    if idfs.max(initial=0) < EXACT_SQRT_LIMIT:
        return np.sqrt(idfs * SCALE).astype(np.int64)
    return np.array([isqrt(idf * SCALE) for idf in idfs.tolist()], np.int64)


@cache
def term_frequency_weights(tf: str) -> npt.NDArray[np.int64]:
    """Return the weight of each term frequency from 0 to 65,535, in fixed point.

    >>> term_frequency_weights("log")[[1, 2, 3]].tolist()
    [1024, 1734, 2149]
    """
    if tf == "binary":
        return np.full(TF_LIMIT, SCALE, np.int64)
    if tf == "log":
        return np.array([0, *(round((1 + log(count)) * SCALE) for count in range(1, TF_LIMIT))], np.int64)
    return np.arange(TF_LIMIT, dtype=np.int64) * SCALE


def weigh_terms(
    offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], vocabulary: Vocabulary, rule: TermRule
) -> WeightedTerms:
    """Count and weigh the terms of n texts.

    Args:
        offsets: int64 (n + 1,): the tokens of text i are rows[offsets[i] : offsets[i + 1]].
        rows: int64, the row of each token in the vocabulary; tokens with a row below 0 are ignored.
    """
    offsets, rows, weights = _count_and_weigh(
        offsets, rows, vocabulary.idfs(), term_frequency_weights(rule.tf)
    )
    distinct = np.diff(offsets)
    if rule.top:
        texts = np.repeat(np.arange(len(distinct)), distinct)
        heaviest = _select_heaviest(texts, weights, vocabulary.hashes()[rows, 0], rule.top)
        texts, rows, weights = texts[heaviest], rows[heaviest], weights[heaviest]
        offsets = np.searchsorted(texts, np.arange(len(distinct) + 1)).astype(np.int64)
    return WeightedTerms(offsets, rows, weights, distinct)


@compiled
def _count_and_weigh(
    offsets: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    idfs: npt.NDArray[np.int64],
    tf_weights: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return offsets, distinct rows and weights of the terms of each text.

    Args:
        idfs: The weighted IDF of each row.
        tf_weights: Of `term_frequency_weights`.
    """
    kept, weights = np.empty_like(rows), np.empty_like(rows)
    ends = np.zeros_like(offsets)
    # Where in `kept` each row was last put. A place before `first` belongs to an earlier text, so the array
    # need not be cleared for each text.
    places = np.full(len(idfs), -1, np.int32)
    filled = 0
    for text in range(len(offsets) - 1):
        first = filled
        for entry in range(offsets[text], offsets[text + 1]):
            row = rows[entry]
            if row < 0:
                continue
            place = places[row]
            if place >= first:
                # Until the text ends, this is the term's frequency.
                weights[place] = min(weights[place] + 1, TF_LIMIT - 1)
            else:
                kept[filled], weights[filled], places[row] = row, 1, filled
                filled += 1
        for place in range(first, filled):
            weights[place] = tf_weights[weights[place]] * idfs[kept[place]]
        ends[text + 1] = filled
    return ends, kept[:filled].copy(), weights[:filled].copy()


def _select_heaviest(
    texts: npt.NDArray[np.int64],
    weights: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.uint64],
    top: int,
) -> npt.NDArray[np.int64]:
    """Return the entries of each text's `top` heaviest terms; of equal weights the smaller hash wins.

    Args:
        texts: int64, sorted: the text of each entry.
    """
    order = np.lexsort((hashes, -weights, texts))
    starts = np.searchsorted(texts, texts)
    rank = np.arange(len(texts)) - starts[order]
    return np.sort(order[rank < top])
