"""Records that match in chains, and what `[match] prefer` keeps of them by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np
from bson import encode

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.shingle_similarity import jaccard
from dedup_job.preference.preference_ranks import best_first
from dedup_job.records import Fingerprints

CHARACTERS = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜"


def chained_records(count: int, seed: int, first: int = 0) -> list[dict[str, Any]]:
    """Return records whose texts are pieces of a few long texts: each piece is like the next shorter one."""
    dice = Random(seed)
    originals = ["".join(dice.choices(CHARACTERS, k=400)) for _ in range(max(1, count // 12))]
    records = []
    for number in range(first, first + count):
        original, length = dice.choice(originals), dice.choice(range(60, 400, 12))
        start = dice.choice((0, 0, 0, 7, 15))
        record = {"_id": number, "text": original[start : start + length]}
        if dice.random() < 0.9:
            record["score"] = dice.randrange(6)
        records.append(record)
    dice.shuffle(records)
    return records


def kept_by_brute_force(records: Sequence[dict[str, Any]], recipe: Recipe) -> set[Any]:
    """Return the ids that keep-first keeps of the records sorted best first, comparing all pairs."""
    raws = [encode(record) for record in records]
    prints, ids = _fingerprinter(recipe)(raws), [encode({"_id": record["_id"]}) for record in records]
    assert prints.ranks is not None
    kept: list[int] = []
    for row in best_first(prints.ranks, ids).tolist():
        if not any(is_match(prints, row, other, recipe) for other in kept):
            kept.append(row)
    return {records[row]["_id"] for row in kept}


def is_match(prints: Fingerprints, one: int, other: int, recipe: Recipe) -> bool:
    """Return whether two records have the same text, or are candidates and similar enough."""
    if (prints.digests[one] == prints.digests[other]).all():
        return True
    matching = recipe.matching
    distance = int(np.bitwise_count(prints.bits[one] ^ prints.bits[other]).sum())
    shares_band = bool((prints.keys[one] == prints.keys[other]).any())
    if distance > matching.radius and not (shares_band and distance <= matching.band_radius):
        return False
    return jaccard(prints.shingles[one], prints.shingles[other]) >= matching.min_similarity


_fingerprinter = lru_cache(maxsize=8)(Fingerprinter)
