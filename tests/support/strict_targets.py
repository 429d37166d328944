"""Targets that refuse records, and their differences from an undisturbed target."""

from __future__ import annotations

from typing import Any

from tests.support.job import Job


def refused(job: Job) -> dict[Any, str]:
    return {row["_id"]: row["reason"] for row in job.ledger("exceptions").find({"action": "refused"})}
