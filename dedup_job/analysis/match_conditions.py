"""The conditions of a match, one by one, for two given texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dedup_job.fingerprint.recipe import Matching
from dedup_job.fingerprint.shingles import number_seeds
from dedup_job.fingerprint.simhash import hamming
from dedup_job.index.key_map_search import SEGMENT_BITS
from dedup_job.index.shingle_similarity import jaccard
from dedup_job.records import UNIQUE, Action, Fingerprints, Verdict


@dataclass(frozen=True, slots=True)
class MatchRule:
    """One condition of a match.

    Attributes:
        name: Name of its setting.
        is_met: Whether the two texts meet it.
        what: The values that were compared, as text.
    """

    name: str
    is_met: bool
    what: str


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """The keys that two texts share.

    Attributes:
        segments: Shared segments, counted from 1.
        bands: Shared bands, counted from 1.
    """

    segments: Sequence[int]
    bands: Sequence[int]

    @classmethod
    def of(cls, prints: Fingerprints, matching: Matching) -> SharedKeys:
        """Compare the segments and bands that a search uses as keys."""
        count = 0
        if prints.has_fingerprint.all():
            count = segments_searched(64 * prints.bits.shape[1], matching.radius)
        distances = np.array(segment_distances(prints)[:count])
        # A text without shingles has zeros for keys, which match nothing.
        bands = (prints.keys[0] == prints.keys[1]) & prints.keys.any(axis=1).all()
        return cls((np.flatnonzero(distances == 0) + 1).tolist(), (np.flatnonzero(bands) + 1).tolist())


def similarity(prints: Fingerprints) -> float:
    """Return the similarity of two texts' shingle sets, as the job measures it."""
    return jaccard(prints.shingles[0], prints.shingles[1])


def distance(prints: Fingerprints) -> int | None:
    """Return the Hamming distance of two fingerprints; None if one of the texts has no fingerprint."""
    return int(hamming(prints.bits[0], prints.bits[1])) if prints.has_fingerprint.all() else None


def segment_distances(prints: Fingerprints) -> list[int]:
    """Return the Hamming distance of each 16-bit segment, beginning with the lowest of the first word."""
    differing = np.ascontiguousarray(prints.bits[0] ^ prints.bits[1], "<u8").view("<u2")
    distances: list[int] = np.bitwise_count(differing).tolist()
    return distances


def segments_searched(bits: int, radius: int) -> int:
    """Return how many segments of a fingerprint are keys; 0 if a search compares all fingerprints.

    >>> segments_searched(64, 3), segments_searched(128, 3), segments_searched(64, 4)
    (4, 8, 0)
    """
    segments = bits // SEGMENT_BITS
    return segments if radius < segments else 0


def band_chance(similarity: float, matching: Matching) -> float:
    """Return the probability that two texts of this similarity share a band: 1 - (1 - s^rows)^bands.

    >>> round(band_chance(0.8, Matching(bands=8, rows=4)), 4)
    0.9852
    """
    return float(1 - (1 - similarity**matching.rows) ** matching.bands)


def check_rules(
    texts: Sequence[str], prints: Fingerprints, matching: Matching, distinct: tuple[int, int]
) -> list[MatchRule]:
    """Return the conditions of a match of two texts, in the order of checking.

    Args:
        texts: The two cleaned texts.
        prints: Their fingerprints.
        matching: What counts as a duplicate.
        distinct: How many distinct terms each text has.
    """
    same = prints.digests[0].tobytes() == prints.digests[1].tobytes()
    shared = SharedKeys.of(prints, matching)
    conditions = [
        MatchRule("same_text", same, f"the cleaned texts {'are the same' if same else 'differ'}"),
        _radius(prints, matching, shared, distinct),
    ]
    if matching.bands:
        conditions.append(_bands(prints, matching, shared))
    if not matching.min_similarity:
        return conditions
    if matching.numbers == "distinguish":
        seeds = number_seeds(texts)
        equal = bool(seeds[0] == seeds[1])
        what = f"the numbers in them {'are the same' if equal else 'differ'}"
        conditions.append(MatchRule("numbers", equal, what))
    measured, least = similarity(prints), matching.min_similarity
    what = f"similarity {measured:.4f}, at least {least:g} is needed"
    return [*conditions, MatchRule("min_similarity", measured >= least, what)]


