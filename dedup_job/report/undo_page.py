"""What was taken back or put back, for people and for scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dedup_job.document import Counts
from dedup_job.report.terminal import id_text


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did, with what a killed one before it did.

    run      the undo's own name
    undid    the run that was taken back
    plans    so many plans of it
    counts   the verdicts that were in them
    left     how many of its records stay in the target, by reason
    already  whether all this was done before
    """

    run: str
    undid: str
    plans: int = 0
    counts: Counts = field(default_factory=Counts)
    left: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    already: bool = False

    @property
    def exit_code(self) -> int:
        """0, or 3 when records stay in the target: the undo is done, and doing it again changes nothing."""
        return 3 if self.left else 0

    def as_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        counts = self.counts
        return {
            "run": self.run,
            "mode": "undo",
            "undid": self.undid,
            "already": self.already,
            "plans": self.plans,
            **counts.as_json(),
            "left": dict(self.left),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return it for people."""
        if self.already:
            return f"run {self.undid} is undone already, by {self.run}"
        counts, stay = self.counts, sum(self.left.values())
        there = counts.unique + sum(counts.unjudged.values())
        lines = [
            f"undo {self.run}: run {self.undid} is taken back",
            f"  undecided again     {counts.read:>13,}",
            f"  out of the target   {there - stay:>13,}",
        ]
        if stay:
            why = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.left.items()))
            lines.append(f"  stay in the target  {stay:>13,}  {why}; they are in dedup.left")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])


@dataclass(frozen=True, slots=True)
class Restored:
    """Which records were put back; `ids` as JSON values, `asked` is how many were asked for."""

    run: str
    ids: Sequence[Any]
    asked: int

    def as_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return {"run": self.run, "mode": "restore", "restored": list(self.ids), "asked": self.asked}

    def as_text(self) -> str:
        """Return it for people."""
        lines = [f"{id_text(one)} is in the target again" for one in self.ids]
        before = self.asked - len(lines)
        return "\n".join([*lines, f"{before:,} restored before"] if before else lines)
