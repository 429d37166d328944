"""The book of an audit: what ledger, target and source say, side by side in an SQLite file.

On disk, because fifty million records do not fit into memory; in SQLite, because its transactions make the
audit resumable, and each question to the book is one query.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dedup_job.commands.verify.book_keys import as_id, as_key
from dedup_job.document import Action, Counts
from dedup_job.errors import StorageFull, UsageError
from dedup_job.ledger.statements import LedgerDecision

APPLICATION = 0x64656475  # "dedu": the mark of such a file
SETTINGS = (f"cache_size = -{64 << 10}", "locking_mode = EXCLUSIVE", "synchronous = NORMAL")
INSERTED = (Action.UNIQUE, Action.UNJUDGED)
NAMELESS = ("journal_mode = OFF",)  # nobody goes on with what is left of it
TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE position (stage TEXT PRIMARY KEY, after BLOB, is_finished INT) WITHOUT ROWID;
CREATE TABLE fault (kind TEXT, plan INT, PRIMARY KEY (kind, plan)) WITHOUT ROWID;
CREATE TABLE tally (action INT, reason TEXT, records INT, PRIMARY KEY (action, reason)) WITHOUT ROWID;
CREATE TABLE decided (
    id BLOB PRIMARY KEY, place INT, action INT, reason TEXT, hash BLOB, digest BLOB, keeper BLOB,
    times INT DEFAULT 1
) WITHOUT ROWID;
CREATE TABLE noted (name TEXT, key BLOB, id BLOB, note BLOB, PRIMARY KEY (name, key)) WITHOUT ROWID;
CREATE TABLE target (id BLOB PRIMARY KEY, hash BLOB) WITHOUT ROWID;
CREATE TABLE dropped (id BLOB PRIMARY KEY, note BLOB) WITHOUT ROWID;
CREATE TABLE exceptions (id BLOB PRIMARY KEY, note BLOB) WITHOUT ROWID;
CREATE TABLE stayed (id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE restored (id BLOB PRIMARY KEY, hash BLOB) WITHOUT ROWID;
CREATE TABLE undecided (id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE waiting (id BLOB PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stage of the audit is: the id or number that was entered last."""

    after: Any = None
    is_finished: bool = False


