"""Progress on long work: a bar on a terminal, a log line every half minute elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Self

from tqdm import tqdm

from dedup_job.document import Batch, Counts
from dedup_job.plan import Plan

EVERY_SECONDS = 30.0

log = logging.getLogger("dedup_job")


class Progress:
    """Told of each plan; use it as a context manager."""

    def __init__(self, mode: str, total: int | None) -> None:
        """Show progress of `mode`; `total` is the expected number of records, None where unknown."""
        self._bar = tqdm(
            total=total, desc=mode, unit=" docs", file=sys.stderr, disable=not sys.stderr.isatty()
        )
        self._mode = mode
        self._counts = Counts()
        self._told = time.monotonic()

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
        self._bar.update(len(plan))
        self._bar.set_postfix(unique=self._counts.unique, duplicate=self._counts.duplicate)
        if self._bar.disable and time.monotonic() - self._told >= EVERY_SECONDS:
            self._told = time.monotonic()
            numbers = {
                "read": self._counts.read,
                "unique": self._counts.unique,
                "duplicate": self._counts.duplicate,
            }
            log.info("progress", extra={"fields": {"mode": self._mode, **numbers}})
