"""An open audit: its target, ledger, source and audit database, and how they are read."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bson import decode_iter

from dedup_job.audit.audit_database import AuditDatabase
from dedup_job.audit.independent_plan_reader import AuditedPlan, DamagedPlan, read_plan_document
from dedup_job.errors import LeaseHeld
from dedup_job.ledger.head import Head, Holder
from dedup_job.ledger.overrides import Override
from dedup_job.ledger.plan_format import PlanId
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows_on_records import row_keys
from dedup_job.mongo.ids import id_of, portions, selector
from dedup_job.mongo.pages import Pages
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.pipeline.command_context import Context, require_head
from dedup_job.records import digest
from dedup_job.report.progress import Advance

log = logging.getLogger("dedup_job")


class AuditReader(LedgerReader):
    """Reads the ledger and the target for an audit; writes nothing."""

    def is_worked_on(self, head: Head) -> bool:
        """Return whether a run holds the lease, by the server's clock."""
        if head.lease is None or Holder.read(head.lease).is_gone():
            return False
        return bool(self.now() < head.lease["until"])

    def chain(self, head: Head) -> list[PlanId | None]:
        """Return the id of each applied plan, by number; None for a missing plan.

        A killed run may have left a second plan with the same number.  The applied one is the plan that the
        next plan names as its predecessor.  All other plans are found by their keys, without reading them.
        """
        stored: dict[int, list[PlanId]] = {}
        for page in Pages(self.collection("plans")).ids_after(None):
            for key in decode_iter(b"".join(page)):
                stored.setdefault(key["_id"]["number"], []).append(PlanId.read(key["_id"]))
        chain: list[PlanId | None] = []
        # Backwards from the head, because a plan names the plan before it.
        wanted = head.last
        for number in reversed(range(head.next)):
            there = stored.get(number, [])
            found = wanted if wanted in there else max(there, key=lambda one: one.fence, default=None)
            chain.append(found)
            is_clear = len(stored.get(number - 1, ())) == 1
            wanted = stored[number - 1][0] if is_clear else self._previous(found)
        return chain[::-1]

    def _previous(self, plan_id: PlanId | None) -> PlanId | None:
        """Return the plan before a plan; None if there is none, or the plan is missing."""
        if plan_id is None:
            return None
        stored = self.collection("plans").find_one({"_id": plan_id.key}, {"previous": 1})
        return PlanId.read(stored["previous"]) if stored and stored.get("previous") else None

    def audited_plan(self, plan_id: PlanId) -> AuditedPlan:
        """Read a plan.

        Raises:
            DamagedPlan: If its checksum or columns are inconsistent.
            LeaseHeld: If the plan was removed since the audit began.
        """
        packed = self.collection("plans").find_one({"_id": plan_id.key})
        if packed is None:
            raise LeaseHeld(f"another command has removed plan {plan_id.number} meanwhile; verify again")
        return read_plan_document(packed)

    def rows(self, name: str) -> Pages:
        """Return a reader of one of the ledger's collections: dropped, exceptions or overrides."""
        return Pages(self.collection(name))

    def rows_on(self, name: str, ids: Sequence[bytes]) -> list[bytes]:
        """Return the raw rows about some records.

        Args:
            name: Name of the ledger's collection.
            ids: Raw ids of the records.
        """
        rows = self.collection(name).raw_bson()
        return [bytes(row.raw) for keys in portions(row_keys(ids)) for row in rows.find(selector(keys))]

    def size(self, name: str | None) -> int:
        """Return the exact number of rows in one of the ledger's collections; None is the target itself."""
        # With the hint, the server counts the _id index and reads no documents.
        target = RetryingCollection(self._database[self._target], "the target", self._retry)
        collection = target if name is None else self.collection(name)
        return collection.count_documents({}, hint="_id_")


@dataclass(frozen=True, slots=True)
class AuditSession:
    """The parts of an audit.

    Attributes:
        context: The open connections.
        reader: Reads ledger and target.
        head: State of the ledger at the start.
        book: The audit database.
        advance: Called with the number of records that were read since the last call.
    """

    context: Context
    reader: AuditReader
    head: Head
    book: AuditDatabase
    advance: Advance


def open_audit(context: Context, book: AuditDatabase, advance: Advance) -> AuditSession:
    """Open an audit; resume if the database holds an audit of the same state of the ledger.

    Raises:
        LeaseHeld: If a run is in progress: its unfinished work would look like differences.
    """
    reader = AuditReader(*context.ledger_place)
    head = require_head(context)
    if reader.is_worked_on(head):
        raise LeaseHeld("a run is in progress on this target; verify when it has finished")
    if book.begin(_digest_of_state(context, head)):
        log.info("going on with the verification in the state file; delete the file to check all again")
    return AuditSession(context, reader, head, book, advance)


def check_unmoved(audit: AuditSession) -> None:
    """Raise LeaseHeld if a run has changed the target since the audit was opened."""
    now, then = audit.reader.head(), audit.head
    if now is None or (now.fence, now.last, now.pending) != (then.fence, then.last, then.pending):
        raise LeaseHeld("a run changed this target during the verification; verify again")


def hash_records(records: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the raw id and the hash of each raw record."""
    return [(id_of(raw), digest(raw)) for raw in records]


def read_restored(rows: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the id of each raw row of `overrides`, and the hash of the restored version."""
    return [(override.id, override.hash) for override in map(Override.read, rows)]


def _digest_of_state(context: Context, head: Head) -> str:
    """Return a digest of everything that must be equal for an audit to be resumed."""
    # Without user and password, which may change.
    server = context.settings.target_uri().rpartition("@")[2]
    target = f"{context.settings.target.database}.{context.settings.target.collection}"
    source = (context.source_name, context.settings.source.filter)
    state = [server, target, *source, head.fence, head.last.key if head.last else None]
    return digest(json.dumps(state).encode()).hex()


def read_chain(audit: AuditSession) -> list[PlanId | None]:
    """Return the id of each applied plan, by number; None for a missing plan.

    Missing plans, and a last plan that is not the head's last plan, are noted as faults.
    """
    plans = audit.reader.chain(audit.head)
    for number, plan_id in enumerate(plans):
        if plan_id is None:
            audit.book.enter_fault("plan_missing", number)
    if plans and plans[-1] not in (None, audit.head.last):
        audit.book.enter_fault("chain_broken", len(plans) - 1)
    return plans


def read_plan(audit: AuditSession, plans: Sequence[PlanId | None], number: int) -> AuditedPlan | None:
    """Return the contents of a plan; None if it is missing or damaged.

    A damaged plan, and a plan that does not follow the plan before it, are noted as faults.
    """
    plan_id = plans[number]
    if plan_id is None:
        return None
    try:
        plan = audit.reader.audited_plan(plan_id)
    except DamagedPlan:
        audit.book.enter_fault("plan_damaged", number)
        return None
    before = plans[number - 1] if number else None
    if (number == 0 or before is not None) and plan.previous != (before and before.key):
        audit.book.enter_fault("chain_broken", number)
    return plan
