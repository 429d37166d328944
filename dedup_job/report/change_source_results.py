"""Results of the commands that change the source: `mark`, `sweep` and `promote`, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dedup_job.ledger.move_between_source_and_archive import UNMOVABLE
from dedup_job.mongo.mark_field import CHANGED, FIELD_IN_USE, UNMARKABLE
from dedup_job.pasteable_command import command_line
from dedup_job.report.counts_with_ids import AffectedRecords, IdsByReason, id_lines, ids_json
from dedup_job.report.run_summary import expiry_command
from dedup_job.report.terminal_text import count_row, wrap_text
from dedup_job.temporary_ids_and_tables import IdList

# Reasons for a dropped record to have no mark, or to stay in the source.  All other reasons are refusals.
KEEPER = "keeper"
UNMARKED_MEANS = {
    CHANGED: "since they were judged, so they have no mark; `sync` decides them again",
    FIELD_IN_USE: "have other content in the field, which stays; name another one in [mark] field",
    UNMARKABLE: "too large or too deep for a command that compares them",
}
STAY_MEANS = {
    CHANGED: "since they were judged; `sync` decides them again",
    KEEPER: "the kept record was deleted or has changed; `sync` decides them again, or, if it was a "
    "reference record, `restore` keeps them",
    UNMOVABLE: "too long or too deep for a command, or with an empty timestamp, which the server would set",
    "conflict": "the archive has another version of the record",
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
        """0, or 3 if the source refused marks, or their field has other content."""
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
        lines += self.unmarked.lines("no mark", UNMARKED_MEANS, "a rule of the source refuses the mark")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])


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
        lines += self.stay.lines("stay", STAY_MEANS, "a rule of the archive")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])


@dataclass(frozen=True, slots=True)
class PromotePreview:
    """What a promotion, or its return, would do.

    Attributes:
        moves: The renames: old and new full names.
        has_begun: Whether it was begun before, and only has to be finished.
        dropped: Number of dropped records, which only the former source has.
        refused: Number of records that the target refused, which only the former source has.
        options: Options of the source that the target lacks, such as a validator.
    """

    moves: Sequence[tuple[str, str]]
    has_begun: bool = False
    dropped: int = 0
    refused: int = 0
    options: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the preview as one JSON object."""
        return {
            "dry_run": True,
            "has_begun": self.has_begun,
            "renames": [{"from": old, "to": new} for old, new in self.moves],
            "dropped": self.dropped,
            "refused": self.refused,
            "options": list(self.options),
        }

    def as_text(self) -> str:
        """Return the preview as text."""
        lines = ["promote would finish what was begun:" if self.has_begun else "promote would rename:"]
        lines += [f"  {old} to {new}" for old, new in self.moves]
        if not self.has_begun:
            former = self.moves[0][1]
            lines.append(count_row("dropped", self.dropped, f"records will be in {former} alone", width=10))
            if self.refused:
                note = f"records will be in {former} alone; see: {command_line('list --verdict refused')}"
                lines.append(count_row("refused", self.refused, note, width=10))
        if "capped" in self.options:
            lines.append("  the source is a capped collection, and the target is none, so it grows")
        if names := ", ".join(name for name in self.options if name not in ("capped", "max", "size")):
            lines += wrap_text(f"the target lacks these options of the source: {names}; see collMod", "  ")
        return "\n".join(lines)


@dataclass(slots=True)
class PromoteResult:
    """The result of a promotion, or of its return.

    Attributes:
        run: Name of the run; empty if there was nothing to do.
        source: Full name of the source, which the promoted target has now.
        former: Full name of the former source; after a return, of the target.
        is_back: Whether a promotion was undone.
        already: Whether it was done before.
        needs_setting: Whether `copy` in the settings has to be changed.
        expiries: Indexes of the former source that delete records, with their seconds; the target's do not.
        arrived: Number of records that arrived after the check, and were copied to the collection in place.
        refused: Ids of such records that the collection refused.
        changed: Records that were changed after the check, in the collection that is no longer in place.
        vanished: Records that were deleted from it after the check.
        others: Names of collections that programs made between the renames; their records were copied.
        seconds: How long it took.
    """

    run: str
    source: str
    former: str
    is_back: bool = False
    already: bool = False
    needs_setting: bool = False
    expiries: Mapping[str, float] = field(default_factory=dict)
    arrived: int = 0
    refused: IdList = field(default_factory=IdList)
    changed: AffectedRecords = field(default_factory=AffectedRecords)
    vanished: AffectedRecords = field(default_factory=AffectedRecords)
    others: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """3 if somebody has to look at a record, otherwise 0."""
        differs = self.changed.counts.total() + self.vanished.counts.total()
        return 3 if differs or len(self.refused) else 0

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "run": self.run,
            "mode": "promote",
            "source": self.source,
            "former": self.former,
            "back": self.is_back,
            "already": self.already,
            "arrived": self.arrived,
            "not_copied": ids_json(self.refused),
            "not_copied_count": len(self.refused),
            "changed": self.changed.as_json(),
            "vanished": self.vanished.as_json(),
            "others": list(self.others),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the result as text, with what to do next."""
        if self.already and self.is_back:
            return f"{self.source}: no target has replaced it, so there is nothing to undo"
        if self.is_back:
            lines = [f"{self.source} is the source again, and {self.former} the target"]
        else:
            was = " already" if self.already else ""
            lines = [f"{self.source} is the promoted target{was}; the former source is {self.former}"]
        lines += self._differences()
        if self.needs_setting and self.is_back:
            lines.append("  in the settings file, take `copy = false` out of [target]")
        elif self.needs_setting:
            lines += [
                "  add this line to [target] in the settings file, and leave its other lines as they are:",
                "",
                "    copy = false",
                "",
                "  then `mark` marks what `run` drops, and `sweep --archive` moves it out",
                f"  to decide what is new: {command_line('run')}",
                f"  to go back, as long as nothing is decided: {command_line('promote --back')}",
                f"  keep {self.former}: nothing else has the dropped records",
            ]
        for name, seconds in self.expiries.items():
            lines.append(f"  to turn the expiry of the index {name} on, in mongosh:")
            lines.append(f"    {expiry_command(self.source.partition('.')[2], name, seconds)}")
        return "\n".join([*lines, *([f"  {self.seconds:,.1f} s"] if self.run else [])])

    def _differences(self) -> Iterator[str]:
        """Yield lines on what programs did between the check and the renames."""
        if self.arrived:
            note = (
                "since the promotion, and copied; they stay in the target, too, so a run keeps all of them"
                if self.is_back
                else "after the check, and copied; a run decides them"
            )
            yield count_row("arrived", self.arrived, note, width=10)
        for name in self.others:
            yield f"  {name} was made by a program while no collection had the name; it can be dropped"
        if self.refused:
            note = f"arrived in {self.former}, and {self.source} refuses them"
            yield count_row("refused", len(self.refused), note, width=10)
            yield from id_lines(self.refused)
        for name, records in (("changed", self.changed), ("vanished", self.vanished)):
            if records.counts:
                yield from records.lines(f"{name} in {self.former} after the check", width=40)
