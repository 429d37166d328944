"""Votes: the weighed terms of two texts, the bits in which their fingerprints differ, and why they do."""

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

WEIGHT = SCALE * SCALE  # a weight is the product of two fixed-point numbers


@dataclass(frozen=True, slots=True)
class Weighing:
    """The n different terms of two texts, heaviest first.

    weights   int64 (2, n), fixed-point, 0 where a text does not have the term
    hashes    uint64 (n, bits / 64)
    distinct  how many terms each text had before the heaviest were taken
    """

    terms: Sequence[str]
    weights: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    distinct: tuple[int, int]

    @classmethod
    def of(cls, texts: Sequence[str], recipe: Recipe) -> Weighing:
        """Weigh the terms of two cleaned texts, as the recipe says."""
        tokens = [*map(Fingerprinter(recipe).tokens, texts)]
        idf = shared_idf(recipe.idf_table)
        vocabulary = Vocabulary(recipe.terms, idf, frozenset(), recipe.bits)  # `tokens` leaves stop words out
        rows = vocabulary.rows(joined([*chain.from_iterable(tokens)]))
        found = weigh(offsets_of(tokens), rows, vocabulary, recipe.terms)
        rows, where = np.unique(found.rows, return_inverse=True)
        weights = np.zeros((2, len(rows)), np.int64)
        weights[np.repeat([0, 1], np.diff(found.offsets)), where] = found.weights
        order = np.argsort(-weights.max(axis=0), kind="stable")
        named = vocabulary.terms()
        terms = [named[row] for row in rows[order].tolist()]
        first, second = found.distinct.tolist()
        return cls(terms, weights[:, order], vocabulary.hashes()[rows[order]], (first, second))

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the two TF-IDF vectors; 0.0 without terms."""
        from sklearn.metrics.pairwise import cosine_similarity  # takes a second to import

        return float(cosine_similarity(*self.weights[:, None] / WEIGHT)[0, 0]) if self.terms else 0.0


@dataclass(frozen=True, slots=True)
class Flip:
    """A bit in which two fingerprints differ, and the fewest terms whose change of weight flips it.

    bit    0 is the least significant one of the first word
    votes  sum of the terms' votes in each text, fixed-point; the bit is 1 where it is greater than 0
    terms  strongest first
    """

    bit: int
    votes: tuple[int, int]
    terms: Sequence[str]


def flips(weighing: Weighing) -> list[Flip]:
    """Return the bits in which the fingerprints of two texts differ.

    Term a has the hash 0b01, b 0b10; their weights are 3 and 1 in the first text, 1 and 3 in the second.
    Bit 0 has 3 - 1 = 2 votes and 1 - 3 = -2: it is flipped.  The loss of 2 in a's weight suffices: 2 - 2 is
    not greater than 0.

    >>> weights, hashes = np.array([[3, 1], [1, 3]]), np.array([[1], [2]], np.uint64)
    >>> flips(Weighing("ab", weights, hashes, (2, 2)))[0]
    Flip(bit=0, votes=(2, -2), terms=['a'])
    """
    octets = np.ascontiguousarray(weighing.hashes, "<u8").view(np.uint8)
    signs = 2 * np.unpackbits(octets, axis=1, bitorder="little").astype(np.int64) - 1
    first, second = weighing.weights @ signs
    changes = (weighing.weights[1] - weighing.weights[0])[:, None] * signs
    return [
        Flip(bit, (int(first[bit]), int(second[bit])), _pushers(weighing.terms, first[bit], changes[:, bit]))
        for bit in np.flatnonzero((first > 0) != (second > 0)).tolist()
    ]


def _pushers(terms: Sequence[str], votes: int, changes: npt.NDArray[np.int64]) -> list[str]:
    """Return the strongest terms that together take the votes to the other side of the threshold."""
    pushes = -changes if votes > 0 else changes
    needed = votes if votes > 0 else 1 - votes
    order = np.argsort(-pushes, kind="stable")
    enough = int(np.searchsorted(np.cumsum(pushes[order].clip(0)), needed)) + 1
    return [terms[place] for place in order[:enough].tolist()]
