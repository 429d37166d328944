"""Results of `reconcile --apply`: the records to bring up to date, and the changes made, as text and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dedup_job.document import VANISHED, Counts
from dedup_job.mongo.id_list import IdList
from dedup_job.mongo.shown_ids import extended
from dedup_job.report.terminal import count_row, id_text, more_row

SAMPLES = 5  # ids shown as text
MOST_LISTED = 100  # ids in JSON, which is also a row of the ledger and may have 16 MiB


@dataclass(frozen=True, slots=True)
class Due:
    """Numbers of outdated records.

    Attributes:
        renewed: Records that changed, but not in their text.
        changed: Records whose text changed, or whose decision is about another text.
        handed_on: Records that were dropped for a record that changed or vanished.
        refused: Records that the target refused, and may accept now.
        failed: Records that were copied without being compared, because the job failed on them.
        kept: Vanished records that are in the target.
        others: Vanished records that are not in the target.
    """

    renewed: int
    changed: int
    handed_on: int
    refused: int
    failed: int
    kept: int
    others: int

    def as_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {
            "renew": self.renewed,
            "decide_again": {
                "changed": self.changed,
                "handed_on": self.handed_on,
                "refused": self.refused,
                "failed": self.failed,
            },
            "take_out": {"kept": self.kept, "not_kept": self.others},
        }

    def as_text(self, target: str) -> str:
        """Return the numbers as text, before the user is asked."""
        rows = [
            ("renewed", self.renewed, "changed, but not in their text: verdicts stay"),
            ("decided again", self.changed, "changed in their text"),
            ("", self.handed_on, "were dropped for a record that changed or vanished"),
            ("", self.refused, "were refused by the target, which may accept them now"),
            ("", self.failed, "were copied without being compared, because the job failed on them"),
            ("vanished", self.kept, "will be removed from the target"),
            ("", self.others, "are not in the target"),
        ]
        return "\n".join(
            [
                f"reconcile would bring {target} up to date:",
                *(count_row(*row, width=16) for row in rows),
                "records that others changed in the target stay unchanged",
            ]
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """The changes that `reconcile --apply` made.

    Attributes:
        run: The run's name; `undo` takes it, to undo the new decisions.
        target: The target's name.
        renewed: Number of records that changed, but not in their text.
        counts: The verdicts on records that were decided again; vanished records are refused.
        removed: Number of records removed from the target.
        seconds: How long it took.
        stay: Raw ids of records whose copy in the target stays unchanged: others changed the copy, or the
            target refused the new version.
    """

    run: str
    target: str
    renewed: int
    counts: Counts
    removed: int
    seconds: float
    stay: IdList = field(default_factory=IdList)

    @property
    def exit_code(self) -> int:
        """0, or 3 if an outdated copy stays, or the target refused something."""
        refused = {reason: n for reason, n in self.counts.refused.items() if reason != VANISHED.reason}
        return 3 if self.stay or refused else 0

    def as_json(self) -> dict[str, Any]:
        """Return the changes as one JSON object."""
        return {
            "run": self.run,
            "mode": "apply",
            "renewed": self.renewed,
            **self.counts.as_json(),
            "removed": self.removed,
            "stay": list(map(extended, islice(self.stay, MOST_LISTED))),
            "stay_count": len(self.stay),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the changes as text."""
        counts = self.counts
        numbers = {
            "unique": counts.unique,
            "duplicate": counts.duplicate,
            "unjudged": sum(counts.unjudged.values()),
            **counts.refused,
        }
        verdicts = ", ".join(f"{name} {count:,}" for name, count in numbers.items() if count)
        lines = [
            f"apply {self.run}: {self.target} is up to date",
            count_row("renewed", self.renewed),
            count_row("decided again", counts.read, verdicts),
            count_row("removed from target", self.removed),
        ]
        if self.stay:
            reason = "changed in the target by others, or refused in their new version:"
            lines.append(count_row("left unchanged", len(self.stay), reason))
            lines += [f"    {id_text(extended(raw_id))}" for raw_id in islice(self.stay, SAMPLES)]
            lines += more_row(len(self.stay), SAMPLES, "    ", "dedup.left has those that were decided again")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])
