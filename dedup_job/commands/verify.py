"""`verify`: compare ledger, target and source, completely or by a sample."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from dedup_job.audit.audit_checks import (
    HEAD_CHECKS,
    NUMBERS,
    OF_KEEPERS,
    RESTORE,
    check_head,
    check_ledger,
    check_numbers,
    check_records,
    checks_of_records,
)
from dedup_job.audit.audit_context import (
    AuditSession,
    check_unmoved,
    hash_records,
    open_audit,
    read_chain,
    read_plan,
    read_restored,
)
from dedup_job.audit.audit_database import IDS_AT_ONCE, AuditDatabase
from dedup_job.audit.independent_plan_reader import LedgerDecision
from dedup_job.audit.reread_checks import GROUPS, SIMILARITIES, check_groups, check_similarities
from dedup_job.ledger.rows_on_records import id_of_row
from dedup_job.mongo.ids import id_of
from dedup_job.mongo.pages import since
from dedup_job.pipeline.command_context import Context
from dedup_job.records import ADOPT, BACKFILL, OUTSIDE_SOURCE, REFERENCE, chunked
from dedup_job.report.progress import Advance
from dedup_job.report.verify_result import VerifyResult

RowReader = Callable[[Sequence[bytes]], Iterable[Sequence[bytes]]]
"""Given a page of raw records, returns a row of the audit database for each; it begins with a raw id."""


def verify(context: Context, state: Path | None, advance: Advance) -> VerifyResult:
    """Compare all records; an interrupted verification resumes from its `state` file.

    If the ledger itself is damaged, only its faults are reported.

    Args:
        context: The open connections.
        state: File for the audit database, deleted at the end; None for an unnamed file.
        advance: Called with the number of records that were read since the last call.

    Raises:
        LeaseHeld: If a run is in progress on the target.
    """
    started = time.monotonic()
    with closing(AuditDatabase(state)) as book:
        audit = open_audit(context, book, advance)
        _enter_plans(audit)
        differences = check_ledger(audit)
        if not differences:
            _enter_rest(audit)
            differences = [
                *check_head(audit),
                *check_records(audit, checks_of_records(context)),
                *check_groups(audit),
                *check_similarities(audit),
            ]
        decisions, waiting = book.size("decided"), book.size("waiting")
        check_unmoved(audit)
    if state is not None:
        state.unlink(missing_ok=True)
    seconds = time.monotonic() - started
    return VerifyResult(context.target_name, decisions, True, differences, [], seconds, waiting)


def _enter_plans(audit: AuditSession) -> None:
    """Add every decision of the ledger to the database."""
    first, is_finished = audit.book.position("plans")
    if is_finished:
        return
    plans = read_chain(audit)
    for number in range(first or 0, len(plans)):
        plan = read_plan(audit, plans, number)
        with audit.book.page():
            if plan is not None:
                if plan.mode == REFERENCE:
                    _enter_references(audit, plan.decisions)
                elif plan.mode == ADOPT:
                    audit.book.enter_adopted(plan.decisions)
                else:
                    audit.book.enter_decisions(plan.decisions)
                if plan.mode == BACKFILL:
                    audit.book.enter_last_id(plan.until)
            audit.book.move("plans", number + 1)
        audit.advance(len(plan.decisions) if plan is not None else 0)
    audit.book.move("plans", len(plans), is_finished=True)


def _enter_references(audit: AuditSession, decisions: Sequence[LedgerDecision]) -> None:
    """Add reference records that a plan has kept, and their present versions, to the database."""
    audit.book.enter_adopted(replace(decision, reason=REFERENCE) for decision in decisions)
    for records in audit.context.target.fetch([decision.id for decision in decisions]):
        audit.book.enter("target", hash_records(records.values()))


def _enter_rest(audit: AuditSession) -> None:
    """Add the target, the rows of the ledger, and the undecided ids of the source to the database."""
    book, reader = audit.book, audit.reader
    for table, pages, read in (
        ("dropped", reader.rows("dropped").records_after, hash_records),
        ("exceptions", reader.rows("exceptions").records_after, hash_records),
        ("target", audit.context.kept_pages.records_after, hash_records),
        ("stayed", reader.rows("left").ids_after, _ids_of_rows),
        ("restored", reader.rows("overrides").records_after, read_restored),
    ):
        _enter_pages(audit, table, pages, partial(_enter_rows, book, table, read))
    for change in RESTORE:
        book.change(change)
    _enter_source(audit)


def _enter_rows(book: AuditDatabase, table: str, read: RowReader, page: Sequence[bytes]) -> None:
    """Add the rows of a page to a table."""
    book.enter(table, read(page))


def _ids_of_rows(keys: Sequence[bytes]) -> list[tuple[bytes]]:
    return [(id_of_row(key),) for key in keys]


def _enter_source(audit: AuditSession) -> None:
    """Add undecided ids as `undecided` if runs have missed them, otherwise as `waiting`; and returned ids.

    A record has returned if it had vanished, and is in the source or in the archive.

    Ids in the next run's window are waiting.  Where not every id is an ObjectId, that window is everything;
    an interrupted backfill goes on at its watermark.
    """
    source, head = audit.context.source, audit.head
    only_object_ids = source.has_only_object_ids()
    first = since(head.covered, audit.context.settings.source.lookback, only_object_ids).start
    if head.covered is None and only_object_ids:
        first = head.watermark
    enter = partial(_enter_source_page, audit.book, first)
    _enter_pages(audit, "source", audit.context.source_pages.ids_after, enter)
    if archive := audit.context.archive_if_there(head):
        enter_archived = partial(_enter_archive_page, audit.book)
        _enter_pages(audit, "archive", archive.pages.ids_after, enter_archived)
        # A command that was killed while it brought records back may have left some in both places.
        for ids in audit.book.pages("SELECT id FROM kept_in_archive"):
            audit.book.remove("kept_in_archive", source.present(ids))


def _enter_source_page(book: AuditDatabase, first: bytes | None, page: Sequence[bytes]) -> None:
    """Add the undecided ids of a page, and those of records that had vanished.

    Args:
        book: The audit database.
        first: The ObjectId with which the next run's window begins; None if it begins with the first id.
        page: Raw ids.
    """
    # Raw ObjectIds sort as the server sorts them.
    missed = [raw_id for raw_id in page if first is not None and raw_id < first]
    book.enter_undecided("undecided", missed)
    book.enter_undecided("waiting", set(page).difference(missed))
    book.enter_returned(page)


def _enter_archive_page(book: AuditDatabase, page: Sequence[bytes]) -> None:
    """Add the ids of a page that no plan decided, and those of records that were kept or had vanished."""
    book.enter_undecided("undecided_in_archive", page)
    book.enter_kept_in_archive(page)
    book.enter_returned(page)


def _enter_pages(
    audit: AuditSession,
    stage: str,
    pages: Callable[[bytes | None], Iterator[list[bytes]]],
    enter: Callable[[Sequence[bytes]], None],
) -> None:
    """Add a collection to the database page by page; resume after the last page that was added.

    Args:
        audit: The audit.
        stage: Name under which the position is stored.
        pages: Returns the pages after a raw id, or all pages.
        enter: Adds a page.
    """
    after, is_finished = audit.book.position(stage)
    if is_finished:
        return
    for page in pages(after):
        # One transaction, so that a killed audit never has a page without its position.
        with audit.book.page():
            enter(page)
            audit.book.move(stage, id_of(page[-1]))
        audit.advance(len(page))
    audit.book.move(stage, None, is_finished=True)


# Decisions from one plan; small, so that a sample comes from many plans.
ROWS_OF_A_PLAN = 100


def verify_sample(context: Context, records: int, advance: Advance) -> VerifyResult:
    """Check some decisions; checks that need all decisions are left out.

    After an adoption more checks are left out: adopted records may be keepers and are never sampled.

    Args:
        context: The open connections.
        records: Number of decisions to check.
        advance: Called with the number of decisions that were read since the last call.

    Raises:
        LeaseHeld: If a run is in progress on the target.
    """
    started = time.monotonic()
    with closing(AuditDatabase(None)) as book:
        audit = open_audit(context, book, advance)
        has_adopted = _enter_some_plans(audit, records)
        checks = checks_of_records(context)
        left_out = [
            kind for kind in checks if not kind.of_sample or (has_adopted and kind.name in OF_KEEPERS)
        ]
        differences = check_ledger(audit)
        if not differences:
            _enter_rest_of_sample(audit)
            numbers = [] if has_adopted else check_numbers(audit)
            differences = [*numbers, *check_records(audit, [kind for kind in checks if kind not in left_out])]
        decisions = book.size("decided")
        check_unmoved(audit)
    left_out += [GROUPS] if context.recipe.reader.fields.within else []
    left_out += [SIMILARITIES] if context.recipe.matching.min_similarity else []
    names = [kind.name for kind in (*HEAD_CHECKS, *([NUMBERS] if has_adopted else []), *left_out)]
    seconds = time.monotonic() - started
    return VerifyResult(context.target_name, decisions, False, differences, names, seconds)


def _enter_some_plans(audit: AuditSession, records: int) -> bool:
    """Add random decisions from random plans to the database; return whether an adoption came first."""
    plans = read_chain(audit)
    first = read_plan(audit, plans, 0) if plans else None
    # Unseeded: each verification draws other decisions.
    dice = random.SystemRandom()
    of_each = max(ROWS_OF_A_PLAN, math.ceil(records / max(1, len(plans))))
    sample: list[LedgerDecision] = []
    for number in dice.sample(range(len(plans)), len(plans)):
        remaining = records - len(sample)
        plan = read_plan(audit, plans, number) if remaining else None
        if plan is not None and plan.mode not in OUTSIDE_SOURCE:
            count = min(remaining, of_each, len(plan.decisions))
            sample += dice.sample(plan.decisions, count)
            audit.advance(count)
    audit.book.enter_decisions(sorted(sample, key=attrgetter("place")))
    return first is not None and first.mode in OUTSIDE_SOURCE


def _enter_rest_of_sample(audit: AuditSession) -> None:
    """Add the target's records and the ledger's rows for the sampled records and their keepers."""
    book = audit.book
    ids = book.ids("SELECT id FROM decided")
    keepers = book.ids("SELECT DISTINCT keeper FROM decided WHERE keeper IS NOT NULL")
    for chunk in chunked([*ids, *keepers], IDS_AT_ONCE):
        for portion in audit.context.target.fetch(chunk):
            book.enter("target", hash_records(portion.values()))
    for chunk in chunked(ids, IDS_AT_ONCE):
        for name in ("dropped", "exceptions"):
            book.enter(name, hash_records(audit.reader.rows_on(name, chunk)))
        book.enter("restored", read_restored(audit.reader.rows_on("overrides", chunk)))
    for change in RESTORE:
        book.change(change)
