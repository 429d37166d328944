"""Decisions that changes in the source made outdated: found by comparing the ledger with the source."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dedup_job.commands.changes import Comparison, OutdatedRows, compare_plans
from dedup_job.commands.mark import check_field_name
from dedup_job.ledger.decisions_to_replace_on_disk import EarlierDecision, EarlierDecisions
from dedup_job.ledger.overrides import copies
from dedup_job.ledger.plan_format import PlanColumns, PlanId, StoredPlan
from dedup_job.mongo.ids import IdSet, with_equals
from dedup_job.mongo.pages import Window
from dedup_job.pipeline.command_context import Context, require_head
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.records import (
    CONFLICT,
    COPYING_ACTIONS,
    OUTSIDE_SOURCE,
    VANISHED,
    Action,
    Fingerprints,
    Plan,
    PlanTexts,
    Verdict,
    is_failure,
)
from dedup_job.report.changes_and_sync_results import OutdatedCounts
from dedup_job.report.counts_with_ids import AffectedRecords
from dedup_job.report.progress import Advance
from dedup_job.temporary_ids_and_tables import IdList

DECIDED_BY_TEXT = (Action.UNIQUE, Action.DUPLICATE)


@dataclass(slots=True)
class OutdatedDecisions:
    """Decisions that are no longer valid, in the order of decision.

    Attributes:
        fence: Fence of the head at the comparison: no command may have written since. None if another
            command was working then.
        again: Records to decide again: the text changed, the record vanished, its keeper did, the target
            refused it and may accept it now, or the job failed on it.
        renewed: Rows to update, by plan: the record changed, and its text did not.
        kept_in_archive: Ids of kept records that must come back to the source: only the archive has them.
        due: The numbers of records, by kind.
    """

    fence: int | None
    again: EarlierDecisions = field(default_factory=EarlierDecisions)
    renewed: dict[PlanId, npt.NDArray[np.uint32]] = field(default_factory=dict)
    kept_in_archive: IdList = field(default_factory=IdList)
    due: OutdatedCounts = field(default_factory=OutdatedCounts)

    def __bool__(self) -> bool:
        return bool(self.again or self.renewed or self.kept_in_archive)

    @property
    def in_order(self) -> tuple[Iterator[list[bytes]], Iterator[list[bytes]]]:
        """Ids of the records to decide again: first records that the target lacks, then the others.

        In this order no record is removed from the target, or replaced there, while another record is
        still dropped for it.
        """
        return self.again.absent(), self.again.present()

    def texts_of(self, plan: PlanColumns) -> PlanTexts:
        """Return the texts of a plan without the records that are decided again, which match nothing now."""
        if plan.mode in OUTSIDE_SOURCE or not self.again:
            return plan.texts
        ids = list(plan.texts.ids)
        again = self.again.among(ids)
        is_valid = [raw_id not in again for raw_id in ids]
        return plan.texts if all(is_valid) else plan.texts.take(np.flatnonzero(is_valid))


@dataclass(frozen=True, slots=True)
class SourceComparison:
    """A comparison of the ledger with the source.

    Attributes:
        comparison: Decided records that vanished or changed.
        outdated: The decisions that are no longer valid.
        rest: The source without all decided records.
        seconds: Time of the comparison.
    """

    comparison: Comparison
    outdated: OutdatedDecisions
    rest: Window
    seconds: float


def compare_with_source(context: Context, advance: Advance) -> SourceComparison:
    """Compare every decided record with the source; writes nothing.

    Args:
        context: The open connections.
        advance: Called with the number of records that were compared since the last call.
    """
    started = time.monotonic()
    reader = context.ledger_reader()
    head = require_head(context)
    check_field_name(context, head)
    adopted = reader.adopted_ids(head)
    comparison = Comparison(changed=AffectedRecords())
    with context.engine() as engine:
        fence = head.fence if head.lease is None else None
        finding = OutdatedScan(context, engine, OutdatedDecisions(fence), adopted)
        archive = context.archive_of(head)
        plans = compare_plans(context.source, archive, reader, head, comparison, advance)
        rest = Window().without(finding.scan(plans))
    if archive is not None:
        finding.outdated.due.undecided_in_archive = archive.undecided(rest)
    return SourceComparison(comparison, finding.outdated, rest, time.monotonic() - started)


@dataclass(slots=True)
class OutdatedScan:
    """Collects outdated decisions plan by plan; a keeper comes before its duplicates.

    Attributes:
        context: The open connections.
        engine: Makes the fingerprints of changed records.
        outdated: Filled by `scan`.
        adopted: Ids of the target's own records.
    """

    context: Context
    engine: FingerprintWorkers
    outdated: OutdatedDecisions
    adopted: IdSet

    def scan(self, plans: Iterable[tuple[StoredPlan, OutdatedRows]]) -> Iterator[StoredPlan]:
        """Yield the plans, after collecting the outdated decisions of each."""
        for stored, overtaken in plans:
            self._collect(stored, overtaken)
            yield stored

    def _collect(self, stored: StoredPlan, overtaken: OutdatedRows) -> None:
        plan, outdated = stored.plan, self.outdated
        equal = self._ids_with_equals([plan.ids[row] for row in overtaken.vanished])
        vanished = {row for row in overtaken.vanished if plan.ids[row] not in equal}
        adopted = self.adopted.among(plan.ids)
        # The verdict of a restored or adopted record does not depend on its text alone.
        exempt = adopted | overtaken.overrides.keys()
        same = self._rows_with_same_text(plan, overtaken.changed, exempt)
        changed = set(overtaken.changed) - same
        gone = changed | vanished
        moved = {plan.ids[row] for row in gone if plan.verdicts[row].action is Action.UNIQUE}
        handed_on = {row for row in self._rows_dropped_for(plan, moved) if row not in gone}
        refused = {
            row
            for row in plan.rows(Action.REFUSED)
            if plan.verdicts[row] != VANISHED and plan.ids[row] not in overtaken.away
        }
        refused -= gone
        occupied = self._rows_occupied(plan, refused)
        refused -= occupied
        # The job failed on these: another version, or more memory, may judge them.
        failed = {row for row in plan.rows(Action.UNCHECKED) if is_failure(plan.verdicts[row].reason)}
        failed -= gone | set(overtaken.vanished)
        restored = copies(overtaken.overrides)
        earlier = {
            plan.ids[row]: self._earlier_decision(stored, row, restored, adopted)
            for row in sorted(gone | handed_on | refused | failed)
        }
        outdated.again.add(earlier, moved)
        outdated.kept_in_archive.extend(overtaken.kept_in_archive)
        if renewed := sorted(same - handed_on):
            outdated.renewed[stored.id] = np.array(renewed, np.uint32)
        due, copied = outdated.due, sum(earlier[plan.ids[row]].copy is not None for row in vanished)
        due.renewed += len(renewed)
        due.changed += len(changed)
        due.handed_on += len(handed_on)
        due.refused += len(refused)
        due.failed += len(failed)
        due.occupied += len(occupied)
        due.kept_in_archive += len(overtaken.kept_in_archive)
        due.kept += copied
        due.others += len(vanished) - copied

    def _rows_occupied(self, plan: Plan, rows: Iterable[int]) -> set[int]:
        """Return the refused rows whose `_id` another record in the target still has."""
        conflicts = {row: plan.ids[row] for row in rows if plan.verdicts[row] == CONFLICT}
        source, target = self.context.source, self.context.target
        present = set(target.present(list(conflicts.values())))
        # Its owner may have made the record equal to the source's.
        for records in source.fetch(sorted(present)):
            present -= records.keys() - target.conflicting(records.values())
        # The other record may have an equal id of another type, such as 7 for 7.0.
        return {row for row, raw_id in conflicts.items() if not present.isdisjoint(with_equals([raw_id]))}

    def _ids_with_equals(self, vanished: Sequence[bytes]) -> set[bytes]:
        """Return the ids in the target that equal an id of another type in the source, such as 7.0 for 7.

        The target can hold only one of the two: if the record were removed, the other would be refused.
        """
        equals = self.context.source.present(vanished)
        return set(self.context.target.present(equals)) if equals else set()

    def _rows_dropped_for(self, plan: Plan, moved: Collection[bytes]) -> Iterator[int]:
        """Yield the rows dropped for a keeper that changed or vanished: in `moved`, or of an earlier plan."""
        keepers = {row: match.keeper for row, verdict in enumerate(plan.verdicts) if (match := verdict.match)}
        earlier = self.outdated.again.moved(set(keepers.values()))
        return (row for row, keeper in keepers.items() if keeper in moved or keeper in earlier)

    def _rows_with_same_text(self, plan: Plan, rows: Sequence[int], exempt: Collection[bytes]) -> set[int]:
        """Return the rows whose text and rank have not changed, so that the verdict is still valid.

        Args:
            plan: The plan.
            rows: Rows whose records changed.
            exempt: Ids of records whose verdict does not depend on their text alone; never returned.
        """
        by_text = {
            plan.ids[row]: row
            for row in rows
            if plan.verdicts[row].action in DECIDED_BY_TEXT and plan.ids[row] not in exempt
        }
        same = set[int]()
        for records in self.context.source.fetch(list(by_text)):
            found = [by_text[raw_id] for raw_id in records]
            is_same = have_same_text(self.engine.fingerprint([*records.values()]), plan.take(found))
            same.update(row for row, same_text in zip(found, is_same, strict=True) if same_text)
        return same

    def _earlier_decision(
        self, stored: StoredPlan, row: int, restored: Mapping[bytes, bytes], adopted: Collection[bytes]
    ) -> EarlierDecision:
        """Return a plan's decision on a record.

        Args:
            stored: The plan.
            row: The record's row in it.
            restored: Hashes of the inserted versions of restored records, by id.
            adopted: Ids of the target's own records, which the job did not insert.
        """
        plan, raw_id = stored.plan, stored.plan.ids[row]
        verdict, copy = plan.verdicts[row], None
        # A restored record may be adopted, too: after the ledger was lost and the target adopted.
        if self.context.target.holds_copies and raw_id not in adopted:
            copy = restored.get(raw_id)
            if copy is None and verdict.action in COPYING_ACTIONS:
                copy = plan.hash_of(row)
        return EarlierDecision(stored.id.number, Verdict(verdict.action, verdict.reason), copy)


def have_same_text(prints: Fingerprints, judged: Plan) -> npt.NDArray[np.bool_]:
    """Return whether n records have the text, and by `[match] prefer` the rank, as they were judged."""
    # A digest of zeros means "no text".
    has_text = judged.digests.any(axis=1)
    is_same: npt.NDArray[np.bool_] = has_text & (prints.digests == judged.digests).all(axis=1)
    if prints.ranks is not None and judged.ranks is not None:
        is_same &= (prints.ranks == judged.ranks).all(axis=1)
    return is_same
