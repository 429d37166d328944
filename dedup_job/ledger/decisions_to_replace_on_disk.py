"""A temporary store, on disk, of the earlier decisions on records that are decided again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dedup_job.records import Action, Verdict
from dedup_job.temporary_ids_and_tables import TemporaryTables

# Ids per page.
PAGE = 5_000

TABLE = """
CREATE TABLE decisions (
    place INTEGER PRIMARY KEY,
    id BLOB UNIQUE,
    number INTEGER,
    action INTEGER,
    reason TEXT,
    copy BLOB,
    is_moved INTEGER,
    has_left INTEGER DEFAULT 0,
    is_due INTEGER DEFAULT 0
)
"""


@dataclass(frozen=True, slots=True)
class EarlierDecision:
    """The earlier decision on a record.

    Attributes:
        number: Number of the plan that decided it.
        verdict: Its verdict.
        copy: Hash of the inserted record; None if the target was given none.
        has_left: Whether the update has removed it from the target since, because of a unique index.
    """

    number: int
    verdict: Verdict
    copy: bytes | None
    has_left: bool = False


class EarlierDecisions:
    """Earlier decisions by raw id, in the order of insertion; thread-safe."""

    def __init__(self) -> None:
        self._tables = TemporaryTables(TABLE)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, decisions: Mapping[bytes, EarlierDecision], moved: Iterable[bytes] = ()) -> None:
        """Add decisions on further records.

        Args:
            decisions: The decisions, by raw id.
            moved: Ids of keepers among them that changed or vanished.
        """
        moved = set(moved)
        rows = [
            (
                raw_id,
                decision.number,
                int(decision.verdict.action),
                decision.verdict.reason,
                decision.copy,
                raw_id in moved,
            )
            for raw_id, decision in decisions.items()
        ]
        statement = "INSERT INTO decisions (id, number, action, reason, copy, is_moved) VALUES (?,?,?,?,?,?)"
        self._tables.fill(statement, rows)
        self._count += len(rows)

    def find(self, ids: Iterable[bytes]) -> dict[bytes, EarlierDecision]:
        """Return the decisions on these records, by id; records without a decision are left out."""
        rows = self._select(ids, "id, number, action, reason, copy, has_left")
        return {
            raw_id: EarlierDecision(number, Verdict(Action(action), reason), copy, bool(has_left))
            for raw_id, number, action, reason, copy, has_left in rows
        }

    def among(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return the given ids that have a decision."""
        return {raw_id for (raw_id,) in self._select(ids, "id")}

    def moved(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return the given ids that were added as keepers that changed or vanished."""
        return {raw_id for raw_id, is_moved in self._select(ids, "id, is_moved") if is_moved}

    def absent(self) -> Iterator[list[bytes]]:
        """Yield the ids of records that were not inserted into the target, in order."""
        return self._pages("copy IS NULL")

    def present(self) -> Iterator[list[bytes]]:
        """Yield the ids of records that were inserted into the target, in order."""
        return self._pages("copy IS NOT NULL")

    def with_verdict(self, verdict: Verdict) -> Iterator[list[bytes]]:
        """Yield the ids of records with this verdict, in order."""
        return self._pages("action = ? AND reason = ?", int(verdict.action), verdict.reason)

    def due_again(self) -> Iterator[list[bytes]]:
        """Yield the ids of records that were put off, in order."""
        return self._pages("is_due")

    def put_off(self, raw_id: bytes, number: int, verdict: Verdict) -> None:
        """Store a record's new decision, and that the record must be decided again."""
        self._tables.fetch(
            "UPDATE decisions SET number = ?, action = ?, reason = ?, copy = NULL, is_due = 1, "
            "has_left = has_left OR copy IS NOT NULL WHERE id = ?",
            number,
            int(verdict.action),
            verdict.reason,
            raw_id,
        )

    def _select(self, ids: Iterable[bytes], columns: str) -> Iterator[Sequence[Any]]:
        wanted = list(ids) if self._count else []
        return self._tables.fetch_among(f"SELECT {columns} FROM decisions WHERE id IN", wanted)

    def _pages(self, condition: str, *values: object) -> Iterator[list[bytes]]:
        """Yield the ids of the rows that meet a condition.

        Each page has its own statement, so rows may be updated between pages.
        """
        place = 0
        select = (
            f"SELECT place, id FROM decisions WHERE place > ? AND {condition} ORDER BY place LIMIT {PAGE}"
        )
        while page := self._tables.fetch(select, place, *values):
            place = page[-1][0]
            yield [raw_id for _, raw_id in page]
