"""A second way to read a collection in order, so that an audit does not repeat a mistake of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bson import encode
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from dedup_job.mongo.client import RAW, Patience, named_errors
from dedup_job.mongo.ids import id_of

MIN_KEY = encode({"_id": MinKey()})
MAX_KEY = encode({"_id": MaxKey()})
PAGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Scan:
    """A collection, read in the server's `_id` order from any id on.

    what       how messages call it
    records    greatest number of records in a page; a page ends early when it has 8 MiB
    condition  leaves out other records
    """

    collection: Collection[Any]
    what: str
    patience: Patience = Patience()
    records: int = 5_000
    condition: Mapping[str, Any] = field(default_factory=dict)

    def records_after(self, after: bytes | None) -> Iterator[list[bytes]]:
        """Yield pages of raw records behind this id; None for all."""
        return self._pages({}, after, None)

    def ids_after(self, after: bytes | None, before: bytes | None = None) -> Iterator[list[bytes]]:
        """Yield pages of raw ids behind one id and before another; the `_id` index alone is read."""
        return self._pages({"_id": 1}, after, before)

    def _pages(
        self, projection: Mapping[str, Any], after: bytes | None, before: bytes | None
    ) -> Iterator[list[bytes]]:
        last = after
        if before == MIN_KEY:
            return  # the server takes an empty range for a mistake
        while last != MAX_KEY and (page := self._page(projection, last, before)):
            yield page
            last = id_of(page[-1])
        # A scan from a smallest key on ends before MaxKey, whatever the largest.
        if last not in (None, MAX_KEY) and before is None and (page := self._of_max_key(projection)):
            yield page

    def _of_max_key(self, projection: Mapping[str, Any]) -> list[bytes]:
        condition = {"$and": [self.condition, {"_id": MaxKey()}]}
        return self._found({**self._command(projection), "filter": condition})

    def _page(self, projection: Mapping[str, Any], after: bytes | None, before: bytes | None) -> list[bytes]:
        """Return what follows: `min` and `max` see ids of every type, where `$gt` sees those of one."""
        command = self._command(projection)
        if after is not None:
            command["min"] = RawBSONDocument(after)
        if before is not None:
            command["max"] = RawBSONDocument(before)
        page = self._found(command)
        return page[1:] if page and id_of(page[0]) == after else page

    def _command(self, projection: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "find": self.collection.name,
            "filter": self.condition,
            "projection": projection,
            "hint": {"_id": 1},
            "sort": {"_id": 1},
            "limit": self.records + 1,
            "batchSize": self.records + 1,
            "readConcern": {"level": "majority"},
        }

    def _found(self, command: Mapping[str, Any]) -> list[bytes]:
        # The first answer is read by the command's options, later ones by those of the database.
        database = self.collection.database.with_options(codec_options=RAW)

        def drained() -> list[bytes]:
            page: list[bytes] = []
            nbytes = 0
            with database.cursor_command(dict(command), codec_options=RAW) as cursor:
                for record in cursor:
                    page.append(bytes(record.raw))
                    nbytes += len(page[-1])
                    if nbytes >= PAGE_BYTES and len(page) > 1:
                        break
            return page

        with named_errors(self.what):
            return self.patience(drained)
