"""How far a run is: records, rate, and the time that is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dedup_job.report.terminal import format_duration


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
