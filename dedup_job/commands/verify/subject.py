"""An open audit: its target, ledger, source and audit database."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from dedup_job.commands.context import Context
from dedup_job.commands.verify.book import Book
from dedup_job.document import digest
from dedup_job.errors import ConfigError, LeaseHeld
from dedup_job.ledger.fitting import check_filter, check_fits, check_places, check_whole
from dedup_job.ledger.head import Head
from dedup_job.ledger.overrides import Override
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.statements import Statements
from dedup_job.mongo.ids import id_of
from dedup_job.report.progress import Advance


@dataclass(frozen=True, slots=True)
class Audit:
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
    book: Book
    advance: Advance


def opened(context: Context, book: Book, advance: Advance) -> Audit:
    """Open an audit; resume if the database holds an audit of the same state of the ledger.

    Raises:
        LeaseHeld: If a run is in progress: its unfinished work would look like differences.
    """
    reader = context.audit_reader()
    head = head_of(context, reader)
    if reader.is_worked_on(head):
        raise LeaseHeld("a run is in progress on this target; verify when it has finished")
    book.begin(_digest_of_state(context, head))
    return Audit(context, reader, head, book, advance)


def check_unmoved(audit: Audit) -> None:
    """Raise LeaseHeld if a run has changed the target since the audit was opened."""
    now, then = audit.reader.head(), audit.head
    if now is None or (now.fence, now.last, now.pending) != (then.fence, then.last, then.pending):
        raise LeaseHeld("a run changed this target during the verification; verify again")


def target_name(context: Context) -> str:
    """Return the full name of the target."""
    return f"{context.settings.target.database}.{context.settings.target.collection}"


def head_of(context: Context, reader: LedgerReader) -> Head:
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


def hashed(records: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the raw id and the hash of each raw record."""
    return [(id_of(raw), digest(raw)) for raw in records]


def restored(rows: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
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
