"""Results of `changes` and `sync`, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dedup_job.pasteable_command import command_line
from dedup_job.records import UPDATE, VANISHED, Counts
from dedup_job.report.counts_with_ids import DROPPED, KEPT, REFUSED, AffectedRecords, id_lines, ids_json
from dedup_job.report.run_summary import RunSummary
from dedup_job.report.terminal_text import count_row, join_counts
from dedup_job.temporary_ids_and_tables import IdList

CHANGED_IDS = {
    KEPT: "the target has their old version",
    DROPPED: "their new text may be missing from the target",
    REFUSED: "not in the target",
}
VANISHED_IDS = {
    KEPT: "the target still has them",
    DROPPED: "their keepers still represent them",
}
# With `[target] copy = false` there is no target.
CHANGED_IDS_WITHOUT_COPIES = {
    KEPT: "the decision is about their old version",
    DROPPED: "their new text may be no duplicate",
    REFUSED: "nothing is dropped for them",
}
VANISHED_IDS_WITHOUT_COPIES = {
    KEPT: "their duplicates are still dropped",
    DROPPED: "their keepers still represent them",
}
MISSED_NOTE = "older than a run looks back; sync decides them, or the next full scan"
ARCHIVED_NOTE = "only in the archive, and never decided: copy it into the source, then sync and sweep"
KEPT_IN_ARCHIVE_NOTE = "kept, and only in the archive: sync moves them to the source"
BROUGHT_BACK_NOTE = "kept, and only in the archive: moved to the source"


@dataclass(frozen=True, slots=True)
class ChangesResult:
    """The result of `changes`.

    Attributes:
        source: The source's name.
        decided: Number of records that were decided before.
        new: Number of undecided records that the next run reads.
        missed: Number of undecided records with older ids, which a run reads only in a full scan.
        changed: Records that differ from their decided version; None if contents were not compared.
        vanished: Decided records that are no longer in the source, and were not refused.
        kept_in_archive: Number of kept records that are only in the archive of `sweep`.
        undecided_in_archive: Number of records that are only in the archive of `sweep`, and never decided.
        seconds: How long it took.
        has_copies: Whether kept records were copied to a target.
    """

    source: str
    decided: int
    new: int
    missed: int
    changed: AffectedRecords | None
    vanished: AffectedRecords
    kept_in_archive: int
    undecided_in_archive: int
    seconds: float
    has_copies: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "source": self.source,
            "decided": self.decided,
            "new": self.new,
            "missed": self.missed,
            "changed": None if self.changed is None else self.changed.as_json(),
            "vanished": self.vanished.as_json(),
            "kept_in_archive": self.kept_in_archive,
            "undecided_in_archive": self.undecided_in_archive,
            "seconds": round(self.seconds, 3),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all records that changed or vanished, as JSON values."""
        for name, tally in (("changed", self.changed), ("vanished", self.vanished)):
            for row in () if tally is None else tally.rows():
                yield {**row, "now": name}

    def as_text(self) -> str:
        """Return the result as text."""
        changed_ids = CHANGED_IDS if self.has_copies else CHANGED_IDS_WITHOUT_COPIES
        vanished_ids = VANISHED_IDS if self.has_copies else VANISHED_IDS_WITHOUT_COPIES
        outdated = "target" if self.has_copies else "decisions"
        lines = [
            f"changes in {self.source}: {self.decided:,} records were decided",
            count_row("new", self.new, "the next run decides them" if self.new else "", width=10),
            count_row("missed", self.missed, MISSED_NOTE if self.missed else "", width=10),
        ]
        if self.changed is None:
            lines.append(f"  {'changed':<10}{'-':>13}  contents were not compared; add --content")
        else:
            lines += self.changed.lines("changed", changed_ids)
        lines += self.vanished.lines("vanished", vanished_ids)
        if self.kept_in_archive:
            lines.append(count_row("archived", self.kept_in_archive, KEPT_IN_ARCHIVE_NOTE, width=10))
        if self.undecided_in_archive:
            lines.append(count_row("archived", self.undecided_in_archive, ARCHIVED_NOTE, width=10))
        affected = (self.vanished, *([self.changed] if self.changed else ()))
        if self.missed or self.kept_in_archive or any(records.counts for records in affected):
            lines.append(f"  to bring the {outdated} up to date: {command_line('sync')}")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])


