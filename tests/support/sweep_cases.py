"""Commands and collections shared by the tests of `sweep`."""

from __future__ import annotations

from typing import Any

from dedup_job.commands.restore import restore as restore_records
from dedup_job.commands.sweep import open_archive
from dedup_job.commands.sweep import sweep as move_records
from dedup_job.report.change_source_results import SweepResult
from tests.support.job import RAW, Job

ARCHIVE = "pages_archive"


def sweep(job: Job) -> SweepResult:
    with job.context() as context:
        return move_records(context, open_archive(context, ARCHIVE), lambda count: None)


def restore(job: Job, *ids: Any) -> None:
    with job.context() as context:
        restore_records(context, [str(one) for one in ids], "")


def records(job: Job, name: str = "pages") -> dict[Any, bytes]:
    """Return the raw records of a collection of the job's database, by id."""
    return {one["_id"]: bytes(one.raw) for one in job.database[name].with_options(RAW).find()}


def archived(job: Job) -> dict[Any, bytes]:
    return records(job, ARCHIVE)
