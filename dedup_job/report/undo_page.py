"""What was taken back or put back, for people and for scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from dedup_job.document import Counts
from dedup_job.report.terminal import id_text

AFTER_APPLY = (
    "  the next run decides all of it; what was in the target before that apply, and",
    "  had changed in the source or vanished from it, does not come back",
)


@dataclass(frozen=True, slots=True)
class Intended:
    """What an undo would take back.

    undoes     the run, which had this mode and began then, where the ledger still says so
    plans      so many plans of it
    counts     the verdicts that are in them
    has_begun  whether an undo of it was killed: this is the rest
    """

    undoes: str
    mode: str | None = None
    started: datetime | None = None
    plans: int = 0
    counts: Counts = field(default_factory=Counts)
    has_begun: bool = False

    def with_plan(self, counts: Counts) -> Intended:
        """Return it with one more plan."""
        return replace(self, plans=self.plans + 1, counts=self.counts + counts)

    @property
    def most_removed(self) -> int:
        """How many records would go from the target, if all are there as they were judged."""
        return self.counts.unique + sum(self.counts.unjudged.values())

    def as_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        return {
            "mode": "undo",
            "dry_run": True,
            "undoes": self.undoes,
            "has_begun": self.has_begun,
            "plans": self.plans,
            "read": self.counts.read,
            "most_removed": self.most_removed,
            "duplicate": {"exact": self.counts.exact, "near": self.counts.near},
            "refused": dict(self.counts.refused),
        }

    def as_text(self) -> str:
        """Return it for people."""
        when = f" of {self.started:%Y-%m-%d %H:%M}" if self.started else ""
        rest = ", the rest of what was begun" if self.has_begun else ""
        lines = [
            f"undo would take back run {self.undoes} ({self.mode or 'run'}{when}){rest}:",
            f"  undecided again     {self.counts.read:>13,}",
            f"  out of the target   {self.most_removed:>13,}  at most: what was altered there stays,",
            f"  {'':33}  and what the source has no more as it was",
            *(AFTER_APPLY if self.mode == "apply" else ()),
        ]
        return "\n".join(lines)


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
    """Which records were put back.

    ids      of those, as JSON values
    asked    how many were asked for
    changed  ids of those that the source has otherwise than they were when they were dropped
    """

    run: str
    ids: Sequence[Any]
    asked: int
    changed: Sequence[Any] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
        about = {"run": self.run, "mode": "restore", "restored": list(self.ids), "asked": self.asked}
        return {**about, "changed": list(self.changed)}

    def as_text(self) -> str:
        """Return it for people."""
        lines = [f"{id_text(one)} is in the target again{self._since(one)}" for one in self.ids]
        before = self.asked - len(lines)
        return "\n".join([*lines, f"{before:,} restored before"] if before else lines)

    def _since(self, one: Any) -> str:
        return ", as the source has it now, which is not as it was dropped" if one in self.changed else ""
