"""Verification: compares all of the target with the ledger and the source, and says where they disagree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from dedup_job.audit.book import Book, Position
from dedup_job.audit.findings import of_head, of_ledger, of_records
from dedup_job.audit.plans import chain, heard
from dedup_job.audit.questions import RECORDS, RESTORE
from dedup_job.audit.subject import Audit, Told, check_unmoved, hashed, opened, target_name
from dedup_job.mongo.ids import id_of
from dedup_job.mongo.plans import ADOPT, BACKFILL
from dedup_job.parts import Parts
from dedup_job.report.verified import Verification


def verify(parts: Parts, state: Path | None, told: Told) -> Verification:
    """Compare everything; a verification that was broken off goes on where its `state` file ends.

    The ledger comes first: where it is damaged itself, nothing is said of the rest.  `told` hears of how
    many more records were read.  Raises LeaseHeld while a run works on the target.
    """
    started = time.monotonic()
    with closing(Book(state)) as book:
        audit = opened(parts, book, told)
        _enter_plans(audit)
        found = of_ledger(audit)
        if not found:
            _enter_rest(audit)
            found = [*of_head(audit), *of_records(audit, RECORDS)]
        decisions = book.size("decided")
        check_unmoved(audit)
    if state is not None:
        state.unlink(missing_ok=True)
    return Verification(target_name(parts), decisions, True, found, [], time.monotonic() - started)


def _enter_plans(audit: Audit) -> None:
    """Enter every decision."""
    position = audit.book.position("plans")
    if position.is_finished:
        return
    plans = chain(audit)
    for number in range(position.after or 0, len(plans)):
        statement = heard(audit, plans, number)
        with audit.book.page():
            if statement is not None:
                is_adopted = statement.mode == ADOPT
                enter = audit.book.enter_adopted if is_adopted else audit.book.enter_decisions
                enter(statement.decisions)
                if statement.mode == BACKFILL:
                    audit.book.enter_last_id(statement.decisions[-1].id)
            audit.book.move("plans", Position(number + 1))
        audit.told(len(statement.decisions) if statement is not None else 0)
    audit.book.move("plans", Position(len(plans), is_finished=True))


def _enter_rest(audit: Audit) -> None:
    """Enter the target, the rows of the ledger, and what of the source is not decided."""
    book, statements = audit.book, audit.statements
    whole = {name: statements.rows(name).records_after for name in ("dropped", "exceptions")}
    whole["target"] = statements.target(audit.parts.settings.limits.batch_records).records_after
    for name, pages in whole.items():
        _enter_pages(audit, name, pages, partial(_enter_hashed, book, name))
    restored = statements.rows("overrides").ids_after
    _enter_pages(audit, "restored", restored, partial(_enter_ids, book, "restored"))
    book.change(RESTORE)
    if audit.head.watermark is not None:
        # The watermark itself is decided.
        behind = partial(audit.parts.source_scan.ids_after, before=audit.head.watermark)
        _enter_pages(audit, "source", behind, book.enter_undecided)


def _enter_hashed(book: Book, table: str, page: Sequence[bytes]) -> None:
    book.enter(table, hashed(page))


def _enter_ids(book: Book, table: str, page: Sequence[bytes]) -> None:
    book.enter(table, [(raw_id,) for raw_id in page])


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
        audit.told(len(page))
    audit.book.move(stage, Position(is_finished=True))