class Book:
    """Filled stage by stage, then asked; takes some 64 MiB of memory, whatever the number of records."""

    def __init__(self, path: Path | None) -> None:
        """Open the file, or a nameless one that is gone when the book is closed.

        Raises UsageError when the file is something else: nothing of it is touched.
        """
        self._file = _opened(path)
        try:
            self._open(path)
        except BaseException:
            self._file.close()
            raise

    def _open(self, path: Path | None) -> None:
        try:
            mark = self._file.execute("PRAGMA application_id").fetchone()[0]
            is_new = not self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.DatabaseError as error:
            is_busy = isinstance(error, sqlite3.OperationalError)
            why = "is in use" if is_busy else "is not the state of an audit; name another file"
            raise UsageError(f"{path} {why}") from None
        if mark != APPLICATION and not is_new:
            raise UsageError(f"{path} is not the state of an audit; name another file")
        with _named_errors():
            for setting in (*SETTINGS, *([] if path else NAMELESS)):
                self._file.execute(f"PRAGMA {setting}")
            if is_new:
                self._file.executescript(f"PRAGMA application_id = {APPLICATION}; BEGIN; {TABLES} COMMIT;")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def page(self) -> Iterator[None]:
        """Enter a page wholly or not at all."""
        with _named_errors():
            self._file.execute("BEGIN")
            try:
                yield
            except BaseException:
                with suppress(sqlite3.Error):
                    self._file.execute("ROLLBACK")
                raise
            self._file.execute("COMMIT")

    def begin(self, about: str) -> bool:
        """Say what the book is about; returns whether it told of that before, and empties it otherwise."""
        known = [value for (value,) in self._asked("SELECT value FROM about WHERE name = 'about'")]
        if known == [about]:
            return True
        with self.page():
            tables = [name for (name,) in self._asked("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for name in tables:
                self._file.execute(f"DELETE FROM {name}")
            self._file.execute("INSERT INTO about VALUES ('about', ?)", (about,))
        return False

    def position(self, stage: str) -> Position:
        """Return how far a stage is."""
        for after, is_finished in self._asked(
            "SELECT after, is_finished FROM position WHERE stage = ?", stage
        ):
            return Position(after, bool(is_finished))
        return Position()

    def move(self, stage: str, to: Position) -> None:
        """Note how far a stage is."""
        with _named_errors():
            self._file.execute("REPLACE INTO position VALUES (?, ?, ?)", (stage, to.after, to.is_finished))

    def enter(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows that begin with an id; one that is there already is left as it is."""
        keyed = [(as_key(raw_id), *rest) for raw_id, *rest in rows]
        if keyed:
            marks = ", ".join("?" * len(keyed[0]))
            with _named_errors():
                self._file.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", keyed)

    def enter_fault(self, kind: str, plan: int) -> None:
        """Note that something is wrong with a plan."""
        with _named_errors():
            self._file.execute("INSERT OR IGNORE INTO fault VALUES (?, ?)", (kind, plan))

    def enter_decisions(self, decisions: Iterable[LedgerDecision]) -> None:
        """Add what the ledger decided; of a record that was decided before only that is noted.

        One of the target's own records stays what it was, unless that of the source took its place; on
        each of the two there is a row.
        """
        decisions = list(decisions)
        rows = list(map(_row, decisions))
        verdicts = Counter((row[2], row[3]) for row in rows)
        inserted = [(*row[2:6], row[0]) for row in rows if row[2] in INSERTED]
        self._enter_noted(decisions)
        with _named_errors():
            self._file.executemany(
                "UPDATE decided SET action = ?, reason = ?, hash = ?, digest = ? WHERE id = ? AND times = 0",
                inserted,
            )
            self._file.executemany(
                "INSERT INTO decided VALUES (?, ?, ?, ?, ?, ?, ?, 1) "
                "ON CONFLICT (id) DO UPDATE SET times = times + 1",
                rows,
            )
            self._file.executemany(
                "INSERT INTO tally VALUES (?, ?, ?) "
                "ON CONFLICT (action, reason) DO UPDATE SET records = records + excluded.records",
                [(*verdict, records) for verdict, records in verdicts.items()],
            )

    def enter_adopted(self, decisions: Iterable[LedgerDecision]) -> None:
        """Add the target's own records, which were kept without a decision."""
        decisions = list(decisions)
        self._enter_noted(decisions)
        with _named_errors():
            self._file.executemany(
                "INSERT INTO decided VALUES (?, ?, ?, ?, ?, ?, ?, 0)", map(_row, decisions)
            )

    def _enter_noted(self, decisions: Iterable[LedgerDecision]) -> None:
        """Add which rows there must be; on a record that was decided before, that of then."""
        rows = (
            (one.noted, as_key(one.key), as_key(one.id), one.note) for one in decisions if one.key is not None
        )
        with _named_errors():
            self._file.executemany(
                "INSERT OR IGNORE INTO noted SELECT ?1, ?2, ?3, ?4 "
                "WHERE NOT EXISTS (SELECT 1 FROM decided WHERE id = ?3 AND times)",
                rows,
            )

    def enter_last_id(self, raw_id: bytes) -> None:
        """Note the id that a backfill decided last."""
        with _named_errors():
            self._file.execute("REPLACE INTO about VALUES ('last_id', ?)", (raw_id,))

    def last_id(self) -> bytes | None:
        """Return the id that a backfill decided last."""
        return next(
            (value for (value,) in self._asked("SELECT value FROM about WHERE name = 'last_id'")), None
        )

    def enter_undecided(self, table: str, ids: Iterable[bytes]) -> None:
        """Add those of the ids that the ledger did not decide."""
        with _named_errors():
            self._file.executemany(
                f"INSERT OR IGNORE INTO {table} "
                "SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM decided WHERE id = ?1 AND times)",
                ((as_key(raw_id),) for raw_id in ids),
            )

    def arrived(self, ids: Iterable[bytes]) -> None:
        """Note that the target has these records as they were judged."""
        with self.page():
            self._file.executemany(
                "UPDATE target SET hash = (SELECT hash FROM decided WHERE id = ?1) WHERE id = ?1",
                ((as_key(raw_id),) for raw_id in ids),
            )

    def counts(self) -> Counts:
        """Return how many records the plans gave which verdict."""
        of = {(action, reason): n for action, reason, n in self._asked("SELECT * FROM tally")}
        unjudged, refused = (
            {reason: n for (action, reason), n in of.items() if action == kind} for kind in (2, 3)
        )
        unique, exact, near = (of.get(key, 0) for key in ((0, ""), (1, "exact"), (1, "near")))
        return Counts(unique, exact, near, unjudged, refused)

    def change(self, command: str) -> None:
        """Change what was entered."""
        with _named_errors():
            self._file.execute(command)

    def size(self, table: str) -> int:
        """Return how many rows a table has."""
        return int(next(self._asked(f"SELECT count(*) FROM {table}"))[0])

    def answer(self, question: str, samples: int) -> tuple[int, list[bytes]]:
        """Return how many ids answer a question, and the first of them."""
        count = int(next(self._asked(f"SELECT count(*) FROM ({question})"))[0])
        return count, self.ids(f"{question} LIMIT {samples}") if count else []

    def pages(self, question: str, size: int) -> Iterator[list[bytes]]:
        """Yield the ids that answer a question, so many at once, while answers may be taken back."""
        last = b""
        while page := [
            found
            for (found,) in self._asked(
                f"SELECT id FROM ({question}) WHERE id > ? ORDER BY id LIMIT {size}", last
            )
        ]:
            yield [as_id(found) for found in page]
            last = page[-1]

    def ids(self, question: str) -> list[bytes]:
        """Return the ids that answer a question."""
        return [as_id(found) for (found,) in self._asked(question)]

    def faults(self, kind: str) -> list[int]:
        """Return the plans of which something was noted."""
        return [plan for (plan,) in self._asked("SELECT plan FROM fault WHERE kind = ? ORDER BY plan", kind)]

    def hash_of(self, raw_id: bytes) -> bytes | None:
        """Return the hash of a record as it was judged."""
        found = self._asked("SELECT hash FROM decided WHERE id = ?", as_key(raw_id))
        return next((judged for (judged,) in found), None)

    def _asked(self, question: str, *given: Any) -> Iterator[Any]:
        with _named_errors():
            yield from self._file.execute(question, given)


def _row(one: LedgerDecision) -> tuple[Any, ...]:
    keeper = None if one.keeper is None else as_key(one.keeper)
    return as_key(one.id), one.place, one.action, one.reason, one.hash, one.digest, keeper


def _opened(path: Path | None) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path or "", isolation_level=None)
    except sqlite3.OperationalError:
        raise UsageError(
            f"{path} is no file that can be opened; name one in a folder that is there"
        ) from None


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise UsageError("the state of the audit is damaged; delete it, or name another file") from error
        raise StorageFull(
            f"the audit's own file cannot be written ({error}); make room, run again"
        ) from error
