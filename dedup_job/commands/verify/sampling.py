"""Sampling: verifies some decisions, chosen at random, and the numbers of all records."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from operator import attrgetter

from dedup_job.commands.context import Context
from dedup_job.commands.verify.book import Book
from dedup_job.commands.verify.chain import chain, read_plan
from dedup_job.commands.verify.findings import of_ledger, of_numbers, of_records
from dedup_job.commands.verify.questions import HEAD, NUMBERS, OF_KEEPERS, RECORDS, RESTORE
from dedup_job.commands.verify.subject import (
    Audit,
    check_unmoved,
    hashed,
    opened,
    restored,
    target_name,
)
from dedup_job.ledger.statements import LedgerDecision
from dedup_job.plan import ADOPT
from dedup_job.report.progress import Advance
from dedup_job.report.verified import Verification

ROWS_OF_A_PLAN = 100  # so that a sample comes from many plans
IDS_AT_ONCE = 1_000


def verify_sample(context: Context, records: int, advance: Advance) -> Verification:
    """Compare so many decisions; what can be told from all of them alone is left out.

    Where the target had records of its own, more is left out: they may be keepers, and are in no sample.
    Raises LeaseHeld while a run works on the target.
    """
    started = time.monotonic()
    with closing(Book(None)) as book:
        audit = opened(context, book, advance)
        has_adopted = _enter_some_plans(audit, records)
        left_out = [kind for kind in RECORDS if not kind.of_sample or (has_adopted and kind in OF_KEEPERS)]
        found = of_ledger(audit)
        if not found:
            _enter_rest(audit)
            numbers = [] if has_adopted else of_numbers(audit)
            found = [*numbers, *of_records(audit, [kind for kind in RECORDS if kind not in left_out])]
        decisions = book.size("decided")
        check_unmoved(audit)
    names = [kind.name for kind in (*HEAD, *([NUMBERS] if has_adopted else []), *left_out)]
    return Verification(target_name(context), decisions, False, found, names, time.monotonic() - started)


def _enter_some_plans(audit: Audit, records: int) -> bool:
    """Enter some decisions of each of some plans, until they are enough; returns whether some are adopted."""
    plans = chain(audit)
    first = read_plan(audit, plans, 0) if plans else None
    dice = random.SystemRandom()
    of_each = max(ROWS_OF_A_PLAN, math.ceil(records / max(1, len(plans))))
    taken: list[LedgerDecision] = []
    for number in dice.sample(range(len(plans)), len(plans)):
        left = records - len(taken)
        statement = read_plan(audit, plans, number) if left else None
        if statement is not None and statement.mode != ADOPT:
            some = min(left, of_each, len(statement.decisions))
            taken += dice.sample(statement.decisions, some)
            audit.advance(some)
    audit.book.enter_decisions(sorted(taken, key=attrgetter("place")))
    return first is not None and first.mode == ADOPT


def _enter_rest(audit: Audit) -> None:
    """Enter what target and ledger hold of the records of a sample, and their keepers."""
    book = audit.book
    ids = book.ids("SELECT id FROM decided")
    keepers = book.ids("SELECT DISTINCT keeper FROM decided WHERE keeper IS NOT NULL")
    for some in _runs([*ids, *keepers]):
        for there in audit.context.target.fetch(some):
            book.enter("target", hashed(there.values()))
    for some in _runs(ids):
        for name in ("dropped", "exceptions"):
            book.enter(name, hashed(audit.statements.rows_on(name, some)))
        book.enter("restored", restored(audit.statements.rows_on("overrides", some)))
    for change in RESTORE:
        book.change(change)


def _runs(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (ids[first : first + IDS_AT_ONCE] for first in range(0, len(ids), IDS_AT_ONCE))
