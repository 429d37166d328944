"""Outdated decisions: which of them the source has overtaken, and what is to become of each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from dedup_job.commands.context import Context
from dedup_job.commands.earlier_decisions import Earlier, EarlierDecisions
from dedup_job.commands.reconcile import Comparison, Overtaken, each_compared
from dedup_job.commands.verify.subject import head_of
from dedup_job.document import CONFLICT, COPIED, VANISHED, Action, Verdict, is_failure
from dedup_job.engine.local import LocalEngine
from dedup_job.ledger.overrides import copies
from dedup_job.ledger.stored_plan import PlanColumns, PlanId, StoredPlan
from dedup_job.mongo.id_set import IdSet
from dedup_job.mongo.shown_ids import with_equals
from dedup_job.mongo.window import Window
from dedup_job.plan import ADOPT, Plan, Texts
from dedup_job.report.applied import Due
from dedup_job.report.progress import Advance
from dedup_job.report.reconciled import IdTally

BY_TEXT = (Action.UNIQUE, Action.DUPLICATE)


@dataclass(slots=True)
class Outdated:
    """Decisions that do not hold any more, or need not, in the order in which they were made.

    fence    that of the head by which they were found: no command may have written since; None where one
             was at work
    again    the text is another one, the record is gone, this is so of its keeper, or the target
             refused the record and may take it now, or the job failed on the record
    renewed  rows by plan: the record is another one, and its text is as it was judged
    refused  records of which the target refused what the source still has
    failed   records that were copied without being compared, as the job failed on them
    """

    fence: int | None
    again: EarlierDecisions = field(default_factory=EarlierDecisions)
    renewed: dict[PlanId, npt.NDArray[np.uint32]] = field(default_factory=dict)
    changed: int = 0
    handed_on: int = 0
    refused: int = 0
    failed: int = 0
    vanished: Counter[bool] = field(default_factory=Counter)  # by whether they are in the target

    def __bool__(self) -> bool:
        return bool(self.again or self.renewed)

    @property
    def due(self) -> Due:
        """How much there is to do."""
        renewed = sum(map(len, self.renewed.values()))
        vanished = self.vanished
        again = self.changed, self.handed_on, self.refused, self.failed
        return Due(renewed, *again, kept=vanished[True], others=vanished[False])

    @property
    def in_order(self) -> tuple[Iterator[list[bytes]], Iterator[list[bytes]]]:
        """The records to decide again: first those that the target has not got, then those that it has.

        So nothing is taken out of the target, or replaced there, while another record is dropped for it.
        """
        return self.again.absent(), self.again.present()

    def texts_of(self, plan: PlanColumns) -> Texts:
        """Return the texts of a plan without those that are decided again: they stand for nothing more."""
        if plan.mode == ADOPT or not self.again:
            return plan.texts
        ids = list(plan.texts.ids)
        again = self.again.among(ids)
        is_left = [raw_id not in again for raw_id in ids]
        return plan.texts if all(is_left) else plan.texts.take(np.flatnonzero(is_left))


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of ledger and source; `rest` is the source without what was decided, outdated or not."""

    comparison: Comparison
    outdated: Outdated
    rest: Window
    seconds: float


def compared(context: Context, advance: Advance) -> Compared:
    """Compare every record with what was judged; nothing is written.  `advance` as in `reconcile`."""
    started = time.monotonic()
    reader = context.ledger_reader()
    head = head_of(context, reader)
    adopted = IdSet.of(stored.plan.ids for stored in takewhile(_is_adopted, reader.plans(head)))
    comparison = Comparison(changed=IdTally())
    with context.engine() as engine:
        fence = head.fence if head.lease is None else None
        finding = Finding(context, engine, Outdated(fence), adopted)
        plans = each_compared(context, reader, reader.plans(head), comparison, advance)
        rest = Window().without(finding.each_looked_at(plans))
    return Compared(comparison, finding.outdated, rest, time.monotonic() - started)


def _failed(plan: Plan) -> Iterator[int]:
    """Yield the rows that the job failed on: another version, or more memory, may judge them."""
    for row, verdict in enumerate(plan.verdicts):
        if verdict.action is Action.UNJUDGED and is_failure(verdict.reason):
            yield row


def _is_adopted(stored: StoredPlan) -> bool:
    return stored.mode == ADOPT


