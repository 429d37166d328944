"""Collections and checks shared by the tests of `sync`."""

from __future__ import annotations

import os
from typing import Any

from dedup_job.commands import sync as syncing
from dedup_job.commands.outdated_decisions import compare_with_source
from dedup_job.report.changes_and_sync_results import SyncResult
from tests.support.job import Job
from tests.support.restore_cases import restore
from tests.support.undo_cases import OTHERS

# With 1, a process is killed and stopped at each of its commands, otherwise at every n-th.
EVERY = int(os.environ.get("DEDUP_TEST_EVERY", "13"))
A, B, C, D, E, F, G, H, I, J = OTHERS[:10]  # noqa: E741


def up_to_date(job: Job) -> SyncResult:
    with job.context() as context:
        refused_before = syncing.finish_interrupted(context)
        found = compare_with_source(context, lambda number: None)
        return syncing.sync(context, found, lambda number: None, refused_before=refused_before)


def due(job: Job) -> dict[str, Any]:
    with job.context() as context:
        return compare_with_source(context, lambda number: None).outdated.due.as_json()


def dropped(job: Job) -> dict[Any, Any]:
    return {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()}


def exceptions(job: Job) -> dict[Any, tuple[str, str]]:
    return {row["_id"]: (row["action"], row["reason"]) for row in job.ledger("exceptions").find()}


def in_target(job: Job) -> dict[Any, Any]:
    return {record.pop("_id"): record.get("text") for record in job.target.find()}


def decided(job: Job) -> Job:
    """Decide records of every kind, in several small plans."""
    job.set("limits", batch_records=5)
    texts = [A, A, A, B, B, D, D, E, E, G, H, None, D, B, D, A, E, I]
    job.source.insert_many({"_id": n, **({"text": text} if text else {})} for n, text in enumerate(texts))
    job.decide("backfill")
    job.source.insert_many([{"_id": 20, "text": B}, {"_id": 21, "text": J}])
    job.decide("run")
    restore(job, "15", "16")
    return job


def overtake(job: Job) -> None:
    """Change and delete records of every kind in the source."""
    job.source.delete_many({"_id": {"$in": [0, 9, 12]}})
    for number, text in ((3, C), (8, F), (10, A), (11, OTHERS[10]), (16, OTHERS[11])):
        job.source.update_one({"_id": number}, {"$set": {"text": text}})
    job.source.update_many({"_id": {"$in": [5, 13, 14]}}, {"$set": {"seen": True}})
