"""Progress: how far a command is, and when it will end, as a bar, a log line, text or JSON."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Self

from tqdm import tqdm

from dedup_job.records import Counts, Plan
from dedup_job.report.logs import is_interactive
from dedup_job.report.terminal_text import format_duration

EVERY_SECONDS = 30.0

Advance = Callable[[int], object]
"""Called with the number of records that were finished since the last call, as `Progress.advance` is."""

log = logging.getLogger("dedup_job")


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run.

    Attributes:
        read: Records decided so far.
        expected: About how many records the run will decide; None if unknown.
        seconds: Time since it began to decide.
        unmeasured: Records among `read` that were decided before `seconds` began.
    """

    read: int
    expected: int | None
    seconds: float
    unmeasured: int = 0

    @property
    def total(self) -> int | None:
        """The expected number of records; None if it is unknown, or the run has decided more by now."""
        return self.expected if self.expected is not None and self.expected >= self.read else None

    @property
    def per_second(self) -> float | None:
        """Records decided in a second; None if there are none yet."""
        measured = self.read - self.unmeasured
        return measured / self.seconds if measured and self.seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at the present rate; None if unknown."""
        if self.total is None or self.per_second is None:
            return None
        return (self.total - self.read) / self.per_second

    def as_json(self) -> dict[str, Any]:
        """Return the progress as JSON values."""
        return {
            "read": self.read,
            "total": self.total,
            "records_per_second": _rounded(self.per_second),
            "seconds_left": _rounded(self.seconds_left),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def progress_text(shown: Mapping[str, Any]) -> str:
    """Return the JSON values of a progress as text.

    >>> progress_text(RunProgress(1_190_000, 5_000_000, 100).as_json())
    '1,190,000 of about 5,000,000 records, 11,900/s, about 5 minutes left'
    >>> progress_text(RunProgress(40, None, 5).as_json())
    '40 records, 8.0/s'
    """
    read, total, rate, left = (
        shown[name] for name in ("read", "total", "records_per_second", "seconds_left")
    )
    parts = [f"{read:,} records" if total is None else f"{read:,} of about {total:,} records"]
    if rate is not None:
        parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
    if left is not None:
        parts.append(f"about {format_duration(left)} left")
    return ", ".join(parts)


class Progress:
    """Shows progress while it is used as a context manager; call `observe` or `advance` as work is done."""

    def __init__(self, mode: str, total: int | None, unit: str = "docs") -> None:
        """Show the progress of a command.

        Args:
            mode: The command.
            total: Expected number of records; None or 0 if unknown.
            unit: Plural name of the counted things.
        """
        total = total or None
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

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def observe(self, plan: Plan) -> None:
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