@dataclass(slots=True)
class Finding:
    """Finds what is outdated, plan by plan; a keeper comes before what was dropped for it."""

    context: Context
    engine: LocalEngine
    outdated: Outdated
    adopted: IdSet

    def each_looked_at(self, plans: Iterable[tuple[StoredPlan, Overtaken]]) -> Iterator[StoredPlan]:
        """Yield the plans, after taking in what has become of the records of each."""
        for stored, overtaken in plans:
            self._look(stored, overtaken)
            yield stored

    def _look(self, stored: StoredPlan, overtaken: Overtaken) -> None:
        plan, found = stored.plan, self.outdated
        equal = self._under_equal_ids([plan.ids[row] for row in overtaken.vanished])
        vanished = {
            row
            for row in overtaken.vanished
            if plan.verdicts[row].action is not Action.REFUSED and plan.ids[row] not in equal
        }
        adopted = self.adopted.among(plan.ids)
        same = self._same_text(plan, overtaken.changed, adopted | overtaken.overrides.keys())
        changed = set(overtaken.changed) - same
        gone = changed | vanished
        moved = {plan.ids[row] for row in gone if plan.verdicts[row].action is Action.UNIQUE}
        handed_on = {row for row in self._dropped_for_moved(plan, moved) if row not in gone}
        refused = set(self._refused(plan, gone | set(overtaken.vanished)))
        failed = set(_failed(plan)) - gone - set(overtaken.vanished)
        restored = copies(overtaken.overrides)
        earlier = {
            plan.ids[row]: _earlier(stored, row, restored, adopted)
            for row in sorted(gone | handed_on | refused | failed)
        }
        found.again.add(earlier, moved)
        if renewed := sorted(same - handed_on):
            found.renewed[stored.id] = np.array(renewed, np.uint32)
        found.changed += len(changed)
        found.handed_on += len(handed_on)
        found.refused += len(refused)
        found.failed += len(failed)
        found.vanished.update(earlier[plan.ids[row]].copy is not None for row in vanished)

    def _refused(self, plan: Plan, others: Collection[int]) -> Iterator[int]:
        """Yield the rows, but for some, that the target refused: it may take them now.

        Where it still has another record of the id, it does not.
        """
        rows = [row for row in plan.rows(Action.REFUSED) if plan.verdicts[row] != VANISHED]
        conflicts = [plan.ids[row] for row in rows if plan.verdicts[row] == CONFLICT]
        held = set(self.context.target.present(conflicts))
        for row in rows:
            if row not in others and held.isdisjoint(with_equals([plan.ids[row]])):
                yield row

    def _under_equal_ids(self, vanished: Sequence[bytes]) -> set[bytes]:
        """Return those ids of the target for which the source has equal ones of another type, as 7.0 for 7.

        The target takes one of both alone: a record that left would be missing, and the other be refused.
        """
        there = self.context.source.present(vanished)
        return set(self.context.target.present(there)) if there else set()

    def _dropped_for_moved(self, plan: Plan, moved: Collection[bytes]) -> Iterator[int]:
        """Yield the rows that were dropped for keepers that changed or are gone, here or in earlier plans."""
        keepers = {row: one.match.keeper for row, one in enumerate(plan.verdicts) if one.match is not None}
        earlier = self.outdated.again.moved(set(keepers.values()))
        return (row for row, keeper in keepers.items() if keeper in moved or keeper in earlier)

    def _same_text(self, plan: Plan, rows: Sequence[int], exempt: Collection[bytes]) -> set[int]:
        """Return those of the rows whose text is as it was judged, so that its verdict holds.

        exempt  ids of what a person restored or the target had before: it is not judged by its text alone
        """
        by_text = {
            plan.ids[row]: row
            for row in rows
            if plan.verdicts[row].action in BY_TEXT and plan.ids[row] not in exempt
        }
        same = set[int]()
        for found in self.context.source.fetch(list(by_text)):
            prints = self.engine.fingerprint([*found.values()])
            for raw_id, digest in zip(found, prints.digests, strict=True):
                if raw_id in by_text and digest.any() and (digest == plan.digests[by_text[raw_id]]).all():
                    same.add(by_text[raw_id])
        return same


def _earlier(
    stored: StoredPlan, row: int, restored: Mapping[bytes, bytes], adopted: Collection[bytes]
) -> Earlier:
    """Return what a plan decided of a record, by its row."""
    plan, raw_id = stored.plan, stored.plan.ids[row]
    verdict, copy = plan.verdicts[row], restored.get(raw_id)
    if copy is None and verdict.action in COPIED and raw_id not in adopted:
        copy = plan.hashes[row].tobytes()
    return Earlier(stored.id.number, Verdict(verdict.action, verdict.reason), copy)
