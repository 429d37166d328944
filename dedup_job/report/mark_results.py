"""The result of `mark`, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dedup_job.mongo.ids import extended
from dedup_job.mongo.spilled_id_list import IdList
from dedup_job.report.terminal import count_row, format_id, more_row

# Ids shown as text, and in JSON.
SHOWN, LISTED = 5, 100


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
        changed: Ids of dropped records that changed since they were judged; they have no mark.
        seconds: How long it took.
    """

    run: str
    source: str
    mark_field: str
    is_preview: bool = False
    marked: int = 0
    already: int = 0
    cleared: int = 0
    changed: IdList = field(default_factory=IdList)
    seconds: float = 0.0

    def add(self, marked: int, already: int, changed: Sequence[bytes]) -> None:
        """Count some more records."""
        self.marked += marked
        self.already += already
        self.changed.extend(changed)

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
            "changed": list(map(extended, islice(self.changed, LISTED))),
            "changed_count": len(self.changed),
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
        if self.changed:
            note = "since they were judged, so they have no mark; `sync` decides them again"
            lines.append(count_row("changed", len(self.changed), note))
            lines += [f"    {format_id(extended(raw_id))}" for raw_id in islice(self.changed, SHOWN)]
            lines += more_row(len(self.changed), SHOWN, "    ", "--json lists up to 100")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])
