"""`verify --sample`: check randomly chosen decisions, and the counts of all records."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from operator import attrgetter

from dedup_job.audit.audit_reader import LedgerDecision
from dedup_job.audit.audit_session import (
    AuditSession,
    check_unmoved,
    hash_records,
    open_audit,
    read_chain,
    read_plan,
    read_restored,
    target_name,
)
from dedup_job.audit.checks import (
    HEAD,
    NUMBERS,
    OF_KEEPERS,
    RECORDS,
    RESTORE,
    check_ledger,
    check_numbers,
    check_records,
)
from dedup_job.audit.database import AuditDatabase
from dedup_job.pipeline.context import Context
from dedup_job.records import ADOPT
from dedup_job.report.progress import Advance
from dedup_job.report.verify_results import VerifyResult

ROWS_OF_A_PLAN = 100  # so that a sample comes from many plans
IDS_AT_ONCE = 1_000


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
        left_out = [kind for kind in RECORDS if not kind.of_sample or (has_adopted and kind in OF_KEEPERS)]
        differences = check_ledger(audit)
        if not differences:
            _enter_rest(audit)
            numbers = [] if has_adopted else check_numbers(audit)
            differences = [
                *numbers,
                *check_records(audit, [kind for kind in RECORDS if kind not in left_out]),
            ]
        decisions = book.size("decided")
        check_unmoved(audit)
    names = [kind.name for kind in (*HEAD, *([NUMBERS] if has_adopted else []), *left_out)]
    seconds = time.monotonic() - started
    return VerifyResult(target_name(context), decisions, False, differences, names, seconds)


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
        statement = read_plan(audit, plans, number) if remaining else None
        if statement is not None and statement.mode != ADOPT:
            count = min(remaining, of_each, len(statement.decisions))
            sample += dice.sample(statement.decisions, count)
            audit.advance(count)
    audit.book.enter_decisions(sorted(sample, key=attrgetter("place")))
    return first is not None and first.mode == ADOPT


def _enter_rest(audit: AuditSession) -> None:
    """Add the target's records and the ledger's rows for the sampled records and their keepers."""
    book = audit.book
    ids = book.ids("SELECT id FROM decided")
    keepers = book.ids("SELECT DISTINCT keeper FROM decided WHERE keeper IS NOT NULL")
    for chunk in _chunked([*ids, *keepers]):
        for portion in audit.context.target.fetch(chunk):
            book.enter("target", hash_records(portion.values()))
    for chunk in _chunked(ids):
        for name in ("dropped", "exceptions"):
            book.enter(name, hash_records(audit.reader.rows_on(name, chunk)))
        book.enter("restored", read_restored(audit.reader.rows_on("overrides", chunk)))
    for change in RESTORE:
        book.change(change)


def _chunked(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (ids[first : first + IDS_AT_ONCE] for first in range(0, len(ids), IDS_AT_ONCE))
