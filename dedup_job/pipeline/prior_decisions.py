"""What a run must know of earlier decisions, and which records it therefore reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from dedup_job.errors import StateError
from dedup_job.index.keepers import Keepers
from dedup_job.ledger.head import Head
from dedup_job.ledger.plan_format import PlanColumns
from dedup_job.ledger.reader import LedgerReader
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.pages import Window, prefetch
from dedup_job.mongo.target import Target
from dedup_job.pipeline.context import Context
from dedup_job.pipeline.guards import InterruptedCounts
from dedup_job.pipeline.local_engine import LocalEngine
from dedup_job.pipeline.uncompared_records import skip_records
from dedup_job.records import ADOPT, NIGHTLY, Batch, Counts, FingerprintedBatch, PlanTexts, RawIds, is_failure

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
        adopted: Ids that were in the target before the job, or were left there by an undo or somebody else.
        restored: Ids of records that a person restored.
        window: The range of source ids that the run reads, without the decided ids.
    """

    keepers: Keepers
    adopted: IdSet
    restored: IdSet
    window: Window

    @classmethod
    def none(cls, keepers: Keepers, window: Window) -> PriorDecisions:
        """Return prior decisions that are empty, for a run that ignores the ledger."""
        return cls(keepers, IdSet(), IdSet(), window)

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
        window = window.without(load_keepers(reader, head, keepers, adopted, texts_of))
        check_keepers(keepers, context.target)
        return cls(keepers, IdSet.of(adopted), IdSet.of(reader.overridden_ids()), window)

    def fingerprint(self, engine: LocalEngine, batches: Iterable[Batch]) -> Iterator[FingerprintedBatch]:
        """Yield batches with their fingerprints, reading ahead; restored records are not compared."""
        return skip_records(engine.fingerprint_batches(prefetch(batches)), self.restored.among)


def load_keepers(
    reader: LedgerReader,
    head: Head,
    keepers: Keepers,
    adopted: list[RawIds],
    texts_of: SelectTexts = attrgetter("texts"),
) -> Iterator[PlanColumns]:
    """Load the keepers of all plans; yield each plan after its keepers are loaded.

    Args:
        reader: The ledger.
        head: The head of the ledger.
        keepers: Filled with the plans' texts.
        adopted: Extended with the ids of each plan of an adoption.
        texts_of: Selects the texts of a plan to load; all by default.
    """
    known = head.counts.unique + head.counts.near
    keepers.reserve(known + known // SPARE_SHARE)
    for plan in reader.plan_columns(head):
        if len(texts := texts_of(plan)):
            keepers.load_plan(texts)
        if plan.mode == ADOPT:
            adopted.append(plan.ids)
        yield plan


def check_keepers(keepers: Keepers, target: Target) -> None:
    """Raise StateError if the target lacks most of a sample of the keepers, or most of the newest keepers.

    Fewer missing keepers are no error: a run ignores them.  In a source, without copies, any number may be
    missing, as its records may be deleted or expire.
    """
    if not target.holds_copies:
        return
    for sample in (keepers.sample(SAMPLED_KEEPERS), keepers.newest(NEWEST_KEEPERS)):
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
            f"{keepers.missing_count:,} kept records were deleted from the target or changed there, "
            "so nothing is dropped for them any longer; list them with: dedup-job verify"
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


@dataclass(frozen=True, slots=True)
class SourceScan:
    """A scan of the source: a window of ids and, when a full scan is due, all other ids.

    Late arrivals behind the watermark of a backfill are decided as in a nightly run, after the backfill's
    own records.

    Attributes:
        context: The open connections.
        reader: The ledger.
        head: The head of the ledger; None if there is no ledger yet.
        mode: The mode of the run.
        now: The server's time at the start of the run.
    """

    context: Context
    reader: LedgerReader
    head: Head | None
    mode: str
    now: datetime

    def __call__(self, window: Window, decide: Callable[[Window, str], Counts]) -> tuple[Counts, bool]:
        """Call `decide` with each range of ids to read and its mode.

        Returns:
            The sum of the counts, and whether all ids were compared with the ledger.
        """
        if window.start is not None and self._may_have_missed_before(window, window.start):
            window = Window().without(self._plans())
        counts = decide(window, self.mode)
        if window.after is None:
            return counts, window.start is None
        if not self._may_have_missed_behind_watermark():
            return counts, False
        return counts + decide(Window(before=window.after).without(self._plans()), NIGHTLY), True

    def _may_have_missed_before(self, window: Window, start: bytes) -> bool:
        """Return whether undecided records may exist before a window."""
        assert self.head is not None
        if self.context.is_full_scan_due(self.head, self.now):
            return True
        # Fewer records than the ledger counts are suspicious, too: deletions can hide late arrivals.
        there = self.context.source.estimated_count_before(start)
        # Without the archive the numbers differ, and all ids are compared.
        if archive := self.context.archive_if_there(self.head):
            there += archive.as_source().estimated_count_before(start)
        return there != self.head.in_source - len(window.decided)

    def _may_have_missed_behind_watermark(self) -> bool:
        """Return whether undecided records may exist behind the watermark of a backfill."""
        assert self.head is not None
        is_due = self.context.is_full_scan_due(self.head, self.now)
        # Ids without a time may arrive anywhere, and no later run would know where to start.
        return is_due or not self.context.source.has_only_object_ids()

    def _plans(self) -> Iterator[PlanColumns]:
        assert self.head is not None
        return self.reader.plan_columns(self.head)
