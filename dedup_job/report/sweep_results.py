"""The result of `sweep`, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dedup_job.mongo.ids import extended
from dedup_job.mongo.marks import CHANGED
from dedup_job.mongo.spilled_id_list import IdList
from dedup_job.report.terminal import count_row, format_id, more_row

# Ids shown as text, and in JSON.
SHOWN, LISTED = 5, 100
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
    stay: dict[str, IdList] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, moved: int, stay: Mapping[bytes, str]) -> None:
        """Count some more records."""
        self.moved += moved
        for reason in dict.fromkeys(stay.values()):
            self.add_staying(reason, (raw_id for raw_id, why in stay.items() if why == reason))

    def add_staying(self, reason: str, ids: Iterable[bytes]) -> None:
        """Count some more records that stay in the source."""
        self.stay.setdefault(reason, IdList()).extend(ids)

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
            "stay": {
                reason: {"count": len(ids), "ids": list(map(extended, islice(ids, LISTED)))}
                for reason, ids in self.stay.items()
            },
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
        for reason, ids in self.stay.items():
            lines.append(count_row(f"stay: {reason}", len(ids), MEANS.get(reason, "a rule of the archive")))
            lines += [f"    {format_id(extended(raw_id))}" for raw_id in islice(ids, SHOWN)]
            lines += more_row(len(ids), SHOWN, "    ", "--json lists up to 100")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])
