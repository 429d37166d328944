"""Reconciliation: decides what runs have missed, and says what became of what they decided."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dedup_job.commands.context import Context
from dedup_job.commands.decide import decide
from dedup_job.commands.verify.subject import Told, hashed, head_of
from dedup_job.document import Action
from dedup_job.ledger.fitting import Consent
from dedup_job.ledger.stored_plan import StoredPlan
from dedup_job.mongo.window import Window
from dedup_job.plan import ADOPT, RECONCILE, Plan
from dedup_job.report.reconciled import Reconciliation, Tally


@dataclass(slots=True)
class Comparison:
    """What became of the decided records, plan by plan; `changed` is None where that is not asked for."""

    records: int = 0
    vanished: Tally = field(default_factory=Tally)
    changed: Tally | None = None


def reconcile(context: Context, content: bool, told: Told, consent: Consent = Consent()) -> Reconciliation:
    """Compare every id of the source with the ledger; with `content`, the records with what was judged.

    What was missed is decided as a nightly run decides, against everything kept before; what changed or
    vanished is told, and nothing is done about it.  Where nothing was missed, nothing is written.  `told`
    hears of how many more records were compared or decided.
    """
    started = time.monotonic()
    reader = context.ledger_reader()
    head = head_of(context, reader)
    compared = Comparison(changed=Tally() if content else None)
    window = Window().without(_each_compared(context, reader.plans(head), compared, told))
    is_missed = next(context.source.batches(window), None) is not None
    report = decide(context, RECONCILE, lambda _, plan: _tell(told, plan), consent) if is_missed else None
    seconds = time.monotonic() - started
    return Reconciliation(
        context.source_name, compared.records, report, compared.changed, compared.vanished, seconds
    )


def _tell(told: Told, plan: Plan) -> None:
    told(len(plan))


def _each_compared(
    context: Context, plans: Iterable[StoredPlan], compared: Comparison, told: Told
) -> Iterator[StoredPlan]:
    """Yield the plans, after comparing each with the source; what was adopted never was there."""
    for stored in plans:
        if stored.mode == ADOPT:
            continue
        plan = stored.plan
        there = {} if compared.changed is None else _hashes(context, plan)
        gone = context.source.absent(plan.ids) if compared.changed is None else set(plan.ids) - there.keys()
        compared.records += len(plan)
        compared.vanished.add(_told_of(plan, _vanished(plan, gone)))
        if compared.changed is not None:
            compared.changed.add(_told_of(plan, _changed(plan, there)))
        _tell(told, plan)
        yield stored


def _hashes(context: Context, plan: Plan) -> dict[bytes, bytes]:
    """Return the hashes of a plan's records as they are in the source, by id."""
    return dict(pair for found in context.source.fetch(plan.ids) for pair in hashed(found.values()))


def _told_of(plan: Plan, rows: Iterable[int]) -> Iterator[tuple[bytes, Action]]:
    return ((plan.ids[row], plan.verdicts[row].action) for row in rows)


def _vanished(plan: Plan, gone: Container[bytes]) -> Iterator[int]:
    """Yield the rows whose record was there when it was decided and is not now."""
    for row, raw_id in enumerate(plan.ids):
        if raw_id in gone and plan.verdicts[row].reason != "vanished":
            yield row


def _changed(plan: Plan, there: Mapping[bytes, bytes]) -> Iterator[int]:
    """Yield the rows whose record is not as it was judged (where it is known what was copied)."""
    for row, raw_id in enumerate(plan.ids):
        if raw_id not in there or plan.verdicts[row].reason == "changed":
            continue
        if there[raw_id] != plan.hashes[row].tobytes():
            yield row
