"""The `runs` collection: when each run started and ended, and with what result."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import DECIDING, REPORTED
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.records import UPDATE, VANISHED

# Runs whose refusals no later run has reported.
UNREPORTED: Mapping[str, Any] = {
    "mode": {"$in": (*DECIDING, UPDATE)},
    "exit_code": {"$nin": REPORTED},
    "undone": {"$exists": False},
    "told_by": {"$exists": False},
}
# A head before its first scan.
NEVER: Mapping[str, Any] = {"covered": None, "seen": None, "looked": None}
# Fields of the head that a run's row stores, and an undo of the run brings back.
BEFORE = (*NEVER, "filter")


@dataclass(frozen=True, slots=True)
class RunId:
    """A run: its name, its mode such as "backfill", and its start by this machine's clock."""

    name: str
    mode: str
    started: datetime

    @classmethod
    def new(cls, mode: str) -> Self:
        """Return a new run that starts now, named after the time."""
        now = datetime.now(UTC)
        return cls(f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}", mode, now)


@dataclass(frozen=True, slots=True)
class RunRow:
    """Writes the row of a run.

    Attributes:
        run: The run.
        collection: Returns a collection of the ledger by its name.
    """

    run: RunId
    collection: Callable[[str], RetryingCollection]

    def begin(self, head: Head) -> None:
        """Write that the run began, with the fields of the head that an undo brings back."""
        row = {
            "_id": self.run.name,
            "mode": self.run.mode,
            "started": self.run.started,
            "fence": head.fence,
        }
        row |= {"recipe": head.digest, **{name: getattr(head, name) for name in BEFORE}}
        self.collection("runs").replace_one({"_id": self.run.name}, row, upsert=True)

    def begin_deciding(self, head: Head, expected: int | None) -> None:
        """Write that the run begins to decide records; `status` derives its progress from this and the head.

        Args:
            head: The present head.
            expected: About how many records the run will decide; None if unknown.
        """
        # The server's clock: `status` measures the rate by it.
        started = {"at": "$$NOW", "decided": head.counts.read, "expected": expected}
        self.collection("runs").update_one({"_id": self.run.name}, [{"$set": {"deciding": started}}])

    def end(self, outcome: Mapping[str, Any]) -> None:
        """Write how the run ended; a successful run has also reported the refusals of earlier runs."""
        runs, changes = self.collection("runs"), {"$set": {**outcome, "ended": datetime.now(UTC)}}
        if outcome.get("exit_code") in REPORTED and self.run.mode in DECIDING:
            others = {**UNREPORTED, "_id": {"$ne": self.run.name}}
            runs.update_many(others, {"$set": {"told_by": self.run.name}})
        runs.update_one({"_id": self.run.name}, changes)

    def refused_before(self) -> Mapping[str, int]:
        """Return the number of refused records, by reason, that no run has reported yet.

        Their runs were killed or failed.  Vanished records that a sync removed are left out.
        """
        runs = self.collection("runs").find(UNREPORTED, {"mode": 1})
        names = [row["_id"] for row in runs if row["_id"] != self.run.name]
        updates = [row["_id"] for row in runs if row["mode"] == UPDATE]
        removed = {"reason": VANISHED.reason, "run": {"$in": updates}}
        refused = {"$match": {"run": {"$in": names}, "action": "refused", "$nor": [removed]}}
        by_reason = {"$group": {"_id": "$reason", "records": {"$sum": 1}}}
        rows = self.collection("exceptions")
        found = rows.aggregate([refused, by_reason]) if names else []
        return {row["_id"]: row["records"] for row in found}
