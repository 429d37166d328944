"""Verification: compares all of the target with the ledger and the source, and says where they disagree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from dedup_job.commands.context import Context
from dedup_job.commands.verify.book import Book, Position
from dedup_job.commands.verify.chain import chain, read_plan
from dedup_job.commands.verify.findings import of_head, of_ledger, of_records
from dedup_job.commands.verify.questions import RECORDS, RESTORE
from dedup_job.commands.verify.subject import (
    Audit,
    check_unmoved,
    hashed,
    opened,
    restored,
    target_name,
)
from dedup_job.ledger.rows import id_of_row
from dedup_job.mongo.ids import id_of
from dedup_job.mongo.raw_documents import HEAD, OBJECT_ID
from dedup_job.mongo.window import since
from dedup_job.plan import ADOPT, BACKFILL
from dedup_job.report.progress import Advance
from dedup_job.report.verified import Verification


def verify(context: Context, state: Path | None, advance: Advance) -> Verification:
    """Compare everything; a verification that was broken off goes on where its `state` file ends.

    The ledger comes first: where it is damaged itself, nothing is said of the rest.  `advance` is called with
    how many more records were read.  Raises LeaseHeld while a run works on the target.
    """
    started = time.monotonic()
    with closing(Book(state)) as book:
        audit = opened(context, book, advance)
        _enter_plans(audit)
        found = of_ledger(audit)
        if not found:
            _enter_rest(audit)
            found = [*of_head(audit), *of_records(audit, RECORDS)]
        decisions, waiting = book.size("decided"), book.size("waiting")
        check_unmoved(audit)
    if state is not None:
        state.unlink(missing_ok=True)
    seconds = time.monotonic() - started
    return Verification(target_name(context), decisions, True, found, [], seconds, waiting)


def _enter_plans(audit: Audit) -> None:
    """Enter every decision."""
    position = audit.book.position("plans")
    if position.is_finished:
        return
    plans = chain(audit)
    for number in range(position.after or 0, len(plans)):
        statement = read_plan(audit, plans, number)
        with audit.book.page():
            if statement is not None:
                is_adopted = statement.mode == ADOPT
                enter = audit.book.enter_adopted if is_adopted else audit.book.enter_decisions
                enter(statement.decisions)
                if statement.mode == BACKFILL:
                    audit.book.enter_last_id(statement.until)
            audit.book.move("plans", Position(number + 1))
        audit.advance(len(statement.decisions) if statement is not None else 0)
    audit.book.move("plans", Position(len(plans), is_finished=True))


def _enter_rest(audit: Audit) -> None:
    """Enter the target, the rows of the ledger, and what of the source is not decided."""
    book, statements = audit.book, audit.statements
    whole = {name: statements.rows(name).records_after for name in ("dropped", "exceptions")}
    whole["target"] = statements.target(audit.context.settings.limits.batch_records).records_after
    for name, pages in whole.items():
        _enter_pages(audit, name, pages, partial(_enter_hashed, book, name))
    left = statements.rows("left").ids_after
    _enter_pages(audit, "left", left, partial(_enter_ids_of_rows, book, "stayed"))
    _enter_pages(
        audit,
        "restored",
        statements.rows("overrides").records_after,
        lambda page: book.enter("restored", restored(page)),
    )
    for change in RESTORE:
        book.change(change)
    _enter_source(audit)


def _enter_source(audit: Audit) -> None:
    """Enter what of the source is not decided, and whether runs have passed it by or it is still to come.

    What the next run's window holds is to come; of ids without a time, what lies behind the watermark of a
    backfill.  Where there is none, each run looked at all of them.
    """
    ids, head = audit.context.source_pages.ids_after, audit.head
    covered, lookback = head.covered, audit.context.settings.source.lookback
    first = since(covered, lookback, only_object_ids=True).start if covered else None
    if head.watermark is not None:
        # The watermark itself is decided.
        behind = partial(_enter_undecided, audit.book, first, True)
        _enter_pages(audit, "source behind", partial(ids, before=head.watermark), behind)
    rest = partial(_enter_undecided, audit.book, first, covered is not None and head.watermark is None)

    def from_watermark(after: bytes | None) -> Iterator[list[bytes]]:
        return ids(after or head.watermark)

    _enter_pages(audit, "source", from_watermark, rest)


def _enter_undecided(book: Book, first: bytes | None, is_passed: bool, page: Sequence[bytes]) -> None:
    """Enter the undecided ids of a page; `first` is the ObjectId with which the next run's window begins."""
    passed = [raw_id for raw_id in page if _is_passed(raw_id, first, is_passed)]
    book.enter_undecided("undecided", passed)
    book.enter_undecided("waiting", set(page).difference(passed))


def _is_passed(raw_id: bytes, first: bytes | None, otherwise: bool) -> bool:
    if first is None or raw_id[HEAD] != OBJECT_ID:
        return otherwise
    return raw_id < first  # ObjectIds: bytes sort as the server does


def _enter_hashed(book: Book, table: str, page: Sequence[bytes]) -> None:
    book.enter(table, hashed(page))


def _enter_ids_of_rows(book: Book, table: str, page: Sequence[bytes]) -> None:
    book.enter(table, [(id_of_row(key),) for key in page])


def _enter_pages(
    audit: Audit,
    stage: str,
    pages: Callable[[bytes | None], Iterator[list[bytes]]],
    enter: Callable[[Sequence[bytes]], None],
) -> None:
    """Enter a collection page by page, from where it was left."""
    position = audit.book.position(stage)
    if position.is_finished:
        return
    for page in pages(position.after):
        with audit.book.page():
            enter(page)
            audit.book.move(stage, Position(id_of(page[-1])))
        audit.advance(len(page))
    audit.book.move(stage, Position(is_finished=True))
