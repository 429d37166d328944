"""Records that must be decided again because a better record came, on disk, the best first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dedup_job.ledger.rows_on_records import Dependant
from dedup_job.preference.id_order import tie_key
from dedup_job.records import Action, KeeperMatch, Verdict
from dedup_job.temporary_ids_and_tables import TemporaryTables

TABLES = (
    """CREATE TABLE queue (
        id BLOB PRIMARY KEY, rank BLOB, tie BLOB, number INTEGER, reason TEXT, text INTEGER
    )""",
    "CREATE INDEX best_first ON queue (rank DESC, tie)",
    """CREATE TABLE leaving (
        id BLOB PRIMARY KEY, rank BLOB, number INTEGER, text INTEGER,
        keeper BLOB, reason TEXT, distance INTEGER, similarity REAL
    )""",
    "CREATE INDEX leaving_for ON leaving (keeper)",
    "CREATE INDEX leaving_from ON leaving (number)",
)


class KeptRecord(NamedTuple):
    """A kept record that must be decided again.

    Attributes:
        id: Its raw id.
        text: Number of its text.
        number: Number of the plan that kept it.
        rank: Its packed rank.
    """

    id: bytes
    text: int
    number: int
    rank: bytes


class DroppedRecord(NamedTuple):
    """A dropped record that must be decided again.

    Attributes:
        id: Its raw id.
        number: Number of the plan that dropped it.
        verdict: Its old verdict, without the keeper.
    """

    id: bytes
    number: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class LeavingRecord:
    """A kept record that leaves the target: a better record is kept that it matches.

    Attributes:
        id: Its raw id.
        number: Number of the plan that kept it.
        verdict: Its new verdict.
    """

    id: bytes
    number: int
    verdict: Verdict


class RedecisionQueue:
    """A priority queue of records to decide again, and a list of keepers that leave the target."""

    def __init__(self) -> None:
        self._tables = TemporaryTables(*TABLES)

    def add_kept(self, records: Sequence[KeptRecord]) -> None:
        """Add kept records that match a better record."""
        rows = [(one.id, one.rank, tie_key(one.id), one.number, None, one.text) for one in records]
        self._tables.fill("INSERT OR REPLACE INTO queue VALUES (?,?,?,?,?,?)", rows)

    def add_dropped(self, records: Sequence[Dependant]) -> None:
        """Add records that were dropped for a keeper that is kept no longer."""
        rows = [(one.id, one.rank, tie_key(one.id), one.number, one.reason, None) for one in records]
        self._tables.fill("INSERT OR REPLACE INTO queue VALUES (?,?,?,?,?,?)", rows)

    def take(self, count: int) -> tuple[list[KeptRecord], list[DroppedRecord]]:
        """Remove the best records from the queue, and return those that are kept and those that are not."""
        page = self._tables.fetch(
            "SELECT id, rank, number, reason, text FROM queue ORDER BY rank DESC, tie LIMIT ?", count
        )
        self._tables.fill("DELETE FROM queue WHERE id = ?", [(row[0],) for row in page])
        kept = [
            KeptRecord(raw_id, text, number, rank)
            for raw_id, rank, number, _, text in page
            if text is not None
        ]
        dropped = [
            DroppedRecord(raw_id, number, Verdict(Action.DUPLICATE, reason))
            for raw_id, _, number, reason, text in page
            if text is None
        ]
        return kept, dropped

    def leave(self, record: KeptRecord, verdict: Verdict) -> None:
        """Note that a kept record leaves the target, and its new verdict."""
        match = verdict.match
        assert match is not None
        about = (match.keeper, verdict.reason, match.distance, match.similarity)
        row = (record.id, record.rank, record.number, record.text, *about)
        self._tables.fill("INSERT OR REPLACE INTO leaving VALUES (?,?,?,?,?,?,?,?)", [row])

    def stay_undecided(self, keepers: Sequence[bytes]) -> None:
        """Queue leaving records again whose keeper is one of these, which are kept no longer."""
        select = "SELECT id, text, number, rank FROM leaving WHERE keeper IN"
        rows = list(self._tables.fetch_among(select, keepers))
        self.add_kept([KeptRecord(*row) for row in rows])
        self._tables.fill("DELETE FROM leaving WHERE id = ?", [(row[0],) for row in rows])

    def leaving(self, count: int) -> Iterator[list[LeavingRecord]]:
        """Yield the records that leave the target, by plan, in pages."""
        last = (-1, b"")
        select = (
            "SELECT number, id, keeper, reason, distance, similarity FROM leaving "
            "WHERE (number, id) > (?, ?) ORDER BY number, id LIMIT ?"
        )
        while page := self._tables.fetch(select, *last, count):
            last = page[-1][:2]
            yield [
                LeavingRecord(
                    raw_id,
                    number,
                    Verdict(Action.DUPLICATE, reason, KeeperMatch(keeper, distance, similarity)),
                )
                for number, raw_id, keeper, reason, distance, similarity in page
            ]
