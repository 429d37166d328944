"""Terms: the tokens of a text that count, each with its TF-IDF weight as an integer.

The weight of a term is a function of its frequency in the text times a function of its IDF. Both functions
are damped by default: otherwise a single frequent or rare word decides most bits of a fingerprint, and
editing it flips too many of them.

A term is a part of an array of code points, and is known by its 64-bit hash: no string is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.idf import SCALE, Idf
from dedup_job.fingerprint.segment import Segmenter
from dedup_job.fingerprint.term_hashes_and_tables import (
    Codes,
    Hashes,
    Numbers,
    build_table,
    find_hash,
    hash_strings,
    hash_terms,
)
from dedup_job.native.arrays import Ragged
from dedup_job.native.numba_compile import compiled
from dedup_job.text.code_points import (
    CODE_POINT,
    LETTER_BIT,
    decode_text,
    encode_lower_case,
    is_chinese,
    keep_letters_and_digits,
    offsets_of,
)

TF_LIMIT = 1 << 16  # greater term frequencies count as TF_LIMIT - 1


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
class Terms:
    """The terms of n texts, one after the other, with repeats, and in the order of the text.

    Attributes:
        offsets: int64 (n + 1,): text i has the terms offsets[i] to offsets[i + 1].
        codes: uint32, code points; other bits mean nothing.
        starts: int64, where each term begins in `codes`.
        stops: int64, where each term ends.
    """

    offsets: Numbers
    codes: Codes
    starts: Numbers
    stops: Numbers

    def names(self, terms: Numbers) -> list[str]:
        """Return some terms as strings, by their places."""
        starts, stops = self.starts[terms].tolist(), self.stops[terms].tolist()
        codes = self.codes & CODE_POINT
        return [decode_text(codes[start:stop]) for start, stop in zip(starts, stops, strict=True)]


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """The distinct terms of n texts, one after the other.

    Attributes:
        offsets: int64 (n + 1,): text i has the entries offsets[i] to offsets[i + 1].
        places: int64, the place in `Terms` where each term occurs first.
        hashes: uint64 (m, bits / 64), the hash of each term.
        weights: int64, the fixed-point weight of each term, at least 1.
        distinct: int64 (n,), the number of distinct terms of each text, before `TermRule.top` applies.
    """

    offsets: Numbers
    places: Numbers
    hashes: Hashes
    weights: Numbers
    distinct: Numbers


class TermFinder:
    """Finds the terms of texts, and weighs them.

    Args:
        idf_weights: `Idf.weights` of the table of IDF, of the same rule.
        stop_words: Words that are no terms, in lower case.
        bits: Of a term's hash, 64 or 128.
    """

    def __init__(
        self, rule: TermRule, segmenter: Segmenter, idf_weights: Idf, stop_words: Iterable[str], bits: int
    ) -> None:
        kind, _, length = rule.features.partition(":")
        self._rule, self._segmenter, self._bits = rule, segmenter, bits
        self._idf_weights = idf_weights
        self._stop_words = frozenset(stop_words)
        hashes = hash_strings(list(self._stop_words), 64)[:, 0]
        self._stops = build_table(hashes, np.ones(len(hashes), np.int64))
        self._length = int(length or 1)
        self._runs = {"words": self._word_runs, "chars": self._character_runs}[kind] if length else None

    def find(self, texts: Sequence[str], codes: Ragged) -> Terms:
        """Return the terms of cleaned texts, stop words among them.

        Args:
            codes: The same texts as `encode_lower_case` returns them.
        """
        offsets, values = codes.offsets, codes.values
        if self._runs:
            runs = list(map(self._runs, texts))
            encoded = encode_lower_case(list(chain.from_iterable(runs)))
            offsets, values = encoded.offsets[offsets_of(runs)], encoded.values
            starts = np.zeros(len(values), np.bool_)
            starts[encoded.offsets[:-1]] = True
        else:
            starts = self._segmenter.word_starts(codes)
        is_han = self._rule.features == "words+han"
        return Terms(*_find_terms(offsets, values, starts, self._rule.min_length, is_han))

    def names(self, text: str) -> list[str]:
        """Return the terms of a cleaned text as strings, with repeats."""
        found = self.find([text], encode_lower_case([text]))
        names = found.names(np.arange(len(found.starts)))
        return [name for name in names if name not in self._stop_words]

    def weigh(self, found: Terms) -> WeightedTerms:
        """Count and weigh the terms of texts; stop words are left out."""
        rule = self._rule
        keys = hash_terms(found.codes, found.starts, found.stops, 64)[:, 0]
        offsets, places, keys, counts = _count(found.offsets, keys, self._stops)
        distinct = np.diff(offsets)
        weights = term_frequency_weights(rule.tf).take(counts) * self._idf_weights(keys)
        if self._bits == 64:
            hashes = keys[:, None]
        else:
            hashes = hash_terms(found.codes, found.starts[places], found.stops[places], self._bits)
        if rule.top:
            texts = np.repeat(np.arange(len(distinct)), distinct)
            heaviest = _select_heaviest(texts, weights, hashes[:, 0], rule.top)
            places, hashes, weights = places[heaviest], hashes[heaviest], weights[heaviest]
            offsets = np.searchsorted(texts[heaviest], np.arange(len(distinct) + 1)).astype(np.int64)
        return WeightedTerms(offsets, places, hashes, weights, distinct)

    def _word_runs(self, text: str) -> list[str]:
        """Return the runs of N words of a text, without stop words, punctuation and spaces."""
        words = self._segmenter(text.lower())
        words = [word for word in words if word not in self._stop_words and any(map(str.isalnum, word))]
        return [" ".join(words[i : i + self._length]) for i in range(len(words) - self._length + 1)]

    def _character_runs(self, text: str) -> list[str]:
        """Return the runs of N letters and digits of a text."""
        text = keep_letters_and_digits(text)
        return [text[i : i + self._length] for i in range(len(text) - self._length + 1)]


@compiled
def _find_terms(
    offsets: Numbers, codes: Codes, starts: npt.NDArray[np.bool_], min_length: int, is_han: bool
) -> tuple[Numbers, Codes, Numbers, Numbers]:
    """Find the tokens that are terms: those that are long enough and have a letter or digit.

    Args:
        starts: Whether a token begins at each character.
        is_han: Whether every Chinese character is a term, too, in addition to the word that it is in.

    Returns:
        The attributes of `Terms`.
    """
    begins, ends = np.empty(2 * len(codes), np.int64), np.empty(2 * len(codes), np.int64)
    found = np.zeros_like(offsets)
    filled = 0
    for text in range(len(offsets) - 1):
        start = offsets[text]
        has_letter = False
        for place in range(offsets[text], offsets[text + 1]):
            has_letter |= codes[place] >= LETTER_BIT
            is_chinese_character = is_han and is_chinese(codes[place] & CODE_POINT)
            if is_chinese_character:
                begins[filled], ends[filled] = place, place + 1
                filled += 1
            if place + 1 < offsets[text + 1] and not starts[place + 1]:
                continue
            # A Chinese character that is a word counts twice: as the word, and as the character.
            length = place + 1 - start
            if (has_letter and length >= min_length) or (is_chinese_character and length == 1):
                begins[filled], ends[filled] = start, place + 1
                filled += 1
            start, has_letter = place + 1, False
        found[text + 1] = filled
    return found, codes, begins[:filled], ends[:filled]


@compiled
def _count(offsets: Numbers, keys: Hashes, stops: Hashes) -> tuple[Numbers, Numbers, Hashes, Numbers]:
    """Count the distinct terms of each text.

    Args:
        offsets: int64 (n + 1,): text i has the terms offsets[i] to offsets[i + 1].
        keys: uint64, the hash of each term.
        stops: Table of terms that are left out.

    Returns:
        The offsets of the texts' distinct terms, the place of each where it occurs first, its hash, and how
        often it occurs, at most TF_LIMIT - 1.
    """
    places, counts = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    distinct = np.empty_like(keys)
    ends = np.zeros_like(offsets)
    longest = 1
    for text in range(len(offsets) - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    size = 4
    while size < 2 * longest:
        size *= 2
    # A hash table with open addressing: where in `distinct` each term is. A place before `first` is of an
    # earlier text, so the table need not be cleared for each text.
    slots = np.full(size, -1, np.int64)
    filled = 0
    for text in range(len(offsets) - 1):
        first = filled
        # A short text uses the beginning of the table only, which stays in the processor's cache.
        size = 4
        while size < 2 * (offsets[text + 1] - offsets[text]):
            size *= 2
        for term in range(offsets[text], offsets[text + 1]):
            key = keys[term]
            slot = np.int64(key & np.uint64(size - 1))
            while slots[slot] >= first and distinct[slots[slot]] != key:
                slot = (slot + 1) & (size - 1)
            if slots[slot] >= first:
                counts[slots[slot]] = min(counts[slots[slot]] + 1, TF_LIMIT - 1)
            elif stops[find_hash(key, stops), 1] == 0:
                slots[slot], places[filled], distinct[filled], counts[filled] = filled, term, key, 1
                filled += 1
        ends[text + 1] = filled
    return ends, places[:filled], distinct[:filled], counts[:filled]


@cache
def term_frequency_weights(tf: str) -> npt.NDArray[np.int64]:
    """Return the weight of each term frequency from 0 to 65,535, in fixed point.

    >>> term_frequency_weights("log")[[1, 2, 3]].tolist()
    [1024, 1734, 2149]
    """
    if tf == "binary":
        return np.full(TF_LIMIT, SCALE, np.int64)
    counts = np.arange(TF_LIMIT, dtype=np.int64)
    if tf == "log":
        # The last bit of numpy's logarithm may differ between processors, which cannot change a rounded
        # weight: none is so close to a half.
        counts[1:] = np.rint((1 + np.log(counts[1:])) * SCALE)
        return counts
    return counts * SCALE


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
