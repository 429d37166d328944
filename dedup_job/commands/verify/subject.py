"""What an audit is about: a target, its ledger and its source, and the book on them."""

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
    """What a verification works with; `advance` is called with how many more records were read."""

    context: Context
    statements: Statements
    head: Head
    book: Book
    advance: Advance


def opened(context: Context, book: Book, advance: Advance) -> Audit:
    """Return the audit of a target, which goes on with a book on the same state of the ledger.

    Raises LeaseHeld while a run works: what it has not finished yet would look like a difference.
    """
    statements = context.statements()
    head = head_of(context, statements)
    if statements.is_worked_on(head):
        raise LeaseHeld("a run works on this target; verify when it has ended")
    book.begin(_identity(context, head))
    return Audit(context, statements, head, book, advance)


def check_unmoved(audit: Audit) -> None:
    """Raise LeaseHeld when a run has worked on the target since the audit was opened."""
    now, then = audit.statements.head(), audit.head
    if now is None or (now.fence, now.last, now.pending) != (then.fence, then.last, then.pending):
        raise LeaseHeld("a run worked on this target meanwhile; verify again when none does")


def target_name(context: Context) -> str:
    """Return the full name of the target."""
    return f"{context.settings.target.database}.{context.settings.target.collection}"


def head_of(context: Context, reader: LedgerReader) -> Head:
    """Return the state of the ledger.

    Raises ConfigError where there is none, or it is of another job, StateError where a run is half undone or
    what the ledger is about is not there any more.
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
    """Return the raw id and the `digest` of each raw record."""
    return [(id_of(raw), digest(raw)) for raw in records]


def restored(rows: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Return from each raw row of `overrides` the id, and the hash of the record as it was put back."""
    return [(override.id, override.hash) for override in map(Override.read, rows)]


def _identity(context: Context, head: Head) -> str:
    """Return what a broken-off verification must be about to be gone on with."""
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
