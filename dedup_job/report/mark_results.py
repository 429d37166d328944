"""The result of `mark`, as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dedup_job.mongo.ids import extended
from dedup_job.mongo.marks import CHANGED
from dedup_job.mongo.spilled_id_list import IdList
from dedup_job.report.terminal import count_row, format_id, more_row

# Ids shown as text, and in JSON.
SHOWN, LISTED = 5, 100
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
    unmarked: dict[str, IdList] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, marked: int, already: int, unmarked: Mapping[bytes, str]) -> None:
        """Count some more records; `unmarked` says why records have no mark."""
        self.marked += marked
        self.already += already
        for reason in dict.fromkeys(unmarked.values()):
            ids = self.unmarked.setdefault(reason, IdList())
            ids.extend(raw_id for raw_id, why in unmarked.items() if why == reason)

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
            "unmarked": {
                reason: {"count": len(ids), "ids": list(map(extended, islice(ids, LISTED)))}
                for reason, ids in self.unmarked.items()
            },
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
        for reason, ids in self.unmarked.items():
            label = f"no mark: {reason}"
            lines.append(
                count_row(label, len(ids), MEANS.get(reason, "a rule of the source refuses the mark"))
            )
            lines += [f"    {format_id(extended(raw_id))}" for raw_id in islice(ids, SHOWN)]
            lines += more_row(len(ids), SHOWN, "    ", "--json lists up to 100")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])
