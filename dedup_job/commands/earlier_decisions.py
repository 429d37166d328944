"""Earlier decisions on the records that an apply decides again: on disk once they are many.

They are rows of a temporary SQLite database.  SQLite holds some megabytes of them in memory and writes the
rest to a file without a name in TMPDIR, so memory does not grow with the number of records.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from dedup_job.document import Action, Verdict
from dedup_job.errors import StorageFull

CACHE_KB = 16 << 10
PAGE = 5_000  # ids
AT_ONCE = 900  # ids in a statement: older versions of SQLite take 999

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
class Earlier:
    """What was decided of a record.

    number    of the plan that decided it
    copy      hash of what the target was given; None for nothing
    has_left  whether the record has left the target since, as that did not take it beside another one
    """

    number: int
    verdict: Verdict
    copy: bytes | None
    has_left: bool = False


class EarlierDecisions:
    """Earlier decisions by raw id, in the order in which they were added; threads may share it."""

    def __init__(self) -> None:
        # An empty name is a database in a temporary file; nothing of it outlives this process.
        self._rows = sqlite3.connect("", check_same_thread=False)
        weakref.finalize(self, self._rows.close)
        self._lock = Lock()
        self._count = 0
        for statement in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{CACHE_KB}"):
            self._all(f"PRAGMA {statement}")
        self._all(TABLE)

    def __len__(self) -> int:
        return self._count

    def add(self, decisions: Mapping[bytes, Earlier], moved: Iterable[bytes] = ()) -> None:
        """Add decisions on records that are not there yet; `moved` are keepers that are none any more."""
        moved = set(moved)
        rows = [
            (raw_id, one.number, int(one.verdict.action), one.verdict.reason, one.copy, raw_id in moved)
            for raw_id, one in decisions.items()
        ]
        statement = "INSERT INTO decisions (id, number, action, reason, copy, is_moved) VALUES (?,?,?,?,?,?)"
        with self._lock, _told_of_storage(), self._rows:
            self._rows.executemany(statement, rows)
        self._count += len(rows)

    def find(self, ids: Iterable[bytes]) -> dict[bytes, Earlier]:
        """Return the decisions on those of these records that have one, by id."""
        found = self._of(ids, "id, number, action, reason, copy, has_left")
        return {
            raw_id: Earlier(number, Verdict(Action(action), reason), copy, bool(has_left))
            for raw_id, number, action, reason, copy, has_left in found
        }

    def among(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return those of these ids that have a decision."""
        return {raw_id for (raw_id,) in self._of(ids, "id")}

    def moved(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return those of these ids that were added as keepers that are none any more."""
        return {raw_id for raw_id, is_moved in self._of(ids, "id, is_moved") if is_moved}

    def absent(self) -> Iterator[list[bytes]]:
        """Yield the records that the target was not given, in order."""
        return self._pages("copy IS NULL")

    def present(self) -> Iterator[list[bytes]]:
        """Yield the records that the target was given, in order."""
        return self._pages("copy IS NOT NULL")

    def with_verdict(self, verdict: Verdict) -> Iterator[list[bytes]]:
        """Yield the records of which this was decided."""
        return self._pages("action = ? AND reason = ?", int(verdict.action), verdict.reason)

    def due_again(self) -> Iterator[list[bytes]]:
        """Yield the records that were put off, in order."""
        return self._pages("is_due")

    def put_off(self, raw_id: bytes, number: int, verdict: Verdict) -> None:
        """Note that a record was decided, by this plan, and is to be decided once more."""
        self._all(
            "UPDATE decisions SET number = ?, action = ?, reason = ?, copy = NULL, is_due = 1, "
            "has_left = has_left OR copy IS NOT NULL WHERE id = ?",
            number,
            int(verdict.action),
            verdict.reason,
            raw_id,
        )

    def _of(self, ids: Iterable[bytes], columns: str) -> Iterator[Sequence[Any]]:
        wanted = list(ids) if self._count else []
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            marks = ",".join("?" * len(some))
            yield from self._all(f"SELECT {columns} FROM decisions WHERE id IN ({marks})", *some)

    def _pages(self, condition: str, *values: object) -> Iterator[list[bytes]]:
        """Yield the ids of the rows that meet a condition; each page by a statement of its own."""
        place = 0
        select = (
            f"SELECT place, id FROM decisions WHERE place > ? AND {condition} ORDER BY place LIMIT {PAGE}"
        )
        while page := self._all(select, place, *values):
            place = page[-1][0]
            yield [raw_id for _, raw_id in page]

    def _all(self, statement: str, *values: object) -> list[Any]:
        with self._lock, _told_of_storage(), self._rows:
            return self._rows.execute(statement, values).fetchall()


@contextmanager
def _told_of_storage() -> Iterator[None]:
    """Raise StorageFull for what SQLite cannot write or read."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageFull(f"a temporary file (TMPDIR) cannot be used: {error}") from error