def check_groups(is_same: bool, first: Mapping[str, Any], second: Mapping[str, Any]) -> MatchRule:
    """Return the condition that two records are of one group, given the values that decide it."""
    if is_same:
        return MatchRule("within", True, f"both have the same {' and '.join(first)}")
    differing = [path for path in first if first[path] != second[path]] or list(first)
    values = (f"{path} is {_as_json(first[path])} and {_as_json(second[path])}" for path in differing)
    return MatchRule("within", False, f"they are in different groups: {'; '.join(values)}")


def _as_json(value: Any) -> str:
    return "missing" if value is None else json.dumps(value, ensure_ascii=False)


def _radius(
    prints: Fingerprints, matching: Matching, shared: SharedKeys, distinct: tuple[int, int]
) -> MatchRule:
    bits = distance(prints)
    if bits is None:
        lacking = " and ".join(
            f"the {name} has {terms:,} terms"
            for name, terms, has in zip(("first", "second"), distinct, prints.has_fingerprint, strict=True)
            if not has
        )
        return MatchRule("radius", False, f"{lacking}, a fingerprint takes at least {matching.min_terms}")
    what = f"the fingerprints are {bits} bits apart, at most {matching.radius} count as near"
    if count := segments_searched(64 * prints.bits.shape[1], matching.radius):
        what += f"; {_describe_shared('segment', shared.segments, count)}"
    return MatchRule("radius", bits <= matching.radius, what)


def _bands(prints: Fingerprints, matching: Matching, shared: SharedKeys) -> MatchRule:
    bits, what = distance(prints), _describe_shared("band", shared.bands, matching.bands)
    if not shared.bands:
        return MatchRule("bands", False, what)
    if bits is None:
        return MatchRule("bands", True, f"{what}; a text without a fingerprint is not checked by distance")
    near = bits <= matching.band_radius
    return MatchRule("bands", near, f"{what}, {'' if near else 'but not '}within {matching.band_radius} bits")


def judge_pair(reasons: Sequence[str], rules: Sequence[MatchRule]) -> tuple[Verdict, list[str]]:
    """Return the verdict on the second of two records, if only the first was decided before.

    Two records match if they have the same text, or if one is a candidate by some key (radius or bands) and
    all other conditions are met.

    Args:
        reasons: Why each of the two records cannot be judged; "" if it can.
        rules: The conditions, as `check_rules` returns them; empty if a record cannot be judged.

    Returns:
        The verdict, without the keeper, and the names of the conditions that decided.
    """
    if any(reasons):
        return Verdict(Action.UNCHECKED, reasons[1]) if reasons[1] else UNIQUE, ["unchecked"]
    met = {rule.name: rule.is_met for rule in rules}
    if not met.pop("within", True):
        return UNIQUE, ["within"]
    if met.pop("same_text"):
        return Verdict(Action.DUPLICATE, "exact"), ["same_text"]
    keys = {name: met.pop(name) for name in ("radius", "bands") if name in met}
    for name, is_met in met.items():
        if not is_met:
            return UNIQUE, [name]
    found_by = [name for name, is_met in keys.items() if is_met]
    if not found_by:
        return UNIQUE, list(keys)
    return Verdict(Action.DUPLICATE, "near"), [*found_by, *(["min_similarity"] if met else [])]


def _describe_shared(name: str, places: Sequence[int], count: int) -> str:
    """Return a sentence about the keys that two texts share.

    >>> [_describe_shared("band", shared, 8) for shared in ([], [2], [2, 3, 7])]
    ['none of 8 bands is the same', 'band 2 of 8 is the same', 'bands 2, 3 and 7 of 8 are the same']
    """
    if not places:
        return f"none of {count} {name}s is the same"
    if len(places) == count > 1:
        return f"all {count} {name}s are the same"
    if len(places) == 1:
        return f"{name} {places[0]} of {count} is the same"
    return f"{name}s {', '.join(map(str, places[:-1]))} and {places[-1]} of {count} are the same"
