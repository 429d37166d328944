"""Results of `reconcile`: records that runs missed, and decided records that changed or vanished since."""

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
from dedup_job.report.terminal import count_row, join_counts, more_row, row_line

SAMPLES = 5  # ids shown as text
MOST_LISTED = 1_000  # records in JSON
KEPT, DROPPED, REFUSED = "kept", "dropped", "refused"
FATES = {
    Action.UNIQUE: KEPT,
    Action.UNJUDGED: KEPT,
    Action.DUPLICATE: DROPPED,
    Action.REFUSED: REFUSED,
}
CHANGED = {
    KEPT: "the target has their old version",
    DROPPED: "their new text may be missing from the target",
    REFUSED: "not in the target",
}
VANISHED = {
    KEPT: "the target still has them",
    DROPPED: "their keepers still represent them",
    REFUSED: "not in the target",
}


class IdTally:
    """Decided records that changed, or that vanished, and the earlier decision about each.

    A record takes a byte of memory here; ids are on disk where they are many.
    """

    def __init__(self) -> None:
        self._ids = IdList()
        self._actions = bytearray()

    def add(self, records: Iterable[tuple[bytes, Action]]) -> None:
        """Add records, given as raw ids with their decisions."""
        records = list(records)
        self._ids.extend(raw_id for raw_id, _ in records)
        self._actions += bytes(action for _, action in records)

    @property
    def counts(self) -> Counter[str]:
        """The number of records by decision."""
        counts = Counter[str]()
        for action, fate in FATES.items():
            counts[fate] += self._actions.count(action)
        return +counts  # without zeros

    def rows(self, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield all records, or the first `most`, as JSON values."""
        pairs = zip(self._ids, self._actions, strict=True)
        for raw_id, action in islice(pairs, most):
            yield {"id": extended(raw_id), "was": FATES[Action(action)]}

    def as_json(self) -> dict[str, Any]:
        """Return counts and the first records as JSON values."""
        counts = self.counts
        records = list(self.rows(MOST_LISTED))
        return {**{fate: counts[fate] for fate in (KEPT, DROPPED, REFUSED)}, "records": records}

    def lines(self, name: str, meanings: dict[str, str]) -> list[str]:
        """Return counts and the first records as lines of text.

        Args:
            name: What happened to the records.
            meanings: What that means for the target, by decision.
        """
        counts = self.counts
        return [
            count_row(name, counts.total(), width=10),
            *(f"    {fate} {counts[fate]:,}: {note}" for fate, note in meanings.items() if counts[fate]),
            *(f"    {row_line(row)}" for row in self.rows(SAMPLES)),
            *more_row(counts.total(), SAMPLES, "    ", "--ids FILE lists all"),
        ]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of `reconcile`.

    Attributes:
        source: The source's name.
        decided: Number of records that were decided before.
        missed: The report of the run that decided missed records; None if there were none.
        changed: Records that differ from their decided version; None if contents were not compared.
        vanished: Decided records that are no longer in the source.
        seconds: How long it took.
        applied: The changes that `--apply` made; None if it was not given, or nothing was outdated.
        refused_before: Records that the target refused in earlier runs that did not report them, by reason.
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
        """0, or 3 if the target refused something, or a copy that others changed stays there."""
        codes = [result.exit_code for result in (self.missed, self.applied) if result is not None]
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
        """Return the result as text."""
        lines = [f"reconcile {self.source}: {self.decided:,} records were decided"]
        lines.append(count_row("missed", self.missed.counts.read if self.missed else 0, width=10))
        # The meanings describe a target that is not up to date, so they are wrong after `--apply`.
        if self.changed is not None:
            lines += self.changed.lines("changed", {} if self.applied else CHANGED)
        lines += self.vanished.lines("vanished", {} if self.applied else VANISHED)
        if self.refused_before:
            lines.append(f"  refused in earlier interrupted runs: {join_counts(self.refused_before)}")
        lines.append(f"  {self.seconds:,.1f} s")
        return "\n".join([*lines, *(result.as_text() for result in (self.applied, self.missed) if result)])
