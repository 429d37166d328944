"""Choose which records to read, and whether to scan all ids for late arrivals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from dedup_job.ledger.head import Head
from dedup_job.ledger.plan_format import PlanColumns
from dedup_job.ledger.reader import LedgerReader
from dedup_job.mongo.id_window import Window
from dedup_job.pipeline.context import Context
from dedup_job.records import NIGHTLY, Counts


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
        return there != self.head.counts.in_source - len(window.decided)

    def _may_have_missed_behind_watermark(self) -> bool:
        """Return whether undecided records may exist behind the watermark of a backfill."""
        assert self.head is not None
        is_due = self.context.is_full_scan_due(self.head, self.now)
        # Ids without a time may arrive anywhere, and no later run would know where to start.
        return is_due or not self.context.source.has_only_object_ids()

    def _plans(self) -> Iterator[PlanColumns]:
        assert self.head is not None
        return self.reader.plan_columns(self.head)
