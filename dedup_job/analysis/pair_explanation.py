"""Explain why two records match or not, with everything that was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dedup_job.analysis.match_conditions import (
    SharedKeys,
    band_chance,
    check_groups,
    check_rules,
    distance,
    judge_pair,
    segment_distances,
    similarity,
)
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.idf import SCALE
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.records import Fingerprints, digests
from dedup_job.report.differences import count_same_at_start
from dedup_job.text.code_points import encode_lower_case
from dedup_job.within.group_separation import have_same_group, without_groups


@dataclass(frozen=True, slots=True)
class ComparedRecord:
    """One of the two records.

    Attributes:
        id: Its id as JSON values.
        place: Where it was found.
        text: Its cleaned text; "" if it cannot be judged.
        group: The values of the fields in `[match] within`, as JSON values by path.
    """

    id: Any
    place: str
    text: str
    group: Mapping[str, Any] = field(default_factory=dict)


def explanation_json(
    records: Sequence[ComparedRecord], prints: Fingerprints, recipe: Recipe
) -> dict[str, Any]:
    """Return the explanation of two records as JSON values.

    Args:
        records: The two records.
        prints: Their fingerprints, two rows.
        recipe: The recipe of the fingerprints.
    """
    texts = [record.text for record in records]
    is_same_group = have_same_group(prints, recipe.group_words)
    if recipe.group_words:
        # Measured on the texts alone; the groups are a condition of their own.
        text_digests = digests(text.encode("utf-8", "surrogatepass") for text in texts)
        prints = replace(without_groups(prints, recipe.group_words), digests=text_digests)
    weighing = TermWeights.of(texts, recipe)
    applied = [] if any(prints.reasons) else check_rules(texts, prints, recipe.matching, weighing.distinct)
    if applied and recipe.reader.fields.within:
        applied.insert(0, check_groups(is_same_group, *(record.group for record in records)))
    verdict, decided_by = judge_pair(prints.reasons, applied)
    counts = np.diff(prints.shingles.offsets).tolist()
    shared = len(np.intersect1d(prints.shingles[0], prints.shingles[1], assume_unique=True))
    bits, measured = distance(prints), similarity(prints)
    flips = [] if bits is None else find_flipped_bits(weighing)
    return {
        "verdict": verdict.action.name.lower(),
        "reason": verdict.reason,
        "decided_by": decided_by,
        "records": [
            {
                "id": record.id,
                "place": record.place,
                "unchecked": reason,
                **({"within": record.group} if record.group else {}),
                "characters": len(record.text),
                "terms": terms,
                "shingles": count,
            }
            for record, reason, terms, count in zip(
                records, prints.reasons, weighing.distinct, counts, strict=True
            )
        ],
        "same_characters": count_same_at_start(*texts),
        "rules": [asdict(rule) for rule in applied],
        "distance": bits,
        "segments": None if bits is None else segment_distances(prints),
        "shared_keys": asdict(SharedKeys.of(prints, recipe.matching)),
        "band_chance": round(band_chance(measured, recipe.matching), 4),
        "similarity": round(measured, 4),
        "cosine": round(weighing.cosine, 4),
        "containment": [round(shared / count, 4) if count else 0.0 for count in counts],
        "terms": [
            {"term": term, "weights": _as_floats(weights)}
            for term, weights in zip(weighing.terms, weighing.weights.T.tolist(), strict=True)
        ],
        "flips": [{"bit": flip.bit, "votes": _as_floats(flip.votes), "terms": flip.terms} for flip in flips],
        "settings": {"bits": recipe.bits, **asdict(recipe.matching), **asdict(recipe.terms)},
        "recipe": recipe.digest,
    }


# Fixed-point 1.0 of a weight, which is the product of two fixed-point numbers: term frequency and IDF.
WEIGHT_ONE = SCALE * SCALE


def _as_floats(weights: Sequence[int]) -> list[float]:
    """Return fixed-point weights or votes as numbers with four decimals."""
    return [round(weight / WEIGHT_ONE, 4) for weight in weights]


@dataclass(frozen=True, slots=True)
class TermWeights:
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
    def of(cls, texts: Sequence[str], recipe: Recipe) -> TermWeights:
        """Weight the terms of two cleaned texts by a recipe."""
        finder = Fingerprinter(recipe).terms
        found = finder.find(texts, encode_lower_case(texts))
        weighted = finder.weigh(found)
        _, firsts, places = np.unique(weighted.hashes, axis=0, return_index=True, return_inverse=True)
        weights = np.zeros((2, len(firsts)), np.int64)
        weights[np.repeat([0, 1], np.diff(weighted.offsets)), places] = weighted.weights
        order = np.argsort(-weights.max(axis=0), kind="stable")
        firsts = firsts[order]
        terms = found.names(weighted.places[firsts])
        first, second = weighted.distinct.tolist()
        return cls(terms, weights[:, order], weighted.hashes[firsts], (first, second))

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the two TF-IDF vectors; 0.0 if one of the texts has no terms."""
        first, second = self.weights / WEIGHT_ONE
        lengths = np.linalg.norm(first) * np.linalg.norm(second)
        return float(first @ second / lengths) if lengths else 0.0


@dataclass(frozen=True, slots=True)
class FlippedBit:
    """A bit that differs between two fingerprints, and the fewest terms whose change of weight flips it.

    Attributes:
        bit: Index of the bit; 0 is the least significant bit of the first word.
        votes: Sum of the terms' votes in each text, fixed-point; the bit is 1 if it is greater than 0.
        terms: The terms, strongest first.
    """

    bit: int
    votes: tuple[int, int]
    terms: Sequence[str]


def find_flipped_bits(weighing: TermWeights) -> list[FlippedBit]:
    """Return the differing bits of two texts' fingerprints, and why they differ.

    Worked example: term a has the hash 0b01, b 0b10; their weights are 3 and 1 in the first text, 1 and 3 in
    the second.  Bit 0 has 3 - 1 = 2 votes and 1 - 3 = -2: it is flipped.  The loss of 2 in a's weight is
    enough: 2 - 2 is not greater than 0.

    >>> weights, hashes = np.array([[3, 1], [1, 3]]), np.array([[1], [2]], np.uint64)
    >>> find_flipped_bits(TermWeights("ab", weights, hashes, (2, 2)))[0]
    FlippedBit(bit=0, votes=(2, -2), terms=['a'])
    """
    # A set bit of a hash votes for the bit with the term's weight, a clear bit against it.
    octets = np.ascontiguousarray(weighing.hashes, "<u8").view(np.uint8)
    signs = 2 * np.unpackbits(octets, axis=1, bitorder="little").astype(np.int64) - 1
    first, second = weighing.weights @ signs
    changes = (weighing.weights[1] - weighing.weights[0])[:, None] * signs
    return [
        FlippedBit(
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
