"""What `reconcile --apply` is to do, and what it did, for people and for scripts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dedup_job.document import VANISHED, Counts
from dedup_job.mongo.id_list import IdList
from dedup_job.mongo.shown_ids import extended
from dedup_job.report.terminal import id_text

SAMPLES = 5
MOST_LISTED = 100  # ids in JSON, which is also a row of the ledger and may have 16 MiB


@dataclass(frozen=True, slots=True)
class Due:
    """How many records are outdated.

    renewed    changed, but not in their text
    changed    in their text, too, or what was decided of them is not of their text
    handed_on  were dropped for one that changed or vanished
    refused    the target refused them, and may take them now
    failed     were copied without being compared, as the job failed on them
    kept       vanished and are in the target
    others     vanished and are not
    """

    renewed: int
    changed: int
    handed_on: int
    refused: int
    failed: int
    kept: int
    others: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        vanished = {"kept": self.kept, "not_kept": self.others}
        return {
            "renew": self.renewed,
            "decide_again": {
                "changed": self.changed,
                "handed_on": self.handed_on,
                "refused": self.refused,
                "failed": self.failed,
            },
            "take_out": vanished,
        }

    def as_text(self, target: str) -> str:
        """Return it for people."""
        rows = [
            ("renewed", self.renewed, "changed, but not in their text: verdicts stay"),
            ("decided again", self.changed, "changed in their text"),
            ("", self.handed_on, "were dropped for one that changed or vanished"),
            ("", self.refused, "were refused by the target, which may take them now"),
            ("", self.failed, "were copied without being compared, as the job failed on them"),
            ("vanished", self.kept, "leave the target"),
            ("", self.others, "are not in it"),
        ]
        return "\n".join(
            [
                f"reconcile would bring {target} up to date:",
                *(f"  {name:<16}{count:>13,}  {what}" for name, count, what in rows),
                "what others altered in the target stays as it is there",
            ]
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done.

    run      its name; what it had decided again can be undone
    renewed  records that changed, but not in their text
    counts   the verdicts on records that were decided again; what had vanished is refused
    removed  records that left the target
    stay     raw ids of records of which the target keeps what it has: others altered that, or it does not
             take the record as it is now
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
        """0, or 3 when something stays as it was, or the target refused something."""
        refused = {reason: n for reason, n in self.counts.refused.items() if reason != VANISHED.reason}
        return 3 if self.stay or refused else 0

    def as_json(self) -> dict[str, Any]:
        """Return it as one JSON object."""
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
        """Return it for people."""
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
            f"  renewed             {self.renewed:>13,}",
            f"  decided again       {counts.read:>13,}  {verdicts}".rstrip(),
            f"  out of the target   {self.removed:>13,}",
        ]
        if self.stay:
            what = "altered there, or refused as they are now:"
            lines.append(f"  stay as they were   {len(self.stay):>13,}  {what}")
            lines += [f"    {id_text(extended(one))}" for one in islice(self.stay, SAMPLES)]
            more = len(self.stay) - SAMPLES
            lines += (
                [f"    and {more:,} more: dedup.left names those that were decided again"] if more > 0 else []
            )
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])
