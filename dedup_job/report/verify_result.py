"""The result of `verify`, as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dedup_job.pasteable_command import command_line
from dedup_job.report.run_summary import peak_rss_mb
from dedup_job.report.terminal_text import format_row


@dataclass(frozen=True, slots=True)
class AuditDifference:
    """One kind of difference between ledger, target and source.

    Attributes:
        kind: The name of the kind.
        means: The meaning of the difference, in words.
        count: Number of differences.
        samples: Some of them, as JSON objects, with ids in `id` or in names that end with `_id`.
    """

    kind: str
    means: str
    count: int
    samples: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of `verify`.

    Attributes:
        target: The target's name.
        decisions: Number of records whose decision was checked.
        whole: Whether these are all records, or a sample.
        differences: The differences found.
        left_out: Kinds of difference that were not checked.
        seconds: How long it took.
        waiting: Number of records in the source that the next run decides.
    """

    target: str
    decisions: int
    whole: bool
    differences: Sequence[AuditDifference]
    left_out: Sequence[str]
    seconds: float
    waiting: int = 0

    @property
    def agrees(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "target": self.target,
            "agrees": self.agrees,
            "decisions": self.decisions,
            "whole": self.whole,
            "differences": {
                difference.kind: {
                    "count": difference.count,
                    "means": difference.means,
                    "samples": list(difference.samples),
                }
                for difference in self.differences
            },
            "left_out": list(self.left_out),
            "waiting": self.waiting,
            "seconds": round(self.seconds, 3),
            "peak_rss_mb": round(peak_rss_mb(), 1),
        }

    def as_text(self) -> str:
        """Return the result as text."""
        decisions = "decisions" if self.whole else "sampled decisions"
        lines = [f"verify {self.target}: {self.decisions:,} {decisions} compared"]
        for difference in self.differences:
            lines.append(f"  {difference.kind:<20}{difference.count:>11,}  {difference.means}")
            lines += [f"    {format_row(sample)}" for sample in difference.samples]
        if self.waiting:
            lines.append(
                f"  {self.waiting:,} records of the source are not decided yet: the next run decides them"
            )
        lines.append(
            "  contents of source records were not compared in full; to find edits: "
            f"{command_line('changes --content')}"
        )
        if self.left_out:
            lines.append(f"  not checked: {', '.join(self.left_out)}")
        rate = self.decisions / self.seconds if self.seconds else 0.0
        speed = f"{self.seconds:,.1f} s, {rate:,.0f} decisions/s, peak memory {peak_rss_mb():,.0f} MB"
        verdict = (
            "all agrees" if self.agrees else "state and data disagree; see docs/how-to/check-a-target.md"
        )
        return "\n".join([*lines, f"  {verdict}; {speed}"])
