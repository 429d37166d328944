"""Load the keepers of earlier decisions from the ledger, and choose which ids of the source a run reads."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

import numpy as np

from dedup_job.errors import StateError
from dedup_job.index.keepers import KeeperRef, Keepers
from dedup_job.ledger.head import Head
from dedup_job.ledger.plan_format import PlanColumns
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.version_digests_by_id import VersionDigests
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.pages import Window, prefetch
from dedup_job.mongo.reference_collections import is_reference
from dedup_job.mongo.target import Target
from dedup_job.pasteable_command import command_line
from dedup_job.pipeline.command_context import Context
from dedup_job.pipeline.displaced_records_queue import KeptRecord
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.pipeline.guards import InterruptedCounts
from dedup_job.pipeline.job import commit_in_parts, make_plan
from dedup_job.pipeline.skip_restored_and_long_ids import skip_records
from dedup_job.preference.preference_ranks import BEST, pack_rank
from dedup_job.records import (
    NIGHTLY,
    OUTSIDE_SOURCE,
    REDECIDE,
    REFERENCE,
    REPLACE,
    UNIQUE,
    Action,
    Batch,
    Counts,
    FingerprintedBatch,
    Plan,
    PlanTexts,
    RawIds,
    is_failure,
)

log = logging.getLogger("dedup_job")

SelectTexts = Callable[[PlanColumns], PlanTexts]

# The index is made with room for one new text per 16 known texts, so that a nightly run does not grow it.
SPARE_SHARE = 16
# Keepers that are checked against the target before a run decides.
SAMPLED_KEEPERS, NEWEST_KEEPERS = 1_000, 100


@dataclass(frozen=True, slots=True)
class PriorDecisions:
    """Earlier decisions, as far as a run depends on them.

    Attributes:
        keepers: The texts of all plans, and the keeper of each.
        adopted: Ids that were in the target before the job, or were left there by an undo or others, and ids
            of reference records.
        restored: Ids of records that a person restored.
        window: The range of source ids that the run reads, without the decided ids.
        unsettled: Keepers that an interrupted run has left to be decided again; see `[match] prefer`.
    """

    keepers: Keepers
    adopted: IdSet
    restored: IdSet
    window: Window
    unsettled: Sequence[KeptRecord] = ()

    @classmethod
    def read(
        cls,
        context: Context,
        reader: LedgerReader,
        head: Head | None,
        keepers: Keepers,
        window: Window,
        texts_of: SelectTexts = attrgetter("texts"),
        foreign: Iterable[RawIds] = (),
    ) -> PriorDecisions:
        """Load the prior decisions from the ledger.

        Args:
            context: The open connections.
            reader: The ledger.
            head: The head of the ledger; None if there is no ledger yet.
            keepers: Filled with the texts of all plans.
            window: The range of source ids that the run reads.
            texts_of: Selects the texts of a plan to load; all by default.
            foreign: Further ids that are in the target without a decision of the ledger.

        Raises:
            StateError: If most of the keepers that were checked are not in the target.
        """
        adopted = [context.undo_leftovers(), *foreign]
        if head is None:
            return cls(keepers, IdSet.of(adopted), IdSet(), window)
        unsettled = None if head.unsettled is None else read_unsettled(reader, head)
        window = window.without(load_keepers(reader, head, keepers, adopted, texts_of, unsettled))
        check_keepers(keepers, context.target)
        due = unsettled.records if unsettled else ()
        return cls(keepers, IdSet.of(adopted), IdSet.of(reader.overridden_ids()), window, due)

    def with_references(
        self, context: Context, engine: FingerprintWorkers, commit: Callable[[Plan, Sequence[bytes]], Plan]
    ) -> PriorDecisions:
        """Add the reference records that no earlier run has read to the keepers.

        All of them are kept, even copies of each other.

        Args:
            context: The open connections.
            engine: Fingerprints the records.
            commit: Applies a plan to raw records, and returns the plan as applied.

        Returns:
            These decisions, with the ids of the new records among the adopted ones.
        """
        new: list[RawIds] = []
        for reference in context.references:
            batches = prefetch(reference.new_batches(self.adopted))
            for batch, prints in skip_records(engine.fingerprint_batches(batches)):
                if prints.ranks is not None:
                    # A reference record stays where it is, so no record may be better.
                    prints = replace(prints, ranks=np.full_like(prints.ranks, BEST))
                # A record without a text is in the plan, too, so that no later run reads it again.
                plan = make_plan(batch, prints, [UNIQUE] * len(batch))
                commit_in_parts(plan, batch.raws, commit)
                numbers = self.keepers.load_plan(plan.texts)
                judged = np.flatnonzero(prints.digests.any(axis=1))
                self.keepers.cache_shingles(numbers, prints.shingles.take(judged))
                new.append(RawIds.of(batch.ids))
        if new:
            log.info("reference records read", extra={"fields": {"records": sum(map(len, new))}})
        return replace(self, adopted=self.adopted.including(new))

    def fingerprint(
        self, engine: FingerprintWorkers, batches: Iterable[Batch]
    ) -> Iterator[FingerprintedBatch]:
        """Yield batches with their fingerprints, reading ahead; restored records are not compared."""
        return skip_records(engine.fingerprint_batches(prefetch(batches)), self.restored.among)


def load_keepers(
    reader: LedgerReader,
    head: Head,
    keepers: Keepers,
    adopted: list[RawIds],
    texts_of: SelectTexts = attrgetter("texts"),
    unsettled: UnsettledKeepers | None = None,
) -> Iterator[PlanColumns]:
    """Load the keepers of all plans; yield each plan after its keepers are loaded.

    Args:
        reader: The ledger.
        head: The head of the ledger.
        keepers: Filled with the plans' texts.
        adopted: Extended with the ids of adopted records and of reference records.
        texts_of: Selects the texts of a plan to load; all by default.
        unsettled: Collects the keepers that must be decided again, if there are any.
    """
    known = head.counts.unique + head.counts.near
    keepers.reserve(known + known // SPARE_SHARE)
    for plan in reader.plan_columns(head):
        if len(texts := texts_of(plan)):
            numbers = keepers.load_plan(texts, plan.id.number)
            if unsettled is not None:
                unsettled.add_plan(plan, texts, numbers.tolist(), keepers)
        if plan.mode in OUTSIDE_SOURCE:
            adopted.append(plan.ids)
        yield plan


@dataclass(slots=True)
class UnsettledKeepers:
    """Collects the keepers that an interrupted run has left to be decided again.

    Attributes:
        first: Number of the first plan with keepers that were not settled.
        due: Raw ids of the records to decide again, if they are kept.
    """

    first: int
    due: Collection[bytes]
    _kept: dict[bytes, KeptRecord] = field(default_factory=dict)

    def add_plan(self, plan: PlanColumns, texts: PlanTexts, numbers: Sequence[int], keepers: Keepers) -> None:
        """Collect the keepers of a plan that was loaded; a later decision on a record counts.

        Args:
            plan: The plan.
            texts: The records of the plan that were loaded.
            numbers: The numbers of their texts.
            keepers: The plan has been loaded into these.
        """
        is_again = plan.mode in (REPLACE, REDECIDE) and plan.id.number >= self.first
        assert texts.ranks is not None
        for row, raw_id in enumerate(texts.ids):
            if texts.is_kept[row] and raw_id in self.due and plan.mode not in OUTSIDE_SOURCE:
                rank = pack_rank(texts.ranks[row])
                self._kept[raw_id] = KeptRecord(raw_id, numbers[row], plan.id.number, rank)
            elif is_again and not texts.is_kept[row]:
                keepers.release(KeeperRef(numbers[row], raw_id))
                self._kept.pop(raw_id, None)

    @property
    def records(self) -> list[KeptRecord]:
        """The kept records to decide again."""
        return list(self._kept.values())


def read_unsettled(reader: LedgerReader, head: Head) -> UnsettledKeepers:
    """Read which keepers an interrupted run has left to be decided again.

    These are the keepers that its plans displaced, and all records that an amended plan keeps: some may have
    taken the place of a refused record, without having been compared.
    """
    assert head.unsettled is not None
    due = set[bytes]()
    for stored in reader.plans(head, head.unsettled):
        due.update(stored.plan.displaced)
        if stored.id.version:
            due.update(stored.plan.ids[row] for row in stored.plan.rows(Action.UNIQUE))
    return UnsettledKeepers(head.unsettled, due)


def read_kept_versions(reader: LedgerReader, head: Head, is_reference: bool) -> VersionDigests:
    """Return the versions of all reference records that earlier runs have read, or of all kept records."""
    versions = VersionDigests()
    for stored in reader.plans(head):
        if (stored.mode == REFERENCE) == is_reference:
            versions.add(stored.plan)
    return versions


def check_keepers(keepers: Keepers, target: Target) -> None:
    """Raise StateError if the target lacks most of a sample of the keepers, or most of the newest keepers.

    Fewer missing keepers are no error: a run ignores them.  In a source, without copies, any number may be
    missing, as its records may be deleted or expire.
    """
    if not target.holds_copies:
        return
    for drawn in (keepers.sample(SAMPLED_KEEPERS), keepers.newest(NEWEST_KEEPERS)):
        # Reference records belong to somebody else, who may delete them.
        sample = [raw_id for raw_id in drawn if not is_reference(raw_id)]
        gone = len(target.absent(sample))
        if 2 * gone > len(sample):
            raise StateError(
                f"the target lacks {gone} of {len(sample)} records that the ledger says are there: was it "
                "dropped, or restored from an older backup? restore it together with its .dedup collections, "
                "or drop it and them, and run backfill again"
            )


def warn_missing_keepers(keepers: Keepers, warn: Callable[[str], None]) -> None:
    """Warn about keepers that the run met and could not rely on; see `job.find_outdated_keepers`."""
    if keepers.missing_count:
        warn(
            f"{keepers.missing_count:,} kept records were deleted or changed since they were kept, so "
            f"nothing is dropped for them any longer; list them with: {command_line('verify')}"
        )


def interrupted_runs(context: Context, reader: LedgerReader) -> InterruptedCounts:
    """Count the decisions of interrupted runs since the last complete run.

    Guards count these runs and the next run as one. Otherwise each restart could drop more records before
    its guard has enough of them to judge by.
    """
    rows = [row for row in reader.interrupted_runs() if "duplicate" in row]
    reasons = sum((Counter(row.get("unchecked", {})) for row in rows), Counter[str]())
    has_group_limit = context.settings.limits.max_group is not None
    return InterruptedCounts(
        read=sum(row["read"] for row in rows),
        dropped=sum(sum(row["duplicate"].values()) for row in rows),
        failed={reason: count for reason, count in reasons.items() if is_failure(reason)},
        groups=reader.groups([row["_id"] for row in rows]) if has_group_limit else {},
    )


def scan_source(
    context: Context,
    reader: LedgerReader,
    head: Head | None,
    mode: str,
    looked: datetime,
    window: Window,
    decide: Callable[[Window, str], Counts],
) -> tuple[Counts, bool]:
    """Call `decide` with a window of ids and, when a full scan is due, with all other ids.

    Late arrivals behind the watermark of a backfill are decided as in a nightly run, after the backfill's
    own records.

    Args:
        context: The open connections.
        reader: The ledger.
        head: The head of the ledger; None if there is no ledger yet, and so the window has all ids.
        mode: The mode of the run.
        looked: The server's time at the start of the run.
        window: The range of ids that the run reads.
        decide: Decides the records in a range, given its mode.

    Returns:
        The sum of the counts, and whether all ids were compared with the ledger.
    """
    if head is None:
        return decide(window, mode), True
    if _may_have_missed_before(context, head, window, looked):
        window = Window().without(reader.plan_columns(head))
    counts = decide(window, mode)
    if window.after is None:
        return counts, window.start is None
    # Ids without a time may arrive anywhere, and no later run would know where to start.
    if not context.is_full_scan_due(head, looked) and context.source.has_only_object_ids():
        return counts, False
    rest = Window(before=window.after).without(reader.plan_columns(head))
    return counts + decide(rest, NIGHTLY), True


def _may_have_missed_before(context: Context, head: Head, window: Window, looked: datetime) -> bool:
    """Return whether undecided records may exist before a window."""
    if window.start is None:
        return False
    if context.is_full_scan_due(head, looked):
        return True
    # Fewer records than the ledger counts are suspicious, too: deletions can hide late arrivals.
    there = context.source.estimated_count_before(window.start)
    # Without the archive the numbers differ, and all ids are compared.
    if archive := context.archive_if_there(head):
        there += archive.as_source().estimated_count_before(window.start)
    return there != head.in_source - len(window.decided)
