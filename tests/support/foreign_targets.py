"""Targets that somebody else filled or emptied, and runs killed at a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.records import Counts
from tests.support.job import Job


def rehearsed(job: Job, fresh: bool = False) -> Counts:
    with job.context() as context:
        return dry_run(context, DryRun(fresh=fresh), lambda plan: None).counts


class Killed(BaseException):
    """Raised where the process would be killed."""


def killed_at(number: int, work: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def instead(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise Killed
        return work(*arguments)

    return instead