@dataclass(slots=True)
class OutdatedCounts:
    """Numbers of outdated records.

    Attributes:
        renewed: Records that changed, but not in their text: their verdict stays.
        changed: Records whose text changed, or whose decision is about another text.
        handed_on: Records that were dropped for a record that changed or vanished.
        refused: Records that the target refused, and may accept now.
        failed: Records that were copied without being compared, because the job failed on them.
        kept: Vanished records that are in the target.
        others: Vanished records that are not in the target.
        occupied: Refused records that stay refused: the target still has another record with the `_id`.
        kept_in_archive: Kept records that only the archive of `sweep` has; they are moved back to the source.
        undecided: Records that are new, or that runs missed.
        undecided_in_archive: Records that are only in the archive of `sweep`, and never decided.
    """

    renewed: int = 0
    changed: int = 0
    handed_on: int = 0
    refused: int = 0
    failed: int = 0
    kept: int = 0
    others: int = 0
    occupied: int = 0
    kept_in_archive: int = 0
    undecided: int = 0
    undecided_in_archive: int = 0

    @property
    def to_process(self) -> int:
        """The number of records that a sync decides, replaces or removes."""
        again = self.changed + self.handed_on + self.refused + self.failed
        return self.renewed + again + self.kept + self.others + self.kept_in_archive + self.undecided

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
            "still_refused": self.occupied,
            "bring_back": self.kept_in_archive,
            "undecided": self.undecided,
            "undecided_in_archive": self.undecided_in_archive,
        }

    def as_text(self, target: str, has_copies: bool) -> str:
        """Return the numbers as text, before the user is asked.

        Args:
            target: The target's name; without copies, the source's.
            has_copies: Whether kept records were copied to the target.
        """
        if has_copies:
            title = f"sync would bring {target} up to date:"
            refused = "were refused by the target, which may accept them now"
            failed = "were copied without being compared, because the job failed on them"
            vanished = [
                ("vanished", self.kept, "will be removed from the target"),
                ("", self.others, "are not in the target"),
                ("still refused", self.occupied, "the target has another record with the same _id"),
            ]
            notes = ["records that others changed in the target stay unchanged"]
        else:
            title = f"sync would bring the decisions on {target} up to date:"
            refused = "could not be decided, and may be now"
            failed = "were kept without being compared, because the job failed on them"
            vanished = [("vanished", self.kept + self.others, "are no longer in the source")]
            notes = []
        rows = [
            ("renewed", self.renewed, "changed, but not in their text: verdicts stay"),
            ("decided again", self.changed, "changed in their text"),
            ("", self.handed_on, "were dropped for a record that changed or vanished"),
            ("", self.refused, refused),
            ("", self.failed, failed),
            *vanished,
            ("decided", self.undecided, "new, or missed by runs"),
        ]
        if self.kept_in_archive:
            rows.append(("brought back", self.kept_in_archive, BROUGHT_BACK_NOTE))
        if self.undecided_in_archive:
            rows.append(("archived", self.undecided_in_archive, ARCHIVED_NOTE))
        lines = [title, *(count_row(*row, width=16) for row in rows), *notes]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class UpdateSummary:
    """The update of outdated decisions by a `sync`.

    Attributes:
        run: The run's name; `undo` takes it, to undo the new decisions.
        target: The target's name; without copies, the source's.
        renewed: Number of records that changed, but not in their text.
        counts: The verdicts on records that were decided again; vanished records are refused.
        removed: Number of records removed from the target.
        brought_back: Number of kept records moved from the archive to the source.
        seconds: How long it took.
        stay: Raw ids of records whose copy in the target stays unchanged: others changed the copy, or the
            target refused the new version.
        has_copies: Whether kept records were copied to a target.
    """

    run: str
    target: str
    renewed: int
    counts: Counts
    removed: int
    brought_back: int
    seconds: float
    stay: IdList = field(default_factory=IdList)
    has_copies: bool = True

    @property
    def exit_code(self) -> int:
        """0, or 3 if an outdated copy stays, or the target refused something."""
        refused = {reason: n for reason, n in self.counts.refused.items() if reason != VANISHED.reason}
        return 3 if self.stay or refused else 0

    def as_json(self) -> dict[str, Any]:
        """Return the changes as one JSON object."""
        return {
            "run": self.run,
            "mode": UPDATE,
            "renewed": self.renewed,
            **self.counts.as_json(),
            "removed": self.removed,
            "brought_back": self.brought_back,
            "stay": ids_json(self.stay),
            "stay_count": len(self.stay),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the changes as text."""
        counts = self.counts
        numbers = {
            "unique": counts.unique,
            "duplicate": counts.duplicate,
            "unchecked": sum(counts.unchecked.values()),
            **counts.refused,
        }
        verdicts = ", ".join(f"{name} {count:,}" for name, count in numbers.items() if count)
        updated = f"{self.target} is" if self.has_copies else f"the decisions on {self.target} are"
        lines = [
            f"update {self.run}: {updated} up to date",
            count_row("renewed", self.renewed),
            count_row("decided again", counts.read, verdicts),
        ]
        if self.has_copies:
            lines.append(count_row("removed from target", self.removed))
        if self.brought_back:
            lines.append(count_row("brought back", self.brought_back, BROUGHT_BACK_NOTE))
        if self.stay:
            reason = "changed in the target by others, or refused in their new version:"
            lines.append(count_row("left unchanged", len(self.stay), reason))
            lines += id_lines(self.stay, "dedup.left has those that were decided again")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of `sync`.

    Attributes:
        source: The source's name.
        decided: Number of records that were decided before.
        run: The report of the run that decided new and missed records; None if there were none.
        changed: Records that differed from their decided version; always known after a sync.
        vanished: Decided records that are no longer in the source, and were not refused.
        seconds: How long it took.
        updated: The update of outdated decisions; None if nothing was outdated.
        refused_before: Records that the target refused in earlier runs that did not report them, by reason.
        still_refused: Number of records that were not tried again, because the target still has another
            record with the `_id`.
        undecided_in_archive: Number of records that are only in the archive of `sweep`, and never decided.
    """

    source: str
    decided: int
    run: RunSummary | None
    changed: AffectedRecords | None
    vanished: AffectedRecords
    seconds: float
    updated: UpdateSummary | None = None
    refused_before: Mapping[str, int] = field(default_factory=dict)
    still_refused: int = 0
    undecided_in_archive: int = 0

    @property
    def exit_code(self) -> int:
        """0, or 3 if the target refuses something, or a copy that others changed stays there."""
        codes = [result.exit_code for result in (self.run, self.updated) if result is not None]
        return max([*codes, 3 if self.refused_before or self.still_refused else 0])

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "source": self.source,
            "decided": self.decided,
            "undecided": self.run.counts.read if self.run else 0,
            "run": self.run.as_json() if self.run else None,
            "changed": None if self.changed is None else self.changed.as_json(),
            "vanished": self.vanished.as_json(),
            **({"updated": self.updated.as_json()} if self.updated else {}),
            **({"refused_before": dict(self.refused_before)} if self.refused_before else {}),
            **({"still_refused": self.still_refused} if self.still_refused else {}),
            "undecided_in_archive": self.undecided_in_archive,
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the result as text."""
        lines = [f"sync {self.source}: {self.decided:,} records were decided"]
        lines.append(count_row("new or missed", self.run.counts.read if self.run else 0, width=14))
        if self.changed is not None:
            lines += self.changed.lines("changed", width=14)
        lines += self.vanished.lines("vanished", width=14)
        if self.refused_before:
            lines.append(f"  refused in earlier interrupted runs: {join_counts(self.refused_before)}")
        if self.still_refused:
            note = "the target has another record with the same _id"
            lines.append(count_row("still refused", self.still_refused, note, width=14))
        if self.undecided_in_archive:
            lines.append(count_row("archived", self.undecided_in_archive, ARCHIVED_NOTE, width=14))
        lines.append(f"  {self.seconds:,.1f} s")
        return "\n".join([*lines, *(result.as_text() for result in (self.updated, self.run) if result)])
