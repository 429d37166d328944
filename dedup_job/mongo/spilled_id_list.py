"""A list of ids that may be longer than memory: from a megabyte on it is in a temporary file."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from tempfile import SpooledTemporaryFile

from dedup_job.errors import StorageFull
from dedup_job.mongo.ids import INT32

IN_MEMORY = 1 << 20  # bytes


class IdList:
    """Raw ids in the order in which they were added; to be read once all are there."""

    def __init__(self, ids: Iterable[bytes] = ()) -> None:
        self._file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 (it has no name, and goes with this list)
        weakref.finalize(self, self._file.close)
        self._count = 0
        self.extend(ids)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        with _told_of_storage():
            self._file.seek(0)
            for _ in range(self._count):
                head = self._file.read(INT32.size)
                yield head + self._file.read(INT32.unpack(head)[0] - len(head))

    def extend(self, ids: Iterable[bytes]) -> None:
        """Add ids at the end."""
        with _told_of_storage():
            self._file.seek(0, os.SEEK_END)
            for raw_id in ids:
                self._file.write(raw_id)
                self._count += 1

    def pages(self, size: int) -> Iterator[list[bytes]]:
        """Yield the ids in lists of so many."""
        ids = iter(self)
        while page := list(islice(ids, size)):
            yield page


@contextmanager
def _told_of_storage() -> Iterator[None]:
    """Raise StorageFull for a temporary file that cannot be written or read."""
    try:
        yield
    except OSError as error:
        raise StorageFull(f"a temporary file (TMPDIR) cannot be used: {error.strerror}") from error
