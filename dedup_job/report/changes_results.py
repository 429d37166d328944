"""The result of `changes`, as text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

from dedup_job.mongo.ids import extended
from dedup_job.mongo.spilled_id_list import IdList
from dedup_job.records import Action
from dedup_job.report.terminal import count_row, format_id, format_row, more_row

# Ids shown as text.
SAMPLES = 5
# Records in JSON.
MOST_LISTED = 1_000
KEPT, DROPPED, REFUSED = "kept", "dropped", "refused"
OUTCOMES = {
    Action.UNIQUE: KEPT,
    Action.UNCHECKED: KEPT,
    Action.DUPLICATE: DROPPED,
    Action.REFUSED: REFUSED,
}
CHANGED_IDS = {
    KEPT: "the target has their old version",
    DROPPED: "their new text may be missing from the target",
    REFUSED: "not in the target",
}
VANISHED_IDS = {
    KEPT: "the target still has them",
    DROPPED: "their keepers still represent them",
    REFUSED: "not in the target",
}


NO_MEANINGS: Mapping[str, str] = MappingProxyType({})
MISSED_NOTE = "older than a run looks back; sync decides them, or the next full scan"


class AffectedRecords:
    """Decided records that changed, or that vanished, and the earlier decision about each.

    A record takes a byte of memory here; ids are on disk where they are many.
    """

    def __init__(self) -> None:
        self._ids = IdList()
        self._actions = bytearray()

    def add(self, records: Iterable[tuple[bytes, Action]]) -> None:
        """Add records, given as raw ids with their decisions."""
        records = list(records)
        self._ids.extend(raw_id for raw_id, _ in records)
        self._actions += bytes(action for _, action in records)

    @property
    def counts(self) -> Counter[str]:
        """The number of records by decision."""
        counts = Counter[str]()
        for action, fate in OUTCOMES.items():
            counts[fate] += self._actions.count(action)
        # The unary plus removes zeros.
        return +counts

    def rows(self, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield all records, or the first `most`, as JSON values."""
        pairs = zip(self._ids, self._actions, strict=True)
        for raw_id, action in islice(pairs, most):
            yield {"id": extended(raw_id), "was": OUTCOMES[Action(action)]}

    def as_json(self) -> dict[str, Any]:
        """Return counts and the first records as JSON values."""
        counts = self.counts
        records = list(self.rows(MOST_LISTED))
        return {**{fate: counts[fate] for fate in (KEPT, DROPPED, REFUSED)}, "records": records}

    def lines(self, name: str, meanings: Mapping[str, str] = NO_MEANINGS, width: int = 10) -> list[str]:
        """Return counts and the first records as lines of text.

        Args:
            name: What happened to the records.
            meanings: What that means for the target, by decision; empty if the target is up to date.
            width: Columns of the name.
        """
        hint = "--ids FILE lists all" if meanings else ""
        counts = self.counts
        return [
            count_row(name, counts.total(), width=width),
            *(f"    {fate} {counts[fate]:,}: {note}" for fate, note in meanings.items() if counts[fate]),
            *(f"    {format_row(row)}" for row in self.rows(SAMPLES)),
            *more_row(counts.total(), SAMPLES, "    ", hint),
        ]


@dataclass(frozen=True, slots=True)
class ChangesResult:
    """The result of `changes`.

    Attributes:
        source: The source's name.
        decided: Number of records that were decided before.
        new: Number of undecided records that the next run reads.
        missed: Number of undecided records with older ids, which a run reads only in a full scan.
        changed: Records that differ from their decided version; None if contents were not compared.
        vanished: Decided records that are no longer in the source.
        seconds: How long it took.
    """

    source: str
    decided: int
    new: int
    missed: int
    changed: AffectedRecords | None
    vanished: AffectedRecords
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "source": self.source,
            "decided": self.decided,
            "new": self.new,
            "missed": self.missed,
            "changed": None if self.changed is None else self.changed.as_json(),
            "vanished": self.vanished.as_json(),
            "seconds": round(self.seconds, 3),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all records that changed or vanished, as JSON values."""
        for name, tally in (("changed", self.changed), ("vanished", self.vanished)):
            for row in () if tally is None else tally.rows():
                yield {**row, "now": name}

    def as_text(self) -> str:
        """Return the result as text."""
        lines = [
            f"changes in {self.source}: {self.decided:,} records were decided",
            count_row("new", self.new, "the next run decides them" if self.new else "", width=10),
            count_row("missed", self.missed, MISSED_NOTE if self.missed else "", width=10),
        ]
        if self.changed is not None:
            lines += self.changed.lines("changed", CHANGED_IDS)
        lines += self.vanished.lines("vanished", VANISHED_IDS)
        outdated = (self.vanished, *([self.changed] if self.changed else ()))
        if self.missed or any(records.counts for records in outdated):
            lines.append("  to bring the target up to date: dedup-job sync")
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])


# Ids of each reason that are shown as text, and in JSON.
IDS_SHOWN, IDS_LISTED = 5, 100


class IdsByReason(dict[str, IdList]):
    """Ids of records that a command left as they were, by reason."""

    def add(self, reasons: Mapping[bytes, str]) -> None:
        """Add records: the reason of each, by raw id."""
        for reason in dict.fromkeys(reasons.values()):
            ids = self.setdefault(reason, IdList())
            ids.extend(raw_id for raw_id, why in reasons.items() if why == reason)

    def as_json(self) -> dict[str, Any]:
        """Return the number of records and the first ids, by reason."""
        return {
            reason: {"count": len(ids), "ids": list(map(extended, islice(ids, IDS_LISTED)))}
            for reason, ids in self.items()
        }

    def lines(self, label: str, means: Mapping[str, str], otherwise: str) -> Iterator[str]:
        """Yield a line for each reason, and lines with the first ids.

        Args:
            label: Stands before each reason.
            means: What reasons mean.
            otherwise: What all other reasons mean.
        """
        for reason, ids in self.items():
            yield count_row(f"{label}: {reason}", len(ids), means.get(reason, otherwise))
            yield from (f"    {format_id(extended(raw_id))}" for raw_id in islice(ids, IDS_SHOWN))
            yield from more_row(len(ids), IDS_SHOWN, "    ", "--json lists up to 100")
