"""Progress of long work: a bar on a terminal, otherwise a log line at the start and every 30 seconds."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from math import inf
from types import TracebackType
from typing import Self

from tqdm import tqdm

from dedup_job.records import Batch, Counts, Plan
from dedup_job.report.logs import is_interactive
from dedup_job.report.run_progress import RunProgress

EVERY_SECONDS = 30.0

Advance = Callable[[int], object]
"""Called with the number of records that were finished since the last call, as `Progress.advance` is."""

log = logging.getLogger("dedup_job")


class Progress:
    """Shows progress while it is used as a context manager; call `observe` or `advance` as work is done."""

    def __init__(self, mode: str, total: int | None, unit: str = "docs") -> None:
        """Show the progress of a command.

        Args:
            mode: The command.
            total: Expected number of records, None if unknown.
            unit: Plural name of the counted things.
        """
        # A bar in a log file, or among JSON lines, would be noise.
        is_bar = is_interactive()
        self._bar = tqdm(total=total, desc=mode, unit=f" {unit}", file=sys.stderr, disable=not is_bar)
        self._mode = mode
        self._total = total
        self._done = 0
        self._first: tuple[float, int] | None = None
        self._counts = Counts()
        self._logged = -inf

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()

    def observe(self, _: Batch, plan: Plan) -> None:
        """Count the records of one batch, by verdict."""
        self._counts += plan.counts
        unique, duplicate = self._counts.unique, self._counts.duplicate
        self._bar.set_postfix(refresh=False, unique=unique, duplicate=duplicate)
        self._move(len(plan), {"unique": unique, "duplicate": duplicate})

    def advance(self, records: int) -> None:
        """Count this many more records."""
        self._move(records, {})

    def _move(self, records: int, counts: dict[str, int]) -> None:
        self._done += records
        now = time.monotonic()
        if self._first is None:
            self._first = now, records
            self._start_clock(records)
        else:
            self._bar.update(records)
        if self._bar.disable and now - self._logged >= EVERY_SECONDS:
            self._logged = now
            began, before = self._first
            pace = RunProgress(self._done, self._total, now - began, before).as_json()
            known = {name: value for name, value in pace.items() if value is not None}
            log.info("progress", extra={"fields": {"mode": self._mode, **known, **counts}})

    def _start_clock(self, records: int) -> None:
        """Measure the rate from the first records on.

        The time before them is for loading code and earlier decisions, or for starting workers: with it, the
        first estimate of the time left was thirty times too long.
        """
        self._bar.initial = records
        self._bar.n = self._bar.last_print_n = records
        self._bar.unpause()
        self._bar.refresh()
