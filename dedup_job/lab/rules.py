"""Rules: what two texts must fulfil to match, and the verdict that follows.

They are those of `job.decide` for two records alone, the first decided before the second.  There they are
applied to millions of records at once; here each says for itself whether it is met.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dedup_job.document import Action, Fingerprints
from dedup_job.fingerprint.recipe import Matching
from dedup_job.fingerprint.shingles import number_seeds
from dedup_job.fingerprint.simhash import hamming
from dedup_job.match.search import SEGMENT_BITS
from dedup_job.match.similarity import jaccard


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition of a match, named after its setting; `what` says it in numbers."""

    name: str
    is_met: bool
    what: str


@dataclass(frozen=True, slots=True)
class PairJudgement:
    """The verdict of the second record when only the first was decided before, and the rules that decided."""

    action: Action
    reason: str
    by: Sequence[str]


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """The keys that two texts have in common; segments and bands are counted from 1."""

    segments: Sequence[int]
    bands: Sequence[int]

    @classmethod
    def of(cls, prints: Fingerprints, matching: Matching) -> SharedKeys:
        """Take them from the segments and bands that are looked at."""
        segments = (
            segments_searched(64 * prints.bits.shape[1], matching.radius)
            if prints.has_fingerprint.all()
            else 0
        )
        alike = [not apart for apart in segment_distances(prints)[:segments]]
        bands = (prints.keys[0] == prints.keys[1]) & prints.keys.any(axis=1).all()
        return cls(_places(alike), _places(bands.tolist()))


def shared_shingles(prints: Fingerprints) -> int:
    """Return how many shingles two texts have in common."""
    return len(np.intersect1d(prints.shingles[0], prints.shingles[1], assume_unique=True))


def similarity(prints: Fingerprints) -> float:
    """Return the similarity of two texts' shingle sets, as the job measures it."""
    return jaccard(prints.shingles[0], prints.shingles[1])


def distance(prints: Fingerprints) -> int | None:
    """Return in how many bits two fingerprints differ; None when one of the texts has none."""
    return int(hamming(prints.bits[0], prints.bits[1])) if prints.has_fingerprint.all() else None


def segment_distances(prints: Fingerprints) -> list[int]:
    """Return in how many bits each 16-bit segment differs, the least significant of the first word first."""
    differing = np.ascontiguousarray(prints.bits[0] ^ prints.bits[1], "<u8").view("<u2")
    distances: list[int] = np.bitwise_count(differing).tolist()
    return distances


def segments_searched(bits: int, radius: int) -> int:
    """Return how many segments of a fingerprint are keys; 0 where all fingerprints are compared.

    >>> segments_searched(64, 3), segments_searched(128, 3), segments_searched(64, 4)
    (4, 8, 0)
    """
    segments = bits // SEGMENT_BITS
    return segments if radius < segments else 0


def band_chance(alike: float, matching: Matching) -> float:
    """Return the chance that two texts of this similarity share a band: 1 - (1 - s^rows)^bands.

    >>> round(band_chance(0.8, Matching(bands=8, rows=4)), 4)
    0.9852
    """
    return float(1 - (1 - alike**matching.rows) ** matching.bands)


def rules(
    texts: Sequence[str], prints: Fingerprints, matching: Matching, distinct: tuple[int, int]
) -> list[Rule]:
    """Return what two texts must fulfil to match, in the order in which it is looked at.

    distinct  how many terms each text has
    """
    same = prints.digests[0].tobytes() == prints.digests[1].tobytes()
    shared = SharedKeys.of(prints, matching)
    found = [
        Rule("same_text", same, f"the cleaned texts {'are the same' if same else 'differ'}"),
        _radius(prints, matching, shared, distinct),
    ]
    if matching.bands:
        found.append(_bands(prints, matching, shared))
    if not matching.min_similarity:
        return found
    if matching.numbers == "distinguish":
        seeds = number_seeds(texts)
        equal = bool(seeds[0] == seeds[1])
        found.append(Rule("numbers", equal, f"the numbers in them {'are the same' if equal else 'differ'}"))
    alike, least = similarity(prints), matching.min_similarity
    what = f"similarity {alike:.4f}, at least {least:g} is needed"
    return [*found, Rule("min_similarity", alike >= least, what)]


def _radius(prints: Fingerprints, matching: Matching, shared: SharedKeys, distinct: tuple[int, int]) -> Rule:
    apart = distance(prints)
    if apart is None:
        lacking = " and ".join(
            f"the {name} has {terms:,} terms"
            for name, terms, has in zip(("first", "second"), distinct, prints.has_fingerprint, strict=True)
            if not has
        )
        return Rule("radius", False, f"{lacking}, a fingerprint takes at least {matching.min_terms}")
    what = f"the fingerprints are {apart} bits apart, at most {matching.radius} count as near"
    if count := segments_searched(64 * prints.bits.shape[1], matching.radius):
        what += f"; {_listed('segment', shared.segments, count)}"
    return Rule("radius", apart <= matching.radius, what)


def _bands(prints: Fingerprints, matching: Matching, shared: SharedKeys) -> Rule:
    apart, what = distance(prints), _listed("band", shared.bands, matching.bands)
    if not shared.bands:
        return Rule("bands", False, what)
    if apart is None:
        return Rule("bands", True, f"{what}; a text without a fingerprint is not checked by distance")
    near = apart <= matching.band_radius
    return Rule("bands", near, f"{what}, {'' if near else 'but not '}within {matching.band_radius} bits")


def judged(reasons: Sequence[str], rules: Sequence[Rule]) -> PairJudgement:
    """Return the verdict that follows from the rules, and the names of those that decided.

    A match is the same text, or else a candidate by one of its keys that all other rules confirm.
    """
    if any(reasons):
        return PairJudgement(Action.UNJUDGED if reasons[1] else Action.UNIQUE, reasons[1], ["unjudged"])
    met = {rule.name: rule.is_met for rule in rules}
    if met.pop("same_text"):
        return PairJudgement(Action.DUPLICATE, "exact", ["same_text"])
    keys = {name: met.pop(name) for name in ("radius", "bands") if name in met}
    for name, is_met in met.items():
        if not is_met:
            return PairJudgement(Action.UNIQUE, "", [name])
    found_by = [name for name, is_met in keys.items() if is_met]
    if not found_by:
        return PairJudgement(Action.UNIQUE, "", list(keys))
    return PairJudgement(Action.DUPLICATE, "near", [*found_by, *(["min_similarity"] if met else [])])


def _places(flags: Iterable[bool]) -> list[int]:
    return [place for place, is_set in enumerate(flags, 1) if is_set]


def _listed(name: str, places: Sequence[int], count: int) -> str:
    """Say which of some keys are the same.

    >>> _listed("band", [], 8), _listed("band", [2], 8), _listed("band", [2, 3, 7], 8)
    ('none of 8 bands is the same', 'band 2 of 8 is the same', 'bands 2, 3 and 7 of 8 are the same')
    """
    if not places:
        return f"none of {count} {name}s is the same"
    if len(places) == count > 1:
        return f"all {count} {name}s are the same"
    if len(places) == 1:
        return f"{name} {places[0]} of {count} is the same"
    return f"{name}s {', '.join(map(str, places[:-1]))} and {places[-1]} of {count} are the same"
