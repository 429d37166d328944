"""The results of `promote`, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dedup_job.mongo.ids import extended
from dedup_job.mongo.spilled_id_list import IdList
from dedup_job.report.changes_results import AffectedRecords
from dedup_job.report.terminal import count_row, format_id, more_row, to_json_line, wrap_text

# Ids shown as text, and in JSON.
SHOWN, LISTED = 5, 100


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
                note = f"records will be in {former} alone; see: dedup-job list --verdict refused"
                lines.append(count_row("refused", self.refused, note, width=10))
        if self.options:
            names = ", ".join(self.options)
            lines += wrap_text(f"the target lacks these options of the source: {names}; see collMod", "  ")
        return "\n".join(lines)


@dataclass(slots=True)
class PromoteResult:
    """The result of a promotion, or of its return.

    Attributes:
        run: Name of the run; empty if there was nothing to do.
        source: Full name of the source, which the promoted target has now.
        former: Full name of the former source; after a return, of the target.
        is_back: Whether a promotion was taken back.
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
            "not_copied": list(map(extended, islice(self.refused, LISTED))),
            "not_copied_count": len(self.refused),
            "changed": self.changed.as_json(),
            "vanished": self.vanished.as_json(),
            "others": list(self.others),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the result as text, with what to do next."""
        if self.already and self.is_back:
            return f"{self.source}: no target is in the place of its source, so there is nothing to take back"
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
                "  then `dedup-job run` decides what is new; `dedup-job mark` marks what it drops, and",
                "  `dedup-job sweep --archive` moves it out",
                "  to go back, as long as nothing is decided: dedup-job promote --back",
                f"  keep {self.former}: nothing else has the dropped records",
            ]
        for name, seconds in self.expiries.items():
            index = to_json_line({"name": name, "expireAfterSeconds": seconds})
            collection = to_json_line(self.source.partition(".")[2])
            lines.append(f"  to turn the expiry of the index {name} on, in mongosh:")
            lines.append(f"    db.runCommand({{collMod: {collection}, index: {index}}})")
        return "\n".join([*lines, *([f"  {self.seconds:,.1f} s"] if self.run else [])])

    def _differences(self) -> Iterator[str]:
        """Yield lines on what programs did between the check and the renames."""
        if self.arrived:
            yield count_row(
                "arrived", self.arrived, "after the check, and copied; a run decides them", width=10
            )
        for name in self.others:
            yield f"  {name} was made by a program while no collection had the name; it can be dropped"
        if self.refused:
            note = f"arrived in {self.former}, and {self.source} refuses them"
            yield count_row("refused", len(self.refused), note, width=10)
            yield from (f"    {format_id(extended(raw_id))}" for raw_id in islice(self.refused, SHOWN))
            yield from more_row(len(self.refused), SHOWN, "    ", "--json lists up to 100")
        for name, records in (("changed", self.changed), ("vanished", self.vanished)):
            if records.counts:
                yield from records.lines(f"{name} in {self.former} after the check", width=40)
