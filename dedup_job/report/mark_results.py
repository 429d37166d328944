"""The result of `mark`, as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dedup_job.mongo.marks import CHANGED
from dedup_job.report.changes_results import IdsByReason
from dedup_job.report.terminal import count_row

UNMARKABLE = "unmarkable"
MEANS = {
    CHANGED: "since they were judged, so they have no mark; `sync` decides them again",
    UNMARKABLE: "too large or too deep for a command that compares them",
}


@dataclass(slots=True)
class MarkResult:
    """What `mark` did, or would do.

    Attributes:
        run: Name of the run; empty for a preview.
        source: Name of the source.
        mark_field: The field of the marks.
        is_preview: Whether nothing was written.
        marked: Number of records that were marked.
        already: Number of records that had their mark already.
        cleared: Number of records whose mark was taken away.
        unmarked: Ids of dropped records that have no mark, by reason.
        seconds: How long it took.
    """

    run: str
    source: str
    mark_field: str
    is_preview: bool = False
    marked: int = 0
    already: int = 0
    cleared: int = 0
    unmarked: IdsByReason = field(default_factory=IdsByReason)
    seconds: float = 0.0

    def add(self, marked: int, already: int, unmarked: Mapping[bytes, str]) -> None:
        """Count some more records; `unmarked` says why records have no mark."""
        self.marked += marked
        self.already += already
        self.unmarked.add(unmarked)

    @property
    def exit_code(self) -> int:
        """0, or 3 if the source refused marks."""
        return 3 if self.unmarked.keys() - {CHANGED, UNMARKABLE} else 0

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "run": self.run,
            "mode": "mark",
            "dry_run": self.is_preview,
            "field": self.mark_field,
            "marked": self.marked,
            "already": self.already,
            "cleared": self.cleared,
            "unmarked": self.unmarked.as_json(),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the result as text."""
        if self.is_preview:
            lines = [f"mark would write the field {self.mark_field} into records of {self.source}:"]
        else:
            lines = [f"mark {self.run}: field {self.mark_field} of {self.source}"]
        lines.append(count_row("to mark" if self.is_preview else "marked", self.marked))
        lines.append(count_row("marked before", self.already))
        if not self.is_preview:
            lines.append(count_row("mark taken away", self.cleared))
        lines += self.unmarked.lines("no mark", MEANS, "a rule of the source refuses the mark")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])
