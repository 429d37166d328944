"""A look at the source: which records a run sees, and whether all ids were compared with the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from dedup_job.commands.context import Context
from dedup_job.document import Counts
from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.stored_plan import PlanColumns
from dedup_job.mongo.window import Window
from dedup_job.plan import NIGHTLY


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the source: at a window of ids, and when a full look is due at all other ids, too.

    What lies behind the watermark of a backfill is decided as in a nightly run, behind what it decides.
    """

    context: Context
    reader: LedgerReader
    head: Head | None
    mode: str
    now: datetime

    def __call__(self, window: Window, decide: Callable[[Window, str], Counts]) -> tuple[Counts, bool]:
        """Decide what is seen; returns its counts, and whether all ids were compared."""
        if window.start is not None and self._is_due_before(window, window.start):
            window = Window().without(self._plans())
        counts = decide(window, self.mode)
        if window.after is None:
            return counts, window.start is None
        if not self._is_due_behind():
            return counts, False
        return counts + decide(Window(before=window.after).without(self._plans()), NIGHTLY), True

    def _is_due_before(self, window: Window, start: bytes) -> bool:
        """Return whether there may be undecided records before a window; fewer than there should be, too."""
        assert self.head is not None
        if self.context.is_full_look_due(self.head, self.now):
            return True
        there = self.context.source.estimated_count_before(start)
        return there != self.head.counts.in_source - len(window.decided)

    def _is_due_behind(self) -> bool:
        """Return whether there may be undecided records behind the watermark of a backfill.

        Ids that hold no time may come anywhere, and no later run would know from which on to look.
        """
        assert self.head is not None
        is_due = self.context.is_full_look_due(self.head, self.now)
        return is_due or not self.context.source.has_only_object_ids()

    def _plans(self) -> Iterator[PlanColumns]:
        assert self.head is not None
        return self.reader.plan_columns(self.head)
