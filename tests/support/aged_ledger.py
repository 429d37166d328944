"""A ledger whose last full scan was long ago."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

from tests.support.job import Job
from tests.support.late_records import POOL


def aged(numbers: Sequence[int], days: float, **more: Any) -> list[dict[str, Any]]:
    """Return records whose ids contain a time this many days ago."""
    made = datetime.now(UTC) - timedelta(days=days)
    start = ObjectId.from_datetime(made).binary[:4]
    return [{"_id": ObjectId(start + n.to_bytes(8)), "text": POOL[n], **more} for n in numbers]


def head(job: Job) -> dict[str, Any]:
    """Return the head of the job's ledger."""
    return job.ledger("head").find_one() or {}
