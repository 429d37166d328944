"""The result of `verify`: which differences there are, how many of each kind, and some of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dedup_job.report.summary import peak_rss_mb
from dedup_job.report.terminal import row_line


@dataclass(frozen=True, slots=True)
class Difference:
    """One kind of difference; `samples` are JSON objects, with ids under `id` or names in `_id`."""

    kind: str
    means: str
    count: int
    samples: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Verification:
    """What was compared, and what disagrees.

    decisions  records whose decision was compared
    whole      whether these are all; else they are a sample
    left_out   kinds of difference that were not looked for
    waiting    records of the source that the next run decides
    """

    target: str
    decisions: int
    whole: bool
    differences: Sequence[Difference]
    left_out: Sequence[str]
    seconds: float
    waiting: int = 0

    @property
    def agrees(self) -> bool:
        """Whether nothing disagrees."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "target": self.target,
            "agrees": self.agrees,
            "decisions": self.decisions,
            "whole": self.whole,
            "differences": {
                one.kind: {"count": one.count, "means": one.means, "samples": list(one.samples)}
                for one in self.differences
            },
            "left_out": list(self.left_out),
            "waiting": self.waiting,
            "seconds": round(self.seconds, 3),
            "peak_rss_mb": round(peak_rss_mb(), 1),
        }

    def as_text(self) -> str:
        """Return the result for people."""
        which = "decisions" if self.whole else "decisions, a sample,"
        lines = [f"verify {self.target}: {self.decisions:,} {which} compared"]
        for one in self.differences:
            lines.append(f"  {one.kind:<20}{one.count:>11,}  {one.means}")
            lines += [f"    {row_line(sample)}" for sample in one.samples]
        if self.waiting:
            lines.append(
                f"  {self.waiting:,} records of the source are not decided yet: the next run decides them"
            )
        if self.left_out:
            lines.append(f"  not looked for: {', '.join(self.left_out)}")
        rate = self.decisions / self.seconds if self.seconds else 0.0
        speed = f"{self.seconds:,.1f} s, {rate:,.0f} decisions/s, peak memory {peak_rss_mb():,.0f} MB"
        verdict = (
            "all agrees" if self.agrees else "state and data disagree; see Checking in docs/operations.md"
        )
        return "\n".join([*lines, f"  {verdict}; {speed}"])
