"""The result of `sweep`, as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dedup_job.mongo.marks import CHANGED
from dedup_job.report.changes_results import IdsByReason
from dedup_job.report.terminal import count_row

# Reasons for a dropped record to stay in the source.  The other reasons are refusals of the archive.
KEEPER, UNMOVABLE = "keeper", "unmovable"
MEANS = {
    CHANGED: "since they were judged; `sync` decides them again",
    KEEPER: "the kept record is not in the source any more, or has another text; `sync` decides them again",
    UNMOVABLE: "too long or too deep for a command, or with an empty timestamp, which the server would set",
    "conflict": "the archive has another version of the record",
}


@dataclass(slots=True)
class SweepResult:
    """What `sweep` did, or would do.

    Attributes:
        run: Name of the run; empty for a preview.
        source: Name of the source.
        archive: Name of the archive.
        is_preview: Whether nothing was written.
        moved: Number of records that were moved.
        already: Number of records that were in the archive only.
        stay: Ids of dropped records that stay in the source, by reason.
        seconds: How long it took.
    """

    run: str
    source: str
    archive: str
    is_preview: bool = False
    moved: int = 0
    already: int = 0
    stay: IdsByReason = field(default_factory=IdsByReason)
    seconds: float = 0.0

    def add(self, moved: int, stay: Mapping[bytes, str]) -> None:
        """Count some more records."""
        self.moved += moved
        self.stay.add(stay)

    @property
    def exit_code(self) -> int:
        """0, or 3 if the archive refused records."""
        return 3 if self.stay.keys() - {CHANGED, KEEPER, UNMOVABLE} else 0

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "run": self.run,
            "mode": "sweep",
            "dry_run": self.is_preview,
            "archive": self.archive,
            "moved": self.moved,
            "already": self.already,
            "stay": self.stay.as_json(),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the result as text."""
        if self.is_preview:
            lines = [f"sweep would move records of {self.source} to {self.archive}:"]
        else:
            lines = [f"sweep {self.run}: from {self.source} to {self.archive}"]
        lines.append(count_row("to move" if self.is_preview else "moved", self.moved))
        lines.append(count_row("moved before", self.already))
        lines += self.stay.lines("stay", MEANS, "a rule of the archive")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])
