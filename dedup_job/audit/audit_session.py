"""An open audit: its target, ledger, source and audit database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dedup_job.audit.audit_reader import Damaged, Statement, Statements
from dedup_job.audit.sqlite_store import AuditDatabase
from dedup_job.errors import ConfigError, LeaseHeld
from dedup_job.ledger.compatibility import check_filter, check_fits, check_places, check_whole
from dedup_job.ledger.head import Head
from dedup_job.ledger.overrides import Override
from dedup_job.ledger.plan_format import PlanId
from dedup_job.ledger.reader import LedgerReader
from dedup_job.mongo.ids import id_of
from dedup_job.pipeline.context import Context
from dedup_job.records import digest
from dedup_job.report.progress import Advance


@dataclass(frozen=True, slots=True)
class AuditSession:
    """The parts of an audit.

    Attributes:
        context: The open connections.
        reader: Reads the ledger independently of the code that wrote it.
        head: State of the ledger at the start.
        book: The audit database.
        advance: Called with the number of records that were read since the last call.
    """

    context: Context
    reader: Statements
    head: Head
    book: AuditDatabase
    advance: Advance


def open_audit(context: Context, book: AuditDatabase, advance: Advance) -> AuditSession:
    """Open an audit; resume if the database holds an audit of the same state of the ledger.

    Raises:
        LeaseHeld: If a run is in progress: its unfinished work would look like differences.
    """
    reader = Statements(*context.ledger_place)
    head = read_fitting_head(context, reader)
    if reader.is_worked_on(head):
        raise LeaseHeld("a run is in progress on this target; verify when it has finished")
    book.begin(_digest_of_state(context, head))
    return AuditSession(context, reader, head, book, advance)


def check_unmoved(audit: AuditSession) -> None:
    """Raise LeaseHeld if a run has changed the target since the audit was opened."""
    now, then = audit.reader.head(), audit.head
    if now is None or (now.fence, now.last, now.pending) != (then.fence, then.last, then.pending):
        raise LeaseHeld("a run changed this target during the verification; verify again")


def target_name(context: Context) -> str:
    """Return the full name of the target."""
    return f"{context.settings.target.database}.{context.settings.target.collection}"


def read_fitting_head(context: Context, reader: LedgerReader) -> Head:
    """Return the state of the ledger.

    Raises:
        ConfigError: If there is none, or it belongs to other settings.
        StateError: If an undo is unfinished, or a collection was dropped or replaced.
    """
    head = reader.head()
    if head is None:
        raise ConfigError(f"[target]: {target_name(context)} has no ledger; nothing was decided for it yet")
    origin = context.origin
    check_fits(head, origin)
    check_filter(head, origin)
    check_places(head, origin)
    check_whole(head)
    return head


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
    last = head.last.key if head.last else None
    key = [
        server,
        target_name(context),
        context.source_name,
        context.settings.source.filter,
        head.fence,
        last,
    ]
    return digest(json.dumps(key).encode()).hex()


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


def read_plan(audit: AuditSession, plans: Sequence[PlanId | None], number: int) -> Statement | None:
    """Return the contents of a plan; None if it is missing or damaged.

    A damaged plan, and a plan that does not follow the plan before it, are noted as faults.
    """
    plan_id = plans[number]
    if plan_id is None:
        return None
    try:
        statement = audit.reader.statement(plan_id)
    except Damaged:
        audit.book.enter_fault("plan_damaged", number)
        return None
    before = plans[number - 1] if number else None
    if (number == 0 or before is not None) and statement.previous != before:
        audit.book.enter_fault("chain_broken", number)
    return statement
