"""The result of `reconcile`: what runs had missed, and what became of the decided records in the source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dedup_job.document import Action
from dedup_job.report.summary import Report

SAMPLES = 5
KEPT, DROPPED, REFUSED = "kept", "dropped", "refused"
FATES = {
    Action.UNIQUE: KEPT,
    Action.UNJUDGED: KEPT,
    Action.DUPLICATE: DROPPED,
    Action.REFUSED: REFUSED,
}
CHANGED = {
    KEPT: "the target has them as they were",
    DROPPED: "what they say now may be nowhere in the target",
    REFUSED: "not in the target",
}
VANISHED = {
    KEPT: "the target still has them",
    DROPPED: "their keepers still stand for them",
    REFUSED: "not in the target",
}


@dataclass(slots=True)
class Tally:
    """How many decided records something happened to, by what was decided, and the first of them."""

    counts: Counter[str] = field(default_factory=Counter)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def add(self, records: Iterable[tuple[Any, Action]]) -> None:
        """Count records, given as an id in JSON values and what was decided."""
        for raw_id, action in records:
            self.counts[FATES[action]] += 1
            if len(self.samples) < SAMPLES:
                self.samples.append({"id": raw_id, "was": FATES[action]})

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**{fate: self.counts[fate] for fate in (KEPT, DROPPED, REFUSED)}, "samples": self.samples}

    def lines(self, name: str, meanings: dict[str, str]) -> list[str]:
        """Return it for people."""
        lines = [f"  {name:<10}{self.counts.total():>13,}"]
        lines += [
            f"    {fate} {self.counts[fate]:,}: {meaning}"
            for fate, meaning in meanings.items()
            if self.counts[fate]
        ]
        return lines + [f"    {json.dumps(sample, ensure_ascii=False)}" for sample in self.samples]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What came out; `decided` are the records decided before.

    missed   the report of the run that decided what was missed; None where nothing was
    changed  records that are not as they were judged; None where that was not asked for
    """

    source: str
    decided: int
    missed: Report | None
    changed: Tally | None
    vanished: Tally
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "source": self.source,
            "decided": self.decided,
            "missed": self.missed.counts.read if self.missed else 0,
            "run": self.missed.as_json() if self.missed else None,
            "changed": self.changed.as_json() if self.changed else None,
            "vanished": self.vanished.as_json(),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the result for people."""
        lines = [f"reconcile {self.source}: {self.decided:,} records were decided"]
        lines.append(f"  {'missed':<10}{self.missed.counts.read if self.missed else 0:>13,}")
        if self.changed is not None:
            lines += self.changed.lines("changed", CHANGED)
        lines += self.vanished.lines("vanished", VANISHED)
        lines.append(f"  {self.seconds:,.1f} s")
        return "\n".join([*lines, *([self.missed.as_text()] if self.missed else [])])
