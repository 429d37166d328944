"""Counts of records with samples of their ids, as text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

from dedup_job.mongo.ids import extended
from dedup_job.records import Action
from dedup_job.report.terminal_text import count_row, format_id, format_row, more_row
from dedup_job.temporary_ids_and_tables import IdList

# Ids that are shown as text, and in JSON, which is also stored as a row of the ledger, with at most 16 MiB.
SHOWN, LISTED = 5, 100
# Affected records in JSON.
MOST_LISTED = 1_000
KEPT, DROPPED, REFUSED = "kept", "dropped", "refused"
OUTCOMES = {
    Action.UNIQUE: KEPT,
    Action.UNCHECKED: KEPT,
    Action.DUPLICATE: DROPPED,
    Action.REFUSED: REFUSED,
}
NO_MEANINGS: Mapping[str, str] = MappingProxyType({})


def ids_json(ids: Iterable[bytes]) -> list[Any]:
    """Return the first ids as JSON values."""
    return list(map(extended, islice(ids, LISTED)))


def id_lines(ids: IdList, hint: str = f"--json lists up to {LISTED}") -> Iterator[str]:
    """Yield lines with the first ids, and the number of others with a hint where they are."""
    yield from (f"    {format_id(extended(raw_id))}" for raw_id in islice(ids, SHOWN))
    yield from more_row(len(ids), SHOWN, "    ", hint)


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
            *(f"    {format_row(row)}" for row in self.rows(SHOWN)),
            *more_row(counts.total(), SHOWN, "    ", hint),
        ]


class IdsByReason(dict[str, IdList]):
    """Ids of records that a command left unchanged, by reason."""

    def add(self, reasons: Mapping[bytes, str]) -> None:
        """Add records: the reason of each, by raw id."""
        for reason in dict.fromkeys(reasons.values()):
            ids = self.setdefault(reason, IdList())
            ids.extend(raw_id for raw_id, why in reasons.items() if why == reason)

    def as_json(self) -> dict[str, Any]:
        """Return the number of records and the first ids, by reason."""
        return {reason: {"count": len(ids), "ids": ids_json(ids)} for reason, ids in self.items()}

    def lines(self, label: str, means: Mapping[str, str], otherwise: str) -> Iterator[str]:
        """Yield a line for each reason, and lines with the first ids.

        Args:
            label: Stands before each reason.
            means: What reasons mean.
            otherwise: What all other reasons mean.
        """
        for reason, ids in self.items():
            yield count_row(f"{label}: {reason}", len(ids), means.get(reason, otherwise))
            yield from id_lines(ids)
