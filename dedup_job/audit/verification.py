"""Verification: compares the target with the ledger and the source, and says where they disagree."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from dedup_job.audit.book import Book, Position
from dedup_job.audit.questions import (
    ALTERED,
    HEAD,
    LEDGER,
    MISSING,
    NUMBERS,
    RECORDS,
    RESTORE,
    Kind,
)
from dedup_job.audit.subject import head_of, target_name
from dedup_job.errors import LeaseHeld
from dedup_job.mongo.head import Head, counts_key
from dedup_job.mongo.ids import extended, id_of
from dedup_job.mongo.plans import BACKFILL, PlanId
from dedup_job.mongo.statements import Damaged, Statement, Statements
from dedup_job.report.verified import Difference, Verification
from dedup_job.wiring import Parts

SAMPLES = 5
ROWS_OF_A_PLAN = 100  # in a sample, so that it comes from many plans
IDS_AT_ONCE = 1_000
Told = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Audit:
    """What a verification works with; `told` hears of how many more records were read."""

    parts: Parts
    statements: Statements
    head: Head
    book: Book
    told: Told


def verify(parts: Parts, state: Path | None, told: Told) -> Verification:
    """Compare everything; a verification that was broken off goes on where its `state` file ends.

    The ledger comes first: where it is damaged itself, nothing is said of the rest.  Raises LeaseHeld while
    a run works on the target, because what it has not finished yet would look like a difference.
    """
    started = time.monotonic()
    statements, head = _ledger(parts)
    with closing(Book(state)) as book:
        audit = Audit(parts, statements, head, book, told)
        book.begin(_identity(parts, head))
        _enter_plans(audit)
        found = _of_ledger(audit)
        if not found:
            _enter_rest(audit)
            found = [*_of_head(audit), *_of_records(audit, RECORDS)]
        decisions = book.size("decided")
        _check_unmoved(statements, head)
    if state is not None:
        state.unlink(missing_ok=True)
    return Verification(target_name(parts), decisions, True, found, [], time.monotonic() - started)


def verify_sample(parts: Parts, records: int, told: Told) -> Verification:
    """Compare so many decisions, chosen at random, and the numbers of all; what needs all is left out."""
    started = time.monotonic()
    statements, head = _ledger(parts)
    with closing(Book(None)) as book:
        audit = Audit(parts, statements, head, book, told)
        book.begin(_identity(parts, head))
        _sample_plans(audit, records)
        found = _of_ledger(audit)
        if not found:
            _sample_rest(audit)
            found = [*_numbers(audit), *_of_records(audit, [kind for kind in RECORDS if kind.of_sample])]
        decisions = book.size("decided")
        _check_unmoved(statements, head)
    left_out = [kind.name for kind in (*HEAD, *RECORDS) if not kind.of_sample]
    return Verification(target_name(parts), decisions, False, found, left_out, time.monotonic() - started)


def _ledger(parts: Parts) -> tuple[Statements, Head]:
    """Return the ledger and its head; raises LeaseHeld while a run works on it."""
    statements = parts.statements()
    head = head_of(parts, statements)
    if statements.is_worked_on(head):
        raise LeaseHeld("a run works on this target; verify when it has ended")
    return statements, head


def _check_unmoved(statements: Statements, head: Head) -> None:
    now = statements.head()
    if now is None or (now.fence, now.last, now.pending) != (head.fence, head.last, head.pending):
        raise LeaseHeld("a run worked on this target meanwhile; verify again when none does")


def _identity(parts: Parts, head: Head) -> str:
    """Return what a broken-off verification must be about to be gone on with."""
    server = parts.settings.target_uri().rpartition("@")[2]
    last = head.last.key if head.last else None
    key = [server, target_name(parts), parts.source_name, parts.settings.source.filter, head.fence, last]
    return xxhash.xxh3_128_hexdigest(json.dumps(key).encode())


def _enter_plans(audit: Audit) -> None:
    """Enter every decision."""
    position = audit.book.position("plans")
    if position.is_finished:
        return
    chain = _chain(audit)
    for number in range(position.after or 0, len(chain)):
        statement = _heard(audit, chain, number)
        with audit.book.page():
            if statement is not None:
                audit.book.enter_decisions(statement.decisions)
                if statement.mode == BACKFILL:
                    audit.book.enter_last_id(statement.decisions[-1].id)
            audit.book.move("plans", Position(number + 1))
        audit.told(len(statement.decisions) if statement is not None else 0)
    audit.book.move("plans", Position(len(chain), is_finished=True))


def _chain(audit: Audit) -> list[PlanId | None]:
    """Return which plans were carried out, and note those that are missing and a last one that is another."""
    chain = audit.statements.chain(audit.head)
    for number, plan_id in enumerate(chain):
        if plan_id is None:
            audit.book.enter_fault("plan_missing", number)
    if chain and chain[-1] not in (None, audit.head.last):
        audit.book.enter_fault("chain_broken", len(chain) - 1)
    return chain


def _heard(audit: Audit, chain: Sequence[PlanId | None], number: int) -> Statement | None:
    """Return what a plan says; note one that is damaged, or does not follow the one before it."""
    plan_id = chain[number]
    if plan_id is None:
        return None
    try:
        statement = audit.statements.statement(plan_id)
    except Damaged:
        audit.book.enter_fault("plan_damaged", number)
        return None
    before = chain[number - 1] if number else None
    if (number == 0 or before is not None) and statement.previous != before:
        audit.book.enter_fault("chain_broken", number)
    return statement


def _enter_rest(audit: Audit) -> None:
    """Enter the target, the rows of the ledger, and what of the source is not decided."""
    book, statements = audit.book, audit.statements
    records = audit.parts.settings.limits.batch_records

    def enter_records(page: Sequence[bytes]) -> None:
        book.enter("target", [(id_of(raw), xxhash.xxh3_128_digest(raw)) for raw in page])

    def enter_rows(name: str) -> Callable[[Sequence[bytes]], None]:
        return lambda page: book.enter(name, _hashed(page))

    def enter_restored(page: Sequence[bytes]) -> None:
        book.enter("restored", [(id_of(raw),) for raw in page])

    target = statements.target(records)
    _enter_pages(audit, "target", target.records_after, enter_records)
    for name in ("dropped", "exceptions"):
        _enter_pages(audit, name, statements.rows(name).records_after, enter_rows(name))
    _enter_pages(audit, "restored", statements.rows("overrides").records_after, enter_restored)
    book.change(RESTORE)
    if audit.head.watermark is not None:
        # The watermark itself is decided.
        behind = partial(audit.parts.source_scan.ids_after, before=audit.head.watermark)
        _enter_pages(audit, "source", behind, book.enter_undecided)


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


def _hashed(rows: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    return [(id_of(raw), xxhash.xxh3_128_digest(raw)) for raw in rows]


def _sample_plans(audit: Audit, records: int) -> None:
    """Enter some decisions of each of some plans, until they are enough."""
    chain = _chain(audit)
    dice = random.SystemRandom()
    of_each = max(ROWS_OF_A_PLAN, math.ceil(records / max(1, len(chain))))
    left = records
    for number in dice.sample(range(len(chain)), len(chain)):
        statement = _heard(audit, chain, number) if left else None
        if statement is not None:
            taken = min(left, of_each, len(statement.decisions))
            audit.book.enter_decisions(dice.sample(statement.decisions, taken))
            audit.told(taken)
            left -= taken


def _sample_rest(audit: Audit) -> None:
    """Enter what target and ledger hold of the records of a sample, and their keepers."""
    book = audit.book
    ids = book.ids("SELECT id FROM decided")
    keepers = book.ids("SELECT DISTINCT keeper FROM decided WHERE keeper IS NOT NULL")
    for some in _runs([*ids, *keepers]):
        book.enter("target", _hashed(audit.parts.target.fetch(some).values()))
    for some in _runs(ids):
        for name in ("dropped", "exceptions"):
            book.enter(name, _hashed(audit.statements.rows_on(name, some)))
        book.enter("restored", [(id_of(raw),) for raw in audit.statements.rows_on("overrides", some)])
    book.change(RESTORE)


def _runs(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (ids[first : first + IDS_AT_ONCE] for first in range(0, len(ids), IDS_AT_ONCE))


def _of_ledger(audit: Audit) -> list[Difference]:
    """Return what is wrong with the ledger itself."""
    found = {kind.name: audit.book.faults(kind.name) for kind in LEDGER}
    if audit.head.pending is not None:
        found["pending"] = [audit.head.pending.number]
    return [
        Difference(kind.name, kind.means, len(numbers), [{"plan": number} for number in numbers[:SAMPLES]])
        for kind in LEDGER
        if (numbers := found[kind.name])
    ]


def _of_head(audit: Audit) -> Iterator[Difference]:
    """Yield where the head is not the sum of the plans."""
    head, counted = audit.head, counts_key(audit.book.counts())
    last = audit.book.last_id()
    in_head = counts_key(head.counts)
    shown = {name: {"head": in_head[name], "plans": n} for name, n in counted.items() if n != in_head[name]}
    counters, watermark = HEAD
    if shown:
        yield Difference(counters.name, counters.means, len(shown), [shown])
    if last != head.watermark:
        ids = {"head": head.watermark, "plans": last}
        pair = {name: extended(raw_id) if raw_id else None for name, raw_id in ids.items()}
        yield Difference(watermark.name, watermark.means, 1, [pair])


def _numbers(audit: Audit) -> Iterator[Difference]:
    """Compare how many records the collections have with the counts in the head, as a sample can."""
    counts, statements = audit.head.counts, audit.statements
    passed, refused = sum(counts.passed.values()), sum(counts.refused.values())
    restored = statements.size("overrides")
    # Who put a record there that refused another is not the ledger's affair.
    kept = counts.unique + passed + counts.refused.get("conflict", 0) + restored
    expected = {None: kept, "dropped": counts.duplicate - restored, "exceptions": passed + refused}
    wrong = [
        {"collection": name or "the target", "records": there, "ledger": number}
        for name, number in expected.items()
        if (there := statements.size(name)) != number
    ]
    if wrong:
        yield Difference(NUMBERS.name, NUMBERS.means, len(wrong), wrong)


def _of_records(audit: Audit, kinds: Iterable[Kind]) -> Iterator[Difference]:
    """Ask each question, and show of the first records what a person needs to know."""
    for kind in kinds:
        count, ids = audit.book.answer(kind.question, SAMPLES)
        if count and kind in (MISSING, ALTERED):
            yield Difference(kind.name, kind.means, count, _with_source(audit, ids))
        elif count:
            yield Difference(kind.name, kind.means, count, [{"id": extended(raw_id)} for raw_id in ids])


def _with_source(audit: Audit, ids: Sequence[bytes]) -> list[dict[str, Any]]:
    """Say of each id whether the source still has the record as it was judged."""
    there = audit.parts.source.fetch(ids)
    shown = []
    for raw_id in ids:
        if raw_id not in there:
            state = "gone"
        elif xxhash.xxh3_128_digest(there[raw_id]) == audit.book.hash_of(raw_id):
            state = "as judged"
        else:
            state = "changed"
        shown.append({"id": extended(raw_id), "source": state})
    return shown
