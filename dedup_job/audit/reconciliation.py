"""Reconciliation: decides what runs have missed, and says what became of what they decided."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dedup_job.audit.subject import Told, hashed, head_of
from dedup_job.document import Action
from dedup_job.mongo.ids import extended
from dedup_job.mongo.plans import ADOPT, RECONCILE, StoredPlan
from dedup_job.mongo.window import Window
from dedup_job.parts import Parts
from dedup_job.plan import Plan
from dedup_job.report.reconciled import Reconciliation, Tally
from dedup_job.wiring import decide


@dataclass(slots=True)
class Decided:
    """What became of the decided records, plan by plan; `changed` is None where that is not asked for."""

    records: int = 0
    vanished: Tally = field(default_factory=Tally)
    changed: Tally | None = None


def reconcile(parts: Parts, content: bool, told: Told) -> Reconciliation:
    """Compare every id of the source with the ledger; with `content`, the records with what was judged.

    What was missed is decided as a nightly run decides, against everything kept before; what changed or
    vanished is told, and nothing is done about it.  Where nothing was missed, nothing is written.  `told`
    hears of how many more records were compared or decided.
    """
    started = time.monotonic()
    reader = parts.ledger_reader()
    head = head_of(parts, reader)
    decided = Decided(changed=Tally() if content else None)
    window = Window().without(_compared(parts, reader.plans(head), decided, told))
    is_missed = next(parts.source.batches(window), None) is not None
    report = decide(parts, RECONCILE, lambda _, plan: _tell(told, plan)) if is_missed else None
    seconds = time.monotonic() - started
    return Reconciliation(
        parts.source_name, decided.records, report, decided.changed, decided.vanished, seconds
    )


def _tell(told: Told, plan: Plan) -> None:
    told(len(plan))


def _compared(
    parts: Parts, plans: Iterable[StoredPlan], decided: Decided, told: Told
) -> Iterator[StoredPlan]:
    """Yield the plans, after comparing each with the source; what was adopted never was there."""
    for stored in plans:
        if stored.mode == ADOPT:
            continue
        plan = stored.plan
        there = {} if decided.changed is None else _hashes(parts, plan)
        gone = parts.source.absent(plan.ids) if decided.changed is None else set(plan.ids) - there.keys()
        decided.records += len(plan)
        decided.vanished.add(_told_of(plan, _vanished(plan, gone)))
        if decided.changed is not None:
            decided.changed.add(_told_of(plan, _changed(plan, there)))
        _tell(told, plan)
        yield stored


def _hashes(parts: Parts, plan: Plan) -> dict[bytes, bytes]:
    """Return the hashes of a plan's records as they are in the source, by id."""
    return dict(pair for found in parts.source.fetch(plan.ids) for pair in hashed(found.values()))


def _told_of(plan: Plan, rows: Iterable[int]) -> Iterator[tuple[Any, Action]]:
    return ((extended(plan.ids[row]), plan.verdicts[row].action) for row in rows)


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
