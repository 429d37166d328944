"""Explain why two simhashes differ: weights of the terms, differing bits, and the terms that flip them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.fingerprinter import Fingerprinter, shared_idf
from dedup_job.fingerprint.idf import SCALE
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.fingerprint.terms import Vocabulary, weigh
from dedup_job.text.characters import joined, offsets_of

# Fixed-point 1.0 of a weight, which is the product of two fixed-point numbers: term frequency and IDF.
WEIGHT = SCALE * SCALE


@dataclass(frozen=True, slots=True)
class Weighing:
    """The n distinct terms of two texts, heaviest first.

    Attributes:
        terms: The terms.
        weights: int64, shape (2, n), fixed-point; 0 where a text does not have the term.
        hashes: uint64, shape (n, bits / 64), hashes of the terms.
        distinct: How many distinct terms each text has, including those too light to be used.
    """

    terms: Sequence[str]
    weights: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    distinct: tuple[int, int]

    @classmethod
    def of(cls, texts: Sequence[str], recipe: Recipe) -> Weighing:
        """Weight the terms of two cleaned texts by a recipe."""
        tokens = [*map(Fingerprinter(recipe).tokens, texts)]
        idf = shared_idf(recipe.idf_table)
        # No stop words: `tokens` has left them out already.
        vocabulary = Vocabulary(recipe.terms, idf, frozenset(), recipe.bits)
        rows = vocabulary.rows(joined([*chain.from_iterable(tokens)]))
        weighted = weigh(offsets_of(tokens), rows, vocabulary, recipe.terms)
        rows, places = np.unique(weighted.rows, return_inverse=True)
        weights = np.zeros((2, len(rows)), np.int64)
        weights[np.repeat([0, 1], np.diff(weighted.offsets)), places] = weighted.weights
        order = np.argsort(-weights.max(axis=0), kind="stable")
        all_terms = vocabulary.terms()
        terms = [all_terms[row] for row in rows[order].tolist()]
        first, second = weighted.distinct.tolist()
        return cls(terms, weights[:, order], vocabulary.hashes()[rows[order]], (first, second))

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the two TF-IDF vectors; 0.0 without terms."""
        # Imported here, because the import takes a second and nothing else needs it.
        from sklearn.metrics.pairwise import cosine_similarity

        return float(cosine_similarity(*self.weights[:, None] / WEIGHT)[0, 0]) if self.terms else 0.0


@dataclass(frozen=True, slots=True)
class Flip:
    """A bit that differs between two fingerprints, and the fewest terms whose change of weight flips it.

    Attributes:
        bit: Index of the bit; 0 is the least significant bit of the first word.
        votes: Sum of the terms' votes in each text, fixed-point; the bit is 1 if it is greater than 0.
        terms: The terms, strongest first.
    """

    bit: int
    votes: tuple[int, int]
    terms: Sequence[str]


def flips(weighing: Weighing) -> list[Flip]:
    """Return the differing bits of two texts' fingerprints, and why they differ.

    Worked example: term a has the hash 0b01, b 0b10; their weights are 3 and 1 in the first text, 1 and 3 in
    the second.  Bit 0 has 3 - 1 = 2 votes and 1 - 3 = -2: it is flipped.  The loss of 2 in a's weight is
    enough: 2 - 2 is not greater than 0.

    >>> weights, hashes = np.array([[3, 1], [1, 3]]), np.array([[1], [2]], np.uint64)
    >>> flips(Weighing("ab", weights, hashes, (2, 2)))[0]
    Flip(bit=0, votes=(2, -2), terms=['a'])
    """
    # A set bit of a hash votes for the bit with the term's weight, a clear bit against it.
    octets = np.ascontiguousarray(weighing.hashes, "<u8").view(np.uint8)
    signs = 2 * np.unpackbits(octets, axis=1, bitorder="little").astype(np.int64) - 1
    first, second = weighing.weights @ signs
    changes = (weighing.weights[1] - weighing.weights[0])[:, None] * signs
    return [
        Flip(
            bit,
            (int(first[bit]), int(second[bit])),
            _strongest_terms(weighing.terms, first[bit], changes[:, bit]),
        )
        for bit in np.flatnonzero((first > 0) != (second > 0)).tolist()
    ]


def _strongest_terms(terms: Sequence[str], votes: int, changes: npt.NDArray[np.int64]) -> list[str]:
    """Return the strongest terms whose changes together move the votes across the threshold of 0."""
    pushes = -changes if votes > 0 else changes
    # A bit is 1 only above 0: falling to 0 clears it, rising to 1 sets it.
    needed = votes if votes > 0 else 1 - votes
    order = np.argsort(-pushes, kind="stable")
    enough = int(np.searchsorted(np.cumsum(pushes[order].clip(0)), needed)) + 1
    return [terms[place] for place in order[:enough].tolist()]
