"""Targets that refuse records, and their differences from an undisturbed target."""

from __future__ import annotations

from typing import Any

from dedup_job import config
from dedup_job.commands import verify
from dedup_job.pipeline.context import Context
from tests.support.job import Job


def differences(job: Job) -> list[str]:
    with Context(config.check_settings(job.tables, "test")) as context:
        return [one.kind for one in verify.verify(context, None, lambda number: None).differences]


def refused(job: Job) -> dict[Any, str]:
    return {row["_id"]: row["reason"] for row in job.ledger("exceptions").find({"action": "refused"})}
