"""Collections and commands shared by the tests of `restore`."""

from __future__ import annotations

from random import Random
from typing import Any

from dedup_job.commands.restore import restore as restore_command
from dedup_job.commands.why import why as why_command
from dedup_job.report.undo_and_restore_results import RestoreResult
from tests.support.job import Job

TEXT = "".join(chr(Random(n).randrange(0x4E00, 0x9000)) for n in range(60))


def restore(job: Job, *ids: str, why: str = "") -> RestoreResult:
    with job.context() as context:
        return restore_command(context, ids, why)


def why(job: Job, given: str) -> dict[str, Any]:
    with job.context() as context:
        return why_command(context, given)


def in_target(job: Job) -> list[Any]:
    return [record["_id"] for record in job.target.find().sort("_id", 1)]


def with_two_copies(job: Job) -> str:
    """Keep record 1, drop records 2 and 3; return the run."""
    job.source.insert_many([{"_id": n, "text": TEXT, "more": {"n": n}} for n in (1, 2, 3)])
    return job.decide("backfill").run
