"""A list of ids that moves to a temporary file when it grows beyond a megabyte."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from tempfile import SpooledTemporaryFile

from dedup_job.errors import StorageFull
from dedup_job.mongo.ids import INT32

# Bytes.
IN_MEMORY = 1 << 20


class IdList:
    """Raw ids in insertion order.

    Ids must not be added while the list is read: reading and writing share one file position.
    """

    def __init__(self, ids: Iterable[bytes] = ()) -> None:
        # The file has no name on disk; it is deleted when the list is.
        self._file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._count = 0
        self.extend(ids)

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


@contextmanager
def _name_errors() -> Iterator[None]:
    """Raise StorageFull if the temporary file cannot be written or read."""
    try:
        yield
    except OSError as error:
        raise StorageFull(
            f"a temporary file cannot be used: {error.strerror}; "
            "free some space, or set TMPDIR to another folder"
        ) from error
