"""Reconciliation: decides what runs have missed, and says what became of what they decided."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dedup_job.commands.context import Context
from dedup_job.commands.decide import decide
from dedup_job.commands.verify.subject import hashed, head_of
from dedup_job.document import VANISHED, Action
from dedup_job.ledger.fitting import Consent
from dedup_job.ledger.overrides import Override, copies
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.stored_plan import StoredPlan
from dedup_job.mongo.id_set import IdSet
from dedup_job.mongo.window import Window
from dedup_job.plan import ADOPT, RECONCILE, Plan
from dedup_job.report.progress import Advance
from dedup_job.report.reconciled import IdTally, Reconciliation
from dedup_job.report.summary import Report


@dataclass(slots=True)
class Comparison:
    """What became of the decided records, plan by plan; `changed` is None where that is not asked for."""

    records: int = 0
    vanished: IdTally = field(default_factory=IdTally)
    changed: IdTally | None = None


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Rows of a plan whose record is not as it was judged any more, or is gone.

    overrides  by id: what persons decided of records of the plan, where records were compared
    """

    changed: Sequence[int]
    vanished: Sequence[int]
    overrides: Mapping[bytes, Override]


def reconcile(
    context: Context, content: bool, advance: Advance, consent: Consent = Consent()
) -> Reconciliation:
    """Compare every id of the source with the ledger; with `content`, the records with what was judged.

    What was missed is decided as a nightly run decides, against everything kept before; what changed or
    vanished is told, and nothing is done about it.  Where nothing was missed, nothing is written.  `advance`
    is called with how many more records were compared or decided.
    """
    started = time.monotonic()
    reader = context.ledger_reader()
    compared = Comparison(changed=IdTally() if content else None)
    plans = each_compared(context, reader, reader.plans(head_of(context, reader)), compared, advance)
    missed = decide_missed(context, Window().without(stored for stored, _ in plans), advance, consent)
    return reconciliation(context, compared, missed, time.monotonic() - started)


def decide_missed(context: Context, rest: Window, advance: Advance, consent: Consent) -> Report | None:
    """Decide what runs have missed, if anything; `rest` is the source without what is decided."""
    if next(context.source.batches(rest), None) is None:
        return None
    return decide(context, RECONCILE, lambda _, plan: advance(len(plan)), consent)


def reconciliation(
    context: Context, compared: Comparison, missed: Report | None, seconds: float
) -> Reconciliation:
    """Return what came out."""
    about = (context.source_name, compared.records, missed, compared.changed, compared.vanished)
    return Reconciliation(*about, seconds)


def each_compared(
    context: Context,
    reader: LedgerReader,
    plans: Iterable[StoredPlan],
    compared: Comparison,
    advance: Advance,
) -> Iterator[tuple[StoredPlan, Overtaken]]:
    """Yield the plans, each compared with the source; what was adopted never was there."""
    overridden = IdSet() if compared.changed is None else IdSet.of(reader.overridden())
    for stored in plans:
        if stored.mode == ADOPT:
            continue
        plan = stored.plan
        there = {} if compared.changed is None else _hashes(context, plan)
        gone = context.source.absent(plan.ids) if compared.changed is None else set(plan.ids) - there.keys()
        overrides = reader.overrides(sorted(overridden.among(plan.ids)))
        changed = _changed(plan, there, copies(overrides))
        rows = Overtaken(list(changed), list(_vanished(plan, gone)), overrides)
        compared.records += len(plan)
        compared.vanished.add(_actions(plan, rows.vanished))
        if compared.changed is not None:
            compared.changed.add(_actions(plan, rows.changed))
        advance(len(plan))
        yield stored, rows


def _hashes(context: Context, plan: Plan) -> dict[bytes, bytes]:
    """Return the hashes of a plan's records as they are in the source, by id."""
    return dict(pair for found in context.source.fetch(plan.ids) for pair in hashed(found.values()))


def _actions(plan: Plan, rows: Iterable[int]) -> Iterator[tuple[bytes, Action]]:
    return ((plan.ids[row], plan.verdicts[row].action) for row in rows)


def _vanished(plan: Plan, gone: Container[bytes]) -> Iterator[int]:
    """Yield the rows whose record was there when it was decided and is not now."""
    for row, raw_id in enumerate(plan.ids):
        if raw_id in gone and plan.verdicts[row] != VANISHED:
            yield row


def _changed(plan: Plan, there: Mapping[bytes, bytes], restored: Mapping[bytes, bytes]) -> Iterator[int]:
    """Yield the rows whose record is not as it was judged, or as it was copied where it was not judged.

    One that had vanished, and is there again, was never judged as it is.  One that was restored is also to
    be as it was then, which is how the target has it.
    """
    for row, raw_id in enumerate(plan.ids):
        if raw_id not in there:
            continue
        judged = plan.hashes[row].tobytes()
        is_same = there[raw_id] == judged == restored.get(raw_id, judged)
        if plan.verdicts[row] == VANISHED or not is_same:
            yield row
