"""The summary of a run: counts, time and memory, for people and for scripts."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dedup_job.document import Counts
from dedup_job.mongo.indexes import Copied
from dedup_job.report import indexes_page


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did; `recipe` is the digest, `about` what it decides by, `index` what it looked through.

    `refused_before` counts what the target refused by reason, in earlier runs that did not say so.
    `warnings` is what guards had to say and did not stop the run for.
    `indexes` is what became of the source's indexes on the target, where they were to be copied.
    """

    run: str
    mode: str
    counts: Counts
    seconds: float
    recipe: str
    about: str = ""
    index: str = ""
    refused_before: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    indexes: Copied | None = None

    @property
    def docs_per_second(self) -> float:
        """Records decided in a second."""
        return self.counts.read / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        """0, or 3 when the target refused something, in this run or in one that this one went on from."""
        refused = sum(self.counts.refused.values()) + sum(self.refused_before.values())
        return 3 if refused or (self.indexes and self.indexes.refused) else 0

    def as_json(self) -> dict[str, Any]:
        """Return the report as one JSON object."""
        before = {"refused_before": dict(self.refused_before)} if self.refused_before else {}
        return {
            "run": self.run,
            "mode": self.mode,
            **self.counts.as_json(),
            "seconds": round(self.seconds, 3),
            "docs_per_second": round(self.docs_per_second, 1),
            "peak_rss_mb": round(peak_rss_mb(), 1),
            "recipe": self.recipe,
            "index": self.index,
            **before,
            **({"warnings": list(self.warnings)} if self.warnings else {}),
            **({"indexes": indexes_page.as_json(self.indexes)} if self.indexes else {}),
        }

    def as_text(self) -> str:
        """Return the report for people."""
        counts = self.counts
        if not counts.read:
            return "\n".join([f"{self.mode} {self.run}: nothing new to decide", *self._more()])
        rows = [
            ("read", counts.read, ""),
            ("unique", counts.unique, ""),
            ("duplicate", counts.duplicate, f"exact {counts.exact:,}, near {counts.near:,}"),
            ("unjudged", sum(counts.unjudged.values()), _reasons(counts.unjudged)),
            ("refused", sum(counts.refused.values()), _reasons(counts.refused)),
        ]
        lines = [f"{self.mode} {self.run}", *warned(self.warnings)]
        for name, count, more in rows:
            share = f"{100 * count / counts.read:5.1f} %"
            lines.append(f"  {name:<10}{count:>13,}  {share}  {more}".rstrip())
        if counts.partial:
            lines.append(
                f"  {counts.partial:,} judged by some of their fields: others are missing, null or empty"
            )
        lines.append(
            f"  {self.seconds:,.1f} s, {self.docs_per_second:,.0f} documents/s, "
            f"peak memory {peak_rss_mb():,.0f} MB"
        )
        lines.append(f"  recipe {self.recipe[:12]}: {self.about}".rstrip(": "))
        if self.index:
            lines.append(f"  index: {self.index}")
        return "\n".join([*lines, *self._more()])

    def _more(self) -> Iterator[str]:
        if self.refused_before:
            yield f"  refused in runs that were broken off before: {_reasons(self.refused_before)}"
        if self.indexes:
            yield from indexes_page.as_lines(self.indexes)


def warned(warnings: Sequence[str]) -> list[str]:
    """Return the lines of what guards had to say."""
    return [f"  WARNING: {warning}" for warning in warnings]


@dataclass(frozen=True, slots=True)
class LedgerProgress:
    """How far the ledger is after a run: what is not decided, None if unknown, and when all was seen."""

    undecided: int | None
    covered: datetime | None


def _reasons(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(reasons.items()))


def peak_rss_mb() -> float:
    """Return the most memory that this process has held, in MB; workers not counted in."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
