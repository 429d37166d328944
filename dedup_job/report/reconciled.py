"""The result of `reconcile`: what runs had missed, and what became of the decided records in the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dedup_job.document import Action
from dedup_job.mongo.id_list import IdList
from dedup_job.mongo.shown_ids import extended
from dedup_job.report.applied import Applied
from dedup_job.report.summary import Report
from dedup_job.report.terminal import row_line

SAMPLES = 5
MOST_LISTED = 1_000  # records in JSON
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


class IdTally:
    """Which decided records something happened to: their raw ids, and what was decided (`FATES`).

    A record takes a byte of memory here; ids are on disk where they are many.
    """

    def __init__(self) -> None:
        self._ids = IdList()
        self._actions = bytearray()

    def add(self, records: Iterable[tuple[bytes, Action]]) -> None:
        """Add records, given as a raw id and what was decided."""
        records = list(records)
        self._ids.extend(raw_id for raw_id, _ in records)
        self._actions += bytes(action for _, action in records)

    @property
    def counts(self) -> Counter[str]:
        """How many they are, by what was decided."""
        counts = Counter[str]()
        for action, fate in FATES.items():
            counts[fate] += self._actions.count(action)
        return +counts  # without zeros

    def rows(self, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield them, or the first of them, as JSON values."""
        pairs = zip(self._ids, self._actions, strict=True)
        return ({"id": extended(raw_id), "was": FATES[Action(one)]} for raw_id, one in islice(pairs, most))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values; of the records it has the first ones."""
        counts = self.counts
        records = list(self.rows(MOST_LISTED))
        return {**{fate: counts[fate] for fate in (KEPT, DROPPED, REFUSED)}, "records": records}

    def lines(self, name: str, meanings: dict[str, str]) -> list[str]:
        """Return it for people."""
        counts = self.counts
        lines = [f"  {name:<10}{counts.total():>13,}"]
        lines += [
            f"    {fate} {counts[fate]:,}: {meaning}" for fate, meaning in meanings.items() if counts[fate]
        ]
        lines += [f"    {row_line(row)}" for row in self.rows(SAMPLES)]
        more = counts.total() - SAMPLES
        return [*lines, f"    and {more:,} more: --ids FILE names all"] if more > 0 else lines


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What came out; `decided` are the records decided before.

    missed   the report of the run that decided what was missed; None where nothing was
    changed  records that are not as they were judged; None where that was not asked for
    applied  what was done about what changed or vanished; None where nothing was
    refused_before  how many records the target refused by reason, in earlier runs that did not say so
    """

    source: str
    decided: int
    missed: Report | None
    changed: IdTally | None
    vanished: IdTally
    seconds: float
    applied: Applied | None = None
    refused_before: Mapping[str, int] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0, or 3 when the target refused something, or something stays there that others altered."""
        codes = [done.exit_code for done in (self.missed, self.applied) if done is not None]
        return max([*codes, 3 if self.refused_before else 0])

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "source": self.source,
            "decided": self.decided,
            "missed": self.missed.counts.read if self.missed else 0,
            "run": self.missed.as_json() if self.missed else None,
            "changed": self.changed.as_json() if self.changed else None,
            "vanished": self.vanished.as_json(),
            **({"applied": self.applied.as_json()} if self.applied else {}),
            **({"refused_before": dict(self.refused_before)} if self.refused_before else {}),
            "seconds": round(self.seconds, 3),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all records that changed or vanished, as JSON values."""
        for name, tally in (("changed", self.changed), ("vanished", self.vanished)):
            for row in tally.rows() if tally else ():
                yield {**row, "now": name}

    def as_text(self) -> str:
        """Return the result for people."""
        lines = [f"reconcile {self.source}: {self.decided:,} records were decided"]
        lines.append(f"  {'missed':<10}{self.missed.counts.read if self.missed else 0:>13,}")
        if self.changed is not None:
            lines += self.changed.lines("changed", {} if self.applied else CHANGED)
        lines += self.vanished.lines("vanished", {} if self.applied else VANISHED)
        if self.refused_before:
            reasons = ", ".join(
                f"{reason} {count:,}" for reason, count in sorted(self.refused_before.items())
            )
            lines.append(f"  refused in runs that were broken off before: {reasons}")
        lines.append(f"  {self.seconds:,.1f} s")
        return "\n".join([*lines, *(done.as_text() for done in (self.applied, self.missed) if done)])
