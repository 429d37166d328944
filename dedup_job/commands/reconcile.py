"""`reconcile`: decide records that runs missed, and find decided records that vanished or changed."""

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
    """Decided records that vanished or changed.

    Attributes:
        records: Number of compared records.
        vanished: Records that are no longer in the source.
        changed: Records that changed; None if only ids are compared.
    """

    records: int = 0
    vanished: IdTally = field(default_factory=IdTally)
    changed: IdTally | None = None


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Rows of a plan whose records are outdated.

    Attributes:
        changed: Rows whose record changed; empty if only ids are compared.
        vanished: Rows whose record is no longer in the source.
        overrides: Records of the plan that a person restored, by id; empty if only ids are compared.
    """

    changed: Sequence[int]
    vanished: Sequence[int]
    overrides: Mapping[bytes, Override]


def reconcile(
    context: Context, content: bool, advance: Advance, consent: Consent = Consent()
) -> Reconciliation:
    """Decide missed records as a nightly run would, and report decided records that vanished or changed.

    Nothing is done about vanished and changed records.  If no record was missed, nothing is written.

    Args:
        context: The open connections.
        content: Whether to compare the records, too, and not only their ids.
        advance: Called with the number of records that were compared or decided since the last call.
        consent: Changes and guards that a person has accepted.
    """
    started = time.monotonic()
    reader = context.ledger_reader()
    compared = Comparison(changed=IdTally() if content else None)
    plans = each_compared(context, reader, reader.plans(head_of(context, reader)), compared, advance)
    missed = decide_missed(context, Window().without(stored for stored, _ in plans), advance, consent)
    return reconciliation(context, compared, missed, time.monotonic() - started)


def decide_missed(context: Context, rest: Window, advance: Advance, consent: Consent) -> Report | None:
    """Decide the records that runs missed; return None if there are none.

    Args:
        context: The open connections.
        rest: The source without all decided records.
        advance: Called with the number of records that were decided since the last call.
        consent: Changes and guards that a person has accepted.
    """
    if next(context.source.batches(rest), None) is None:
        return None
    return decide(context, RECONCILE, lambda _, plan: advance(len(plan)), consent)


def reconciliation(
    context: Context, compared: Comparison, missed: Report | None, seconds: float
) -> Reconciliation:
    """Return the result for the report."""
    return Reconciliation(
        context.source_name, compared.records, missed, compared.changed, compared.vanished, seconds
    )


def each_compared(
    context: Context,
    reader: LedgerReader,
    plans: Iterable[StoredPlan],
    compared: Comparison,
    advance: Advance,
) -> Iterator[tuple[StoredPlan, Overtaken]]:
    """Yield the plans after comparing each with the source, and add the results to `compared`.

    Plans of an adoption are left out: their records never were in the source.
    """
    overridden = IdSet() if compared.changed is None else IdSet.of(reader.overridden())
    for stored in plans:
        if stored.mode == ADOPT:
            continue
        plan = stored.plan
        current = dict[bytes, bytes]()
        if compared.changed is None:
            gone = context.source.absent(plan.ids)
        else:
            for records in context.source.fetch(plan.ids):
                current |= hashed(records.values())
            gone = set(plan.ids) - current.keys()
        overrides = reader.overrides(sorted(overridden.among(plan.ids)))
        changed = _rows_changed(plan, current, copies(overrides))
        rows = Overtaken(list(changed), list(_rows_vanished(plan, gone)), overrides)
        compared.records += len(plan)
        compared.vanished.add(_ids_and_actions(plan, rows.vanished))
        if compared.changed is not None:
            compared.changed.add(_ids_and_actions(plan, rows.changed))
        advance(len(plan))
        yield stored, rows


def _ids_and_actions(plan: Plan, rows: Iterable[int]) -> Iterator[tuple[bytes, Action]]:
    return ((plan.ids[row], plan.verdicts[row].action) for row in rows)


def _rows_vanished(plan: Plan, gone: Container[bytes]) -> Iterator[int]:
    """Yield the rows whose record existed when it was decided and does not exist now."""
    for row, raw_id in enumerate(plan.ids):
        if raw_id in gone and plan.verdicts[row] != VANISHED:
            yield row


def _rows_changed(
    plan: Plan, current: Mapping[bytes, bytes], restored: Mapping[bytes, bytes]
) -> Iterator[int]:
    """Yield the rows whose record differs from the version that was decided.

    Args:
        plan: The plan.
        current: Hashes of the records that are in the source, by id.
        restored: Hashes of the versions of restored records that were inserted into the target, by id.
    """
    for row, raw_id in enumerate(plan.ids):
        if raw_id not in current:
            continue
        judged = plan.hashes[row].tobytes()
        # A restored record was inserted in its version of that time, so it must still equal both versions.
        is_same = current[raw_id] == judged == restored.get(raw_id, judged)
        # A record that had vanished and has returned was never judged in its present state.
        if plan.verdicts[row] == VANISHED or not is_same:
            yield row
