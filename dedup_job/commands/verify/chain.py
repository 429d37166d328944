"""Read the plans of a ledger for an audit, and note the faults in their sequence."""

from __future__ import annotations

from collections.abc import Sequence

from dedup_job.commands.verify.subject import Audit
from dedup_job.ledger.statements import Damaged, Statement
from dedup_job.ledger.stored_plan import PlanId


def chain(audit: Audit) -> list[PlanId | None]:
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


def read_plan(audit: Audit, plans: Sequence[PlanId | None], number: int) -> Statement | None:
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
