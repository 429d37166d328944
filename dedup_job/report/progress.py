"""Progress on long work: a bar on a terminal, elsewhere a log line at once and every half minute."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from math import inf
from types import TracebackType
from typing import Self

from tqdm import tqdm

from dedup_job.document import Batch, Counts
from dedup_job.plan import Plan
from dedup_job.report.log import is_interactive

EVERY_SECONDS = 30.0

Advance = Callable[[int], object]
"""Called with how many more records are done, as `Progress.advance` is."""

log = logging.getLogger("dedup_job")


class Progress:
    """Told of each plan, or of how many more records are done; use it as a context manager."""

    def __init__(self, mode: str, total: int | None, unit: str = "docs") -> None:
        """Show progress of `mode`; `total` is the expected number of records, None where unknown."""
        is_bar = is_interactive()
        self._bar = tqdm(total=total, desc=mode, unit=f" {unit}", file=sys.stderr, disable=not is_bar)
        self._mode = mode
        self._done = 0
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
        """Move on by one chunk."""
        self._counts += plan.counts
        self._bar.set_postfix(unique=self._counts.unique, duplicate=self._counts.duplicate)
        self._move(len(plan), {"unique": self._counts.unique, "duplicate": self._counts.duplicate})

    def advance(self, records: int) -> None:
        """Move on by so many records."""
        self._move(records, {})

    def _move(self, records: int, counts: dict[str, int]) -> None:
        self._done += records
        self._bar.update(records)
        if self._bar.disable and time.monotonic() - self._logged >= EVERY_SECONDS:
            self._logged = time.monotonic()
            log.info("progress", extra={"fields": {"mode": self._mode, "read": self._done, **counts}})
