"""Rules: what two texts must fulfil to match, and the verdict that follows.

They are those of `job.decide` for two records alone, the first decided before the second.  There they are
applied to millions of records at once; here each says for itself whether it is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dedup_job.document import Action, Fingerprints
from dedup_job.fingerprint.recipe import Matching
from dedup_job.fingerprint.shingles import number_seeds
from dedup_job.fingerprint.simhash import hamming
from dedup_job.match import similarity


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition of a match, named after its setting; `what` says it in numbers."""

    name: str
    is_met: bool
    what: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of the second record when only the first was decided before, and the rules that decided."""

    action: Action
    reason: str
    by: Sequence[str]


def shared_shingles(prints: Fingerprints) -> int:
    """Return how many shingles two texts have in common."""
    return len(np.intersect1d(prints.shingles[0], prints.shingles[1], assume_unique=True))


def jaccard(prints: Fingerprints) -> float:
    """Return the similarity of two texts' shingle sets, as the job measures it."""
    return similarity.jaccard(prints.shingles[0], prints.shingles[1])


def distance(prints: Fingerprints) -> int | None:
    """Return in how many bits two fingerprints differ; None when one of the texts has none."""
    return int(hamming(prints.bits[0], prints.bits[1])) if prints.near.all() else None


def segment_distances(prints: Fingerprints) -> list[int]:
    """Return in how many bits each 16-bit segment differs, the least significant of the first word first."""
    differing = np.ascontiguousarray(prints.bits[0] ^ prints.bits[1], "<u8").view("<u2")
    distances: list[int] = np.bitwise_count(differing).tolist()
    return distances


def rules(
    texts: Sequence[str], prints: Fingerprints, matching: Matching, distinct: tuple[int, int]
) -> list[Rule]:
    """Return what two texts must fulfil to match, in the order in which it is looked at."""
    bits, alike = distance(prints), jaccard(prints)
    counts = np.diff(prints.shingles.offsets).tolist()
    same = prints.digests[0].tobytes() == prints.digests[1].tobytes()
    found = [
        Rule("same_text", same, f"the cleaned texts {'are the same' if same else 'differ'}"),
        Rule(
            "min_terms",
            bool(prints.near.all()),
            f"{distinct[0]:,} and {distinct[1]:,} terms, at least {matching.min_terms} each are needed",
        ),
        Rule(
            "radius",
            bits is not None and bits <= matching.radius,
            f"the fingerprints are {bits} bits apart, at most {matching.radius} count as near"
            if bits is not None
            else "there are no two fingerprints to compare",
        ),
    ]
    if not matching.min_similarity:
        return found
    if matching.numbers == "distinguish":
        seeds = number_seeds(texts)
        equal = bool(seeds[0] == seeds[1])
        found.append(Rule("numbers", equal, f"the numbers in them {'are the same' if equal else 'differ'}"))
    return [
        *found,
        Rule(
            "short_text",
            bool(prints.short.all()),
            f"{counts[0]:,} and {counts[1]:,} shingles, at most {matching.short_text} each make short texts",
        ),
        Rule(
            "min_similarity",
            alike >= matching.min_similarity,
            f"Jaccard similarity {alike:.4f}, at least {matching.min_similarity:g} is needed",
        ),
    ]


def judged(reasons: Sequence[str], rules: Sequence[Rule]) -> Judgement:
    """Return the verdict that follows from the rules, and the names of those that decided.

    A match is the same text, or else near fingerprints or two short texts, confirmed by their shingles.
    """
    if any(reasons):
        return Judgement(Action.UNJUDGED if reasons[1] else Action.UNIQUE, reasons[1], ["unjudged"])
    met = {rule.name: rule.is_met for rule in rules}
    if met["same_text"]:
        return Judgement(Action.DUPLICATE, "exact", ["same_text"])
    by_fingerprint = met["radius"]  # which takes two fingerprints, so enough terms in both
    if not by_fingerprint and not met.get("short_text"):
        lacking = "radius" if met["min_terms"] else "min_terms"
        return Judgement(Action.UNIQUE, "", [lacking, *(["short_text"] if "short_text" in met else [])])
    if not met.get("min_similarity", True):
        return Judgement(Action.UNIQUE, "", ["min_similarity" if met.get("numbers", True) else "numbers"])
    confirmed = ["min_similarity"] if "min_similarity" in met else []
    return Judgement(Action.DUPLICATE, "near", ["radius" if by_fingerprint else "short_text", *confirmed])
