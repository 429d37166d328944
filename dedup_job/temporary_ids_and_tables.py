"""Ids and tables in temporary files, which are deleted when they are closed."""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from struct import Struct
from tempfile import SpooledTemporaryFile
from threading import Lock
from typing import Any

from dedup_job.errors import StorageFull
from dedup_job.records import chunked

# Bytes of a list of ids that stay in memory.
IN_MEMORY = 1 << 20
# A BSON document begins with its length.
INT32 = Struct("<i")
CACHE_KB = 16 << 10
# Values per statement: older versions of SQLite accept 999 parameters.
AT_ONCE = 900


class IdList:
    """Raw ids in insertion order; beyond a megabyte they are in a file.

    Ids must not be added while the list is read: reading and writing share one file position.
    """

    def __init__(self) -> None:
        # The file has no name on disk; it is deleted when the list is.
        self._file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        with _name_errors():
            self._file.seek(0)
            for _ in range(self._count):
                head = self._file.read(INT32.size)
                yield head + self._file.read(INT32.unpack(head)[0] - len(head))

    def extend(self, ids: Iterable[bytes]) -> None:
        """Append ids.

        Raises:
            StorageFull: If the temporary file cannot be written.
        """
        with _name_errors():
            self._file.seek(0, os.SEEK_END)
            for raw_id in ids:
                self._file.write(raw_id)
                self._count += 1

    def pages(self, size: int) -> Iterator[list[bytes]]:
        """Yield the ids in lists of `size`; the last list may be shorter."""
        ids = iter(self)
        while page := list(islice(ids, size)):
            yield page


class TemporaryTables:
    """Tables of SQLite in a temporary file; thread-safe.

    Args:
        statements: Create the tables and their indexes.
    """

    def __init__(self, *statements: str) -> None:
        # An empty name means a temporary file that is deleted when it is closed.
        self._tables = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, self._tables.close)
        self._lock = Lock()
        # The file does not survive this process, so it needs neither a journal nor a flush to disk.
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{CACHE_KB}"):
            self.fetch(f"PRAGMA {pragma}")
        for statement in statements:
            self.fetch(statement)

    def fetch(self, statement: str, *values: object) -> list[Any]:
        """Execute a statement, and return its rows.

        Raises:
            StorageFull: If the file cannot be written or read; so do the other methods.
        """
        with self._lock, _name_errors():
            return self._tables.execute(statement, values).fetchall()

    def fetch_among(self, select: str, values: Sequence[object]) -> Iterator[Any]:
        """Yield the rows that a `SELECT ... IN` finds for any number of values."""
        for some in chunked(values, AT_ONCE):
            yield from self.fetch(f"{select} ({','.join('?' * len(some))})", *some)

    def fill(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Execute a statement for each row, all in one transaction."""
        with self._lock, _name_errors():
            self._tables.execute("BEGIN")
            self._tables.executemany(statement, rows)
            self._tables.execute("COMMIT")


@contextmanager
def _name_errors() -> Iterator[None]:
    """Raise StorageFull if a temporary file cannot be written or read."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise StorageFull(
            f"a temporary file cannot be used: {getattr(error, 'strerror', None) or error}; "
            "free some space, or set TMPDIR to another folder"
        ) from error
