"""Restore single dropped records: store an override, insert the record, delete its row in `dropped`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from bson import decode

from dedup_job.errors import StateError
from dedup_job.ledger.commit import Ledger
from dedup_job.ledger.overrides import Override
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows import id_of_row
from dedup_job.mongo.id_text import SHOWABLE
from dedup_job.mongo.ids import id_of, selector
from dedup_job.mongo.target import Target
from dedup_job.records import digest


@dataclass(frozen=True, slots=True)
class DroppedRecord:
    """A dropped record.

    Attributes:
        row: Its raw row in `dropped`.
        raw: The raw record, as it is in the source now.
    """

    row: bytes
    raw: bytes


def ids_changed_since(reader: LedgerReader, records: Iterable[DroppedRecord]) -> list[bytes]:
    """Return the raw ids of the records that differ from the version that was judged."""
    by_plan: dict[tuple[str, datetime], dict[bytes, bytes]] = {}
    for record in records:
        about = decode(record.row, SHOWABLE)
        of_plan = by_plan.setdefault((about["run"], about["at"]), {})
        of_plan[id_of_row(record.row)] = digest(record.raw)
    judged = {
        (raw_id, hashed.tobytes())
        for run, at in by_plan
        for stored in reader.plans_of(run, at)
        for raw_id, hashed in zip(stored.plan.ids, stored.plan.hashes, strict=True)
    }
    now = [pair for of_plan in by_plan.values() for pair in of_plan.items()]
    return [raw_id for raw_id, hashed in now if (raw_id, hashed) not in judged]


def restore_record(ledger: Ledger, record: DroppedRecord, why: str, target: Target) -> None:
    """Insert a dropped record into the target, and store that a person decided so.

    Args:
        ledger: The ledger, with the lease.
        record: The record.
        why: The person's reason; may be empty.
        target: Where it is inserted.

    Raises:
        StateError: If the target refuses the record; it stays dropped.
    """
    ledger.check_places()
    override = Override.keep(record.row, record.raw, why, datetime.now(UTC))
    ledger.rows.put("overrides", [override.row])
    refused = target.insert([record.raw])
    # If the target was replaced, the record may be nowhere.
    ledger.check_places()
    outdated = "overrides" if refused else "dropped"
    ledger.collection(outdated).delete_many(selector([id_of(record.row)]))
    if refused:
        # A record that was restored before has no row in `dropped`.
        ledger.rows.put("dropped", [record.row])
        raise StateError(f"the target does not take the record ({refused[0]}); it stays dropped")
