"""Explain why two records match or not: every measured value, as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from dedup_job.document import Fingerprints
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.lab.rules import (
    SharedKeys,
    band_chance,
    distance,
    judged,
    rules,
    segment_distances,
    shared_shingles,
    similarity,
)
from dedup_job.lab.votes import WEIGHT, Weighing, flips


@dataclass(frozen=True, slots=True)
class Record:
    """One of the two records.

    Attributes:
        id: Its id as JSON values.
        place: Where it was found.
        text: Its cleaned text; "" if it cannot be judged.
    """

    id: Any
    place: str
    text: str


def as_json(records: tuple[Record, Record], prints: Fingerprints, recipe: Recipe) -> dict[str, Any]:
    """Return the explanation of two records as JSON values.

    Args:
        records: The two records.
        prints: Their fingerprints, two rows.
        recipe: The recipe of the fingerprints.
    """
    texts = [record.text for record in records]
    weighing = Weighing.of(texts, recipe)
    applied = [] if any(prints.reasons) else rules(texts, prints, recipe.matching, weighing.distinct)
    judgement = judged(prints.reasons, applied)
    counts, shared = np.diff(prints.shingles.offsets).tolist(), shared_shingles(prints)
    bits, measured = distance(prints), similarity(prints)
    return {
        "verdict": judgement.action.name.lower(),
        "reason": judgement.reason,
        "decided_by": list(judgement.by),
        "records": [
            {
                "id": record.id,
                "place": record.place,
                "unjudged": reason,
                "characters": len(record.text),
                "terms": terms,
                "shingles": count,
            }
            for record, reason, terms, count in zip(
                records, prints.reasons, weighing.distinct, counts, strict=True
            )
        ],
        "same_characters": sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
        ),
        "rules": [asdict(rule) for rule in applied],
        "distance": bits,
        "segments": None if bits is None else segment_distances(prints),
        "shared_keys": asdict(SharedKeys.of(prints, recipe.matching)),
        "band_chance": round(band_chance(measured, recipe.matching), 4),
        "similarity": round(measured, 4),
        "cosine": round(weighing.cosine, 4),
        "containment": [round(shared / count, 4) if count else 0.0 for count in counts],
        "terms": [
            {"term": term, "weights": [round(weight / WEIGHT, 4) for weight in weights]}
            for term, weights in zip(weighing.terms, weighing.weights.T.tolist(), strict=True)
        ],
        "flips": []
        if bits is None
        else [
            {"bit": flip.bit, "votes": [round(vote / WEIGHT, 4) for vote in flip.votes], "terms": flip.terms}
            for flip in flips(weighing)
        ],
        "settings": {"bits": recipe.bits, **asdict(recipe.matching), **asdict(recipe.terms)},
        "recipe": recipe.digest,
    }
