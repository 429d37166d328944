"""The rows that say what became of single records: in `dropped`, and in `exceptions`."""

from __future__ import annotations

from bson import encode

from dedup_job.document import Action
from dedup_job.mongo.ids import as_field, document, elements
from dedup_job.mongo.plans import StoredPlan


def dropped_row(stored: StoredPlan, row: int) -> bytes:
    """Return the row on a dropped record, raw."""
    verdict = stored.plan.verdicts[row]
    assert verdict.match is not None
    jaccard = verdict.match.similarity
    about = {
        "reason": verdict.reason,
        "distance": verdict.match.distance,
        "similarity": None if jaccard is None else round(jaccard, 4),
        "run": stored.run,
        "at": stored.at,
    }
    keeper = as_field(verdict.match.keeper, "keeper")
    return document(elements(stored.plan.ids[row]), keeper, elements(encode(about)))


def exception_row(stored: StoredPlan, row: int) -> bytes:
    """Return the row on a record that was unjudged or refused, raw."""
    verdict = stored.plan.verdicts[row]
    about = {
        "action": verdict.action.name.lower(),
        "reason": verdict.reason,
        "stage": "target" if verdict.action == Action.REFUSED else "fingerprint",
        "run": stored.run,
        "at": stored.at,
    }
    return document(elements(stored.plan.ids[row]), elements(encode(about)))
