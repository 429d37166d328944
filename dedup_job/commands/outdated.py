"""Find decisions that the source has outdated, and what to do about each."""

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
    """Decisions that are no longer valid, in the order of decision.

    Attributes:
        fence: Fence of the head at the comparison: no command may have written since. None if another
            command was working then.
        again: Records to decide again: the text changed, the record vanished, its keeper did, the target
            refused it and may accept it now, or the job failed on it.
        renewed: Rows to update, by plan: the record changed, and its text did not.
        changed: Number of records whose text changed.
        handed_on: Number of records whose keeper changed or vanished.
        refused: Number of records that the target refused and the source still has.
        failed: Number of records that were copied without being compared because the job failed on them.
        vanished: Number of vanished records, by whether they are in the target.
    """

    fence: int | None
    again: EarlierDecisions = field(default_factory=EarlierDecisions)
    renewed: dict[PlanId, npt.NDArray[np.uint32]] = field(default_factory=dict)
    changed: int = 0
    handed_on: int = 0
    refused: int = 0
    failed: int = 0
    vanished: Counter[bool] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.again or self.renewed)

    @property
    def due(self) -> Due:
        """The number of records to process, by kind."""
        renewed = sum(map(len, self.renewed.values()))
        vanished = self.vanished
        again = self.changed, self.handed_on, self.refused, self.failed
        return Due(renewed, *again, kept=vanished[True], others=vanished[False])

    @property
    def in_order(self) -> tuple[Iterator[list[bytes]], Iterator[list[bytes]]]:
        """Ids of the records to decide again: first records that the target lacks, then the others.

        In this order no record is removed from the target, or replaced there, while another record is
        still dropped for it.
        """
        return self.again.absent(), self.again.present()

    def texts_of(self, plan: PlanColumns) -> Texts:
        """Return the texts of a plan without the records that are decided again, which match nothing now."""
        if plan.mode == ADOPT or not self.again:
            return plan.texts
        ids = list(plan.texts.ids)
        again = self.again.among(ids)
        is_valid = [raw_id not in again for raw_id in ids]
        return plan.texts if all(is_valid) else plan.texts.take(np.flatnonzero(is_valid))


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of the ledger with the source.

    Attributes:
        comparison: Decided records that vanished or changed.
        outdated: The decisions that are no longer valid.
        rest: The source without all decided records.
        seconds: Time of the comparison.
    """

    comparison: Comparison
    outdated: Outdated
    rest: Window
    seconds: float


def compared(context: Context, advance: Advance) -> Compared:
    """Compare every decided record with the source; writes nothing.

    Args:
        context: The open connections.
        advance: Called with the number of records that were compared since the last call.
    """
    started = time.monotonic()
    reader = context.ledger_reader()
    head = head_of(context, reader)
    # An adoption comes before anything else, so its plans are the first.
    plans_of_adoption = takewhile(lambda stored: stored.mode == ADOPT, reader.plans(head))
    adopted = IdSet.of(stored.plan.ids for stored in plans_of_adoption)
    comparison = Comparison(changed=IdTally())
    with context.engine() as engine:
        fence = head.fence if head.lease is None else None
        finding = Finding(context, engine, Outdated(fence), adopted)
        plans = each_compared(context, reader, reader.plans(head), comparison, advance)
        rest = Window().without(finding.scan(plans))
    return Compared(comparison, finding.outdated, rest, time.monotonic() - started)


@dataclass(slots=True)
class Finding:
    """Collects outdated decisions plan by plan; a keeper comes before its duplicates.

    Attributes:
        context: The open connections.
        engine: Makes the fingerprints of changed records.
        outdated: Filled by `scan`.
        adopted: Ids of the target's own records.
    """

    context: Context
    engine: LocalEngine
    outdated: Outdated
    adopted: IdSet

    def scan(self, plans: Iterable[tuple[StoredPlan, Overtaken]]) -> Iterator[StoredPlan]:
        """Yield the plans, after collecting the outdated decisions of each."""
        for stored, overtaken in plans:
            self._collect(stored, overtaken)
            yield stored

    def _collect(self, stored: StoredPlan, overtaken: Overtaken) -> None:
        plan, outdated = stored.plan, self.outdated
        equal = self._ids_with_equals([plan.ids[row] for row in overtaken.vanished])
        vanished = {
            row
            for row in overtaken.vanished
            if plan.verdicts[row].action is not Action.REFUSED and plan.ids[row] not in equal
        }
        adopted = self.adopted.among(plan.ids)
        # The verdict of a restored or adopted record does not depend on its text alone.
        exempt = adopted | overtaken.overrides.keys()
        same = self._rows_with_same_text(plan, overtaken.changed, exempt)
        changed = set(overtaken.changed) - same
        gone = changed | vanished
        moved = {plan.ids[row] for row in gone if plan.verdicts[row].action is Action.UNIQUE}
        handed_on = {row for row in self._rows_dropped_for(plan, moved) if row not in gone}
        refused = set(self._rows_refused(plan)) - gone - set(overtaken.vanished)
        # The job failed on these: another version, or more memory, may judge them.
        failed = {
            row
            for row, verdict in enumerate(plan.verdicts)
            if verdict.action is Action.UNJUDGED and is_failure(verdict.reason)
        }
        failed -= gone | set(overtaken.vanished)
        restored = copies(overtaken.overrides)
        earlier = {
            plan.ids[row]: _earlier_decision(stored, row, restored, adopted)
            for row in sorted(gone | handed_on | refused | failed)
        }
        outdated.again.add(earlier, moved)
        if renewed := sorted(same - handed_on):
            outdated.renewed[stored.id] = np.array(renewed, np.uint32)
        outdated.changed += len(changed)
        outdated.handed_on += len(handed_on)
        outdated.refused += len(refused)
        outdated.failed += len(failed)
        outdated.vanished.update(earlier[plan.ids[row]].copy is not None for row in vanished)

    def _rows_refused(self, plan: Plan) -> Iterator[int]:
        """Yield the rows that the target refused and may accept now."""
        rows = [row for row in plan.rows(Action.REFUSED) if plan.verdicts[row] != VANISHED]
        conflicts = [plan.ids[row] for row in rows if plan.verdicts[row] == CONFLICT]
        # While the target still has another record with the id, it would refuse this one again.
        occupied = set(self.context.target.present(conflicts))
        for row in rows:
            if occupied.isdisjoint(with_equals([plan.ids[row]])):
                yield row

    def _ids_with_equals(self, vanished: Sequence[bytes]) -> set[bytes]:
        """Return the ids in the target that equal an id of another type in the source, such as 7.0 for 7.

        The target can hold only one of the two: if the record were removed, the other would be refused.
        """
        equals = self.context.source.present(vanished)
        return set(self.context.target.present(equals)) if equals else set()

    def _rows_dropped_for(self, plan: Plan, moved: Collection[bytes]) -> Iterator[int]:
        """Yield the rows dropped for a keeper that changed or vanished: in `moved`, or of an earlier plan."""
        keepers = {
            row: verdict.match.keeper
            for row, verdict in enumerate(plan.verdicts)
            if verdict.match is not None
        }
        earlier = self.outdated.again.moved(set(keepers.values()))
        return (row for row, keeper in keepers.items() if keeper in moved or keeper in earlier)

    def _rows_with_same_text(self, plan: Plan, rows: Sequence[int], exempt: Collection[bytes]) -> set[int]:
        """Return the rows whose text has not changed, so that the verdict is still valid.

        Args:
            plan: The plan.
            rows: Rows whose records changed.
            exempt: Ids of records whose verdict does not depend on their text alone; never returned.
        """
        by_text = {
            plan.ids[row]: row
            for row in rows
            if plan.verdicts[row].action in BY_TEXT and plan.ids[row] not in exempt
        }
        same = set[int]()
        for records in self.context.source.fetch(list(by_text)):
            prints = self.engine.fingerprint([*records.values()])
            for raw_id, digest in zip(records, prints.digests, strict=True):
                # A digest of zeros means "no text".
                if raw_id in by_text and digest.any() and (digest == plan.digests[by_text[raw_id]]).all():
                    same.add(by_text[raw_id])
        return same


def _earlier_decision(
    stored: StoredPlan, row: int, restored: Mapping[bytes, bytes], adopted: Collection[bytes]
) -> Earlier:
    """Return a plan's decision on a record.

    Args:
        stored: The plan.
        row: The record's row in it.
        restored: Hashes of the inserted versions of restored records, by id.
        adopted: Ids of the target's own records, which the job did not insert.
    """
    plan, raw_id = stored.plan, stored.plan.ids[row]
    verdict, copy = plan.verdicts[row], restored.get(raw_id)
    if copy is None and verdict.action in COPIED and raw_id not in adopted:
        copy = plan.hashes[row].tobytes()
    return Earlier(stored.id.number, Verdict(verdict.action, verdict.reason), copy)
