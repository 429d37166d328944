"""An explanation: why two records match or not, in all that was measured of them, as JSON values."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
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

BEGINNING = 400  # characters of a text that are shown and compared
PIECE = re.compile(r"[0-9A-Za-z]{1,40}|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Record:
    """One of the two: its id as JSON values, where it was found, its cleaned text ("" when unjudged)."""

    id: Any
    place: str
    text: str


def marked(first: str, second: str) -> tuple[str, str]:
    """Return how two texts begin, with [-what only the first has-] and {+what only the second has+}.

    >>> marked("sold on 3 May", "sold on 12 May")
    ('sold on [-3-] May', 'sold on {+12+} May')
    """
    pieces = PIECE.findall(first[:BEGINNING]), PIECE.findall(second[:BEGINNING])
    left, right = "", ""
    for tag, a, b, c, d in SequenceMatcher(None, *pieces, autojunk=False).get_opcodes():
        one, other = "".join(pieces[0][a:b]), "".join(pieces[1][c:d])
        # What sticks out where a beginning was cut off is no difference: it may come next in the other text.
        is_cut = (tag == "delete" and b == len(pieces[0]) and len(second) > BEGINNING) or (
            tag == "insert" and d == len(pieces[1]) and len(first) > BEGINNING
        )
        left += f"[-{one}-]" if one and tag != "equal" and not is_cut else one
        right += f"{{+{other}+}}" if other and tag != "equal" and not is_cut else other
    return left, right


def as_json(records: tuple[Record, Record], prints: Fingerprints, recipe: Recipe) -> dict[str, Any]:
    """Return the whole explanation of two records as JSON values; `prints` has a row for each."""
    texts = [record.text for record in records]
    weighing = Weighing.of(texts, recipe)
    applied = [] if any(prints.reasons) else rules(texts, prints, recipe.matching, weighing.distinct)
    judgement = judged(prints.reasons, applied)
    counts, shared = np.diff(prints.shingles.offsets).tolist(), shared_shingles(prints)
    bits, alike = distance(prints), similarity(prints)
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
                "beginning": beginning,
            }
            for record, reason, terms, count, beginning in zip(
                records, prints.reasons, weighing.distinct, counts, marked(*texts), strict=True
            )
        ],
        "same_characters": sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
        ),
        "rules": [asdict(rule) for rule in applied],
        "distance": bits,
        "segments": None if bits is None else segment_distances(prints),
        "shared_keys": asdict(SharedKeys.of(prints, recipe.matching)),
        "band_chance": round(band_chance(alike, recipe.matching), 4),
        "similarity": round(alike, 4),
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
