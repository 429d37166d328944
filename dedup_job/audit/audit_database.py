"""The audit database: ledger, target and source side by side in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dedup_job.audit.independent_plan_reader import LedgerDecision
from dedup_job.errors import StorageFull, UsageError
from dedup_job.mongo.ids import HEAD, NAME, document
from dedup_job.records import VANISHED, Action, Counts

# Offset of the value in a raw id.
VALUE = HEAD + 1 + len(NAME)
# Double, date, int32, timestamp, int64: their bytes are little-endian.
NUMBERS = frozenset({0x01, 0x09, 0x10, 0x11, 0x12})
# String, symbol.
STRINGS = frozenset({0x02, 0x0E})
# Bytes of a string's length.
LENGTH = 4


def as_key(raw_id: bytes) -> bytes:
    """Return the key of a raw id: its type, then its value, the most significant part first.

    >>> from bson import encode
    >>> [as_key(encode({"_id": value})).hex() for value in (1, 256, "ab")]
    ['1000000001', '1000000100', '0261620003000000']
    """
    kind, value = raw_id[HEAD], raw_id[VALUE:-1]
    if kind in NUMBERS:
        value = value[::-1]
    elif kind in STRINGS:
        value = value[LENGTH:] + value[:LENGTH]
    return raw_id[HEAD : HEAD + 1] + value


def as_id(key: bytes) -> bytes:
    """Return the raw id of a key.

    >>> from bson import encode
    >>> as_id(as_key(encode({"_id": "ab"}))) == encode({"_id": "ab"})
    True
    """
    kind, value = key[0], key[1:]
    if kind in NUMBERS:
        value = value[::-1]
    elif kind in STRINGS:
        value = value[-LENGTH:] + value[:-LENGTH]
    return document(key[:1] + NAME + value)


# The ASCII codes of "dedu", as SQLite's application id.
APPLICATION = 0x64656475
SETTINGS = (f"cache_size = -{64 << 10}", "locking_mode = EXCLUSIVE", "synchronous = NORMAL")
IDS_AT_ONCE = 1_000
INSERTED = (Action.UNIQUE, Action.UNCHECKED)
# The action of a dropped record that a person restored; plans have no such action.
RESTORED = 4
# An unnamed file is never resumed, so it needs no journal.
NAMELESS = ("journal_mode = OFF",)
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
CREATE TABLE returned (id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE undecided_in_archive (id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE kept_in_archive (id BLOB PRIMARY KEY) WITHOUT ROWID;
"""


