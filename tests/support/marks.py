"""Write the marks of a job, in this process."""

from __future__ import annotations

from dedup_job.commands.mark import mark
from tests.support.job import Job


def write_marks(job: Job) -> None:
    """Mark the dropped records of the source."""
    with job.context() as context:
        mark(context, lambda number: None)
