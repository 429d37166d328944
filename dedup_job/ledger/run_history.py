"""The `runs` collection: when each run started and ended, and with what result."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from pymongo.collection import Collection

from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import DECIDING, REPORTED
from dedup_job.mongo.client import RetryPolicy, named_errors
from dedup_job.records import APPLY, VANISHED

UNREPORTED: Mapping[str, Any] = {
    "mode": {"$in": (*DECIDING, APPLY)},
    "exit_code": {"$nin": REPORTED},
    "undone": {"$exists": False},
    "told_by": {"$exists": False},
}
NEVER: Mapping[str, Any] = {"covered": None, "seen": None, "looked": None}
BEFORE = (*NEVER, "filter")  # what the head says before a run, and after it was undone


@dataclass(frozen=True, slots=True)
class RunId:
    """Which run decides: its name, and what it does ("backfill" or "run")."""

    name: str
    mode: str
    started: datetime

    @classmethod
    def new(cls, mode: str) -> Self:
        """Name a run after the time at which it starts, which is now."""
        now = datetime.now(UTC)
        return cls(f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}", mode, now)


@dataclass(frozen=True, slots=True)
class RunRow:
    """Writes the row of a run; `collection` gives a collection of the ledger by its name."""

    run: RunId
    collection: Callable[[str], Collection[Any]]
    patience: RetryPolicy

    def begin(self, head: Head) -> None:
        """Write that the run began; an answer that was lost makes this happen twice.

        The row holds, too, what the head has to say again when the run is undone.
        """
        row = {
            "_id": self.run.name,
            "mode": self.run.mode,
            "started": self.run.started,
            "fence": head.fence,
        }
        row |= {"recipe": head.digest, **{name: getattr(head, name) for name in BEFORE}}
        with named_errors("the ledger"):
            self.patience(
                lambda: self.collection("runs").replace_one({"_id": self.run.name}, row, upsert=True)
            )

    def end(self, outcome: Mapping[str, Any]) -> None:
        """Write how it ended; by its exit code it tells what earlier runs did not."""
        runs, changes = self.collection("runs"), {"$set": {**outcome, "ended": datetime.now(UTC)}}
        with named_errors("the ledger"):
            if outcome.get("exit_code") in REPORTED and self.run.mode in DECIDING:
                others = {**UNREPORTED, "_id": {"$ne": self.run.name}}
                self.patience(lambda: runs.update_many(others, {"$set": {"told_by": self.run.name}}))
            self.patience(lambda: runs.update_one({"_id": self.run.name}, changes))

    def refused_before(self) -> Mapping[str, int]:
        """Return how many records earlier runs had refused, by reason, that ended without saying so.

        They were killed, or broken off with another exit code; this run goes on from there.  What an apply
        has taken out, as it had vanished, is not among them.
        """
        with named_errors("the ledger"):
            runs = self.patience(lambda: list(self.collection("runs").find(UNREPORTED, {"mode": 1})))
            names = [row["_id"] for row in runs if row["_id"] != self.run.name]
            applies = [row["_id"] for row in runs if row["mode"] == APPLY]
            taken_out = {"reason": VANISHED.reason, "run": {"$in": applies}}
            refused = {"$match": {"run": {"$in": names}, "action": "refused", "$nor": [taken_out]}}
            by_reason = {"$group": {"_id": "$reason", "records": {"$sum": 1}}}
            rows = self.collection("exceptions")
            found = self.patience(lambda: list(rows.aggregate([refused, by_reason]))) if names else []
        return {row["_id"]: row["records"] for row in found}