class AuditDatabase:
    """The audit database; takes about 64 MiB of memory, whatever the number of records."""

    def __init__(self, path: Path | None) -> None:
        """Open a file, or an unnamed file that is deleted when it is closed.

        Raises:
            UsageError: If the file is no audit database; it is not changed.
            StorageFull: If it cannot be written.
        """
        try:
            self._file = sqlite3.connect(path or "", isolation_level=None)
        except sqlite3.OperationalError:
            raise UsageError(
                f"{path} cannot be opened as a file; name a file in an existing folder"
            ) from None
        try:
            self._open(path)
        except BaseException:
            self._file.close()
            raise

    def _open(self, path: Path | None) -> None:
        """Check that the file is an audit database, or make it one if it is empty."""
        # Only read at first: the file may be somebody's own database.
        try:
            mark = self._file.execute("PRAGMA application_id").fetchone()[0]
            is_new = not self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.DatabaseError as error:
            is_busy = isinstance(error, sqlite3.OperationalError)
            why = "is in use" if is_busy else "is not the state file of a verification; name another file"
            raise UsageError(f"{path} {why}") from None
        if mark != APPLICATION and not is_new:
            raise UsageError(f"{path} is not the state file of a verification; name another file")
        with _name_errors():
            for setting in (*SETTINGS, *([] if path else NAMELESS)):
                self._file.execute(f"PRAGMA {setting}")
            if is_new:
                self._file.executescript(f"PRAGMA application_id = {APPLICATION}; BEGIN; {TABLES} COMMIT;")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def page(self) -> Iterator[None]:
        """Run the block as one transaction."""
        # Leaving the connection commits, or rolls back unless SQLite has done so itself after an error.
        with _name_errors(), self._file:
            self._file.execute("BEGIN")
            yield

    def begin(self, about: str) -> bool:
        """Begin an audit, or resume it.

        Args:
            about: Digest of the ledger's state; if the database holds another state, it is emptied.

        Returns:
            Whether the audit is resumed.
        """
        if self._value("SELECT value FROM about WHERE name = 'about'") == about:
            return True
        with self.page():
            for (name,) in list(self._query("SELECT name FROM sqlite_master WHERE type = 'table'")):
                self._file.execute(f"DELETE FROM {name}")
            self._file.execute("INSERT INTO about VALUES ('about', ?)", (about,))
        return False

    def position(self, stage: str) -> tuple[Any, bool]:
        """Return the last id or number that a stage has added, and whether the stage is finished."""
        select = "SELECT after, is_finished FROM position WHERE stage = ?"
        after, is_finished = next(self._query(select, stage), (None, False))
        return after, bool(is_finished)

    def move(self, stage: str, after: Any, is_finished: bool = False) -> None:
        """Store the progress of a stage, as `position` returns it."""
        self.change("REPLACE INTO position VALUES (?, ?, ?)", stage, after, is_finished)

    def enter(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows that begin with a raw id; skip rows whose id exists."""
        keyed = [(as_key(raw_id), *rest) for raw_id, *rest in rows]
        if keyed:
            marks = ", ".join("?" * len(keyed[0]))
            self._change_each(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", keyed)

    def enter_fault(self, kind: str, plan: int) -> None:
        """Note a fault of a plan."""
        self.change("INSERT OR IGNORE INTO fault VALUES (?, ?)", kind, plan)

    def enter_decisions(self, decisions: Iterable[LedgerDecision]) -> None:
        """Add decisions; a second decision on a record only raises its count.

        An adopted record keeps its adoption, unless the job inserted the source's record in its place.
        """
        decisions = list(decisions)
        rows = list(map(_row, decisions))
        verdicts = Counter((row[2], row[3]) for row in rows)
        # Adopted records have the count 0 until the source's record with the id is decided.  The update comes
        # first, because the insert raises that count.
        inserted = [(*row[2:6], row[0]) for row in rows if row[2] in INSERTED]
        self._enter_noted(decisions)
        self._change_each(
            "UPDATE decided SET action = ?, reason = ?, hash = ?, digest = ? WHERE id = ? AND times = 0",
            inserted,
        )
        self._change_each(
            "INSERT INTO decided VALUES (?, ?, ?, ?, ?, ?, ?, 1) "
            "ON CONFLICT (id) DO UPDATE SET times = times + 1",
            rows,
        )
        self._change_each(
            "INSERT INTO tally VALUES (?, ?, ?) "
            "ON CONFLICT (action, reason) DO UPDATE SET records = records + excluded.records",
            [(*verdict, records) for verdict, records in verdicts.items()],
        )

    def enter_adopted(self, decisions: Iterable[LedgerDecision]) -> None:
        """Add the target's own records, which an adoption kept without deciding."""
        decisions = list(decisions)
        self._enter_noted(decisions)
        self._change_each("INSERT INTO decided VALUES (?, ?, ?, ?, ?, ?, ?, 0)", map(_row, decisions))

    def _enter_noted(self, decisions: Iterable[LedgerDecision]) -> None:
        """Add the rows that the ledger must have; if a record was decided twice, the first decision's row."""
        rows = (
            (decision.noted, as_key(decision.key), as_key(decision.id), decision.note)
            for decision in decisions
            if decision.key is not None
        )
        self._change_each(
            "INSERT OR IGNORE INTO noted SELECT ?1, ?2, ?3, ?4 "
            "WHERE NOT EXISTS (SELECT 1 FROM decided WHERE id = ?3 AND times)",
            rows,
        )

    def enter_last_id(self, raw_id: bytes) -> None:
        """Store the last id that a backfill decided."""
        self.change("REPLACE INTO about VALUES ('last_id', ?)", raw_id)

    def last_id(self) -> bytes | None:
        """Return the last id that a backfill decided."""
        raw_id: bytes | None = self._value("SELECT value FROM about WHERE name = 'last_id'")
        return raw_id

    def enter_undecided(self, table: str, ids: Iterable[bytes]) -> None:
        """Add the given ids that the ledger did not decide."""
        self._enter_if(table, ids, "NOT EXISTS (SELECT 1 FROM decided WHERE id = ?1 AND times)")

    def enter_returned(self, ids: Iterable[bytes]) -> None:
        """Add the given ids whose record had vanished from the source by the last decision on it."""
        has_vanished = f"action = {VANISHED.action:d} AND reason = '{VANISHED.reason}'"
        self._enter_if("returned", ids, f"EXISTS (SELECT 1 FROM decided WHERE id = ?1 AND {has_vanished})")

    def enter_kept_in_archive(self, ids: Iterable[bytes]) -> None:
        """Add the given ids whose record of the source was kept, also if a person restored it."""
        is_kept = f"times AND action IN {(*map(int, INSERTED), RESTORED)}"
        self._enter_if("kept_in_archive", ids, f"EXISTS (SELECT 1 FROM decided WHERE id = ?1 AND {is_kept})")

    def remove(self, table: str, ids: Iterable[bytes]) -> None:
        """Remove the rows with these ids."""
        with self.page():
            self._change_each(f"DELETE FROM {table} WHERE id = ?", ((as_key(raw_id),) for raw_id in ids))

    def _enter_if(self, table: str, ids: Iterable[bytes], condition: str) -> None:
        """Add the given ids for which a condition on `?1` is true."""
        keys = ((as_key(raw_id),) for raw_id in ids)
        self._change_each(f"INSERT OR IGNORE INTO {table} SELECT ?1 WHERE {condition}", keys)

    def mark_unaltered(self, ids: Iterable[bytes]) -> None:
        """Store that the target has the judged versions of these records."""
        update = "UPDATE target SET hash = (SELECT hash FROM decided WHERE id = ?1) WHERE id = ?1"
        with self.page():
            self._change_each(update, ((as_key(raw_id),) for raw_id in ids))

    def counts(self) -> Counts:
        """Return the number of records of each verdict in the plans."""
        of = {(action, reason): n for action, reason, n in self._query("SELECT * FROM tally")}
        unchecked, refused = (
            {reason: n for (action, reason), n in of.items() if action == kind} for kind in (2, 3)
        )
        unique, exact, near = (of.get(key, 0) for key in ((0, ""), (1, "exact"), (1, "near")))
        return Counts(unique, exact, near, unchecked, refused)

    def change(self, statement: str, *values: Any) -> None:
        """Execute a statement that changes rows."""
        with _name_errors():
            self._file.execute(statement, values)

    def _change_each(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row."""
        with _name_errors():
            self._file.executemany(statement, rows)

    def size(self, table: str) -> int:
        """Return the number of rows of a table, or of a query in parentheses."""
        return int(self._value(f"SELECT count(*) FROM {table}"))

    def answer(self, question: str, samples: int) -> tuple[int, list[bytes]]:
        """Return the number of ids that a query selects, and the first of them."""
        count = self.size(f"({question})")
        return count, self.ids(f"{question} LIMIT {samples}") if count else []

    def pages(self, question: str) -> Iterator[list[bytes]]:
        """Yield the ids that a query selects, in pages; rows may change between pages."""
        # A new query for each page: SQLite does not define what an open cursor returns after rows change.
        last = b""
        select = f"SELECT id FROM ({question}) WHERE id > ? ORDER BY id LIMIT {IDS_AT_ONCE}"
        while page := [key for (key,) in self._query(select, last)]:
            yield [as_id(key) for key in page]
            last = page[-1]

    def ids(self, question: str) -> list[bytes]:
        """Return the ids that a query selects."""
        return [as_id(key) for (key,) in self._query(question)]

    def faults(self, kind: str) -> list[int]:
        """Return the numbers of the plans with this fault."""
        return [plan for (plan,) in self._query("SELECT plan FROM fault WHERE kind = ? ORDER BY plan", kind)]

    def hash_of(self, raw_id: bytes) -> bytes | None:
        """Return the hash of the judged version of a record; None if it was not decided."""
        return self._column_of("hash", raw_id)

    def text_digest_of(self, raw_id: bytes) -> bytes | None:
        """Return the digest of the judged text of a record; None if it was not decided."""
        return self._column_of("digest", raw_id)

    def keeper_of(self, raw_id: bytes) -> bytes:
        """Return the keeper of a dropped record; the record itself if it was not dropped."""
        key = self._column_of("keeper", raw_id)
        return raw_id if key is None else as_id(key)

    def _column_of(self, column: str, raw_id: bytes) -> bytes | None:
        value: bytes | None = self._value(f"SELECT {column} FROM decided WHERE id = ?", as_key(raw_id))
        return value

    def _value(self, question: str, *values: Any) -> Any:
        """Return the value that a query selects; None if it selects none."""
        return next((value for (value,) in self._query(question, *values)), None)

    def _query(self, question: str, *values: Any) -> Iterator[Any]:
        with _name_errors():
            yield from self._file.execute(question, values)


def _row(decision: LedgerDecision) -> tuple[Any, ...]:
    """Return the columns of `decided` for a decision, except the count."""
    keeper = None if decision.keeper is None else as_key(decision.keeper)
    judged = (decision.action, decision.reason, decision.hash, decision.digest)
    return as_key(decision.id), decision.place, *judged, keeper


@contextmanager
def _name_errors() -> Iterator[None]:
    """Turn an error of SQLite into an error that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise UsageError("the state file is damaged; delete it, or name another file") from error
        raise StorageFull(
            f"the audit database cannot be written ({error}); free some space and run again"
        ) from error
