"""Restore single dropped records: note the override, insert the record, remove the row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bson import decode

from dedup_job.errors import StateError
from dedup_job.ledger.commit import Ledger
from dedup_job.ledger.overrides import Override
from dedup_job.ledger.rows import id_of_row
from dedup_job.mongo.client import named_errors
from dedup_job.mongo.id_text import SHOWABLE
from dedup_job.mongo.ids import id_of, selector
from dedup_job.mongo.target import Target
from dedup_job.records import digest


@dataclass(frozen=True, slots=True)
class Dropped:
    """A record that was dropped: the raw row that says so, and the raw record as it is in the source."""

    row: bytes
    raw: bytes


class RestoreLedger(Ledger):
    """A ledger in which a person overrides verdicts."""

    def restore(self, records: Sequence[Dropped], why: str, target: Target) -> None:
        """Put these records back; raises StateError for one that the target refuses, which stays dropped."""
        for record in records:
            self._restore(record, why, target)

    def changed(self, records: Iterable[Dropped]) -> list[bytes]:
        """Return the ids of those records that the source has otherwise than they were judged."""
        by_plan: dict[tuple[str, datetime], dict[bytes, bytes]] = {}
        for record in records:
            about = decode(record.row, SHOWABLE)
            of_plan = by_plan.setdefault((about["run"], about["at"]), {})
            of_plan[id_of_row(record.row)] = digest(record.raw)
        judged = {
            (raw_id, hashed.tobytes())
            for run, at in by_plan
            for stored in self.plans_of(run, at)
            for raw_id, hashed in zip(stored.plan.ids, stored.plan.hashes, strict=True)
        }
        now = [pair for of_plan in by_plan.values() for pair in of_plan.items()]
        return [raw_id for raw_id, hashed in now if (raw_id, hashed) not in judged]

    def _restore(self, record: Dropped, why: str, target: Target) -> None:
        self._check_places()
        override = Override.keep(record.row, record.raw, why, datetime.now(UTC))
        self._row_writer.put("overrides", [override.row])
        refused = target.insert([record.raw])
        self._check_places()  # else the record may be nowhere
        outdated = "overrides" if refused else "dropped"
        same = selector([id_of(record.row)])
        with named_errors("the ledger"):
            self._patience(lambda: self._collection(outdated).delete_many(same))
        if refused:
            self._row_writer.put("dropped", [record.row])  # where it was restored before, there is none
            raise StateError(f"the target does not take the record ({refused[0]}); it stays dropped")
