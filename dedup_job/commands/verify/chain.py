"""The plans of a ledger, one after the other, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence

from dedup_job.commands.verify.subject import Audit
from dedup_job.ledger.statements import Damaged, Statement
from dedup_job.ledger.stored_plan import PlanId


def chain(audit: Audit) -> list[PlanId | None]:
    """Return which plans were carried out, and note those that are missing and a last one that is another."""
    found = audit.statements.chain(audit.head)
    for number, plan_id in enumerate(found):
        if plan_id is None:
            audit.book.enter_fault("plan_missing", number)
    if found and found[-1] not in (None, audit.head.last):
        audit.book.enter_fault("chain_broken", len(found) - 1)
    return found


def read_plan(audit: Audit, plans: Sequence[PlanId | None], number: int) -> Statement | None:
    """Return what a plan says; note one that is damaged, or does not follow the one before it."""
    plan_id = plans[number]
    if plan_id is None:
        return None
    try:
        statement = audit.statements.statement(plan_id)
    except Damaged:
        audit.book.enter_fault("plan_damaged", number)
        return None
    before = plans[number - 1] if number else None
    if (number == 0 or before is not None) and statement.previous != before:
        audit.book.enter_fault("chain_broken", number)
    return statement
