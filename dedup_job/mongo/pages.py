"""Pages: a collection, read in the server's `_id` order in short, bounded finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bson import encode
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from dedup_job.document import RAW
from dedup_job.mongo.client import Patience, named_errors
from dedup_job.mongo.condition import applied
from dedup_job.mongo.ids import id_of
from dedup_job.mongo.stored_ids import stored_ids

MIN_KEY = encode({"_id": MinKey()})
MAX_KEY = encode({"_id": MaxKey()})
IDS_A_PAGE = 5_000
IDS: Mapping[str, Any] = {"_id": 1}  # the index alone is read for them
WHOLE: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How much one page or batch may hold: so many records, or the first that reaches so many bytes."""

    records: int = 1_000
    nbytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Range:
    """A range of ids.

    start   id to begin with, or None for the smallest
    after   id to begin behind, or None; takes the place of `start`
    before  id to end before, or None
    """

    start: bytes | None = None
    after: bytes | None = None
    before: bytes | None = None


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a collection.

    what       how messages call it
    size       how much a page may hold, asked before each
    condition  leaves out other records
    """

    collection: Collection[Any]
    what: str
    patience: Patience = Patience()
    size: Callable[[], BatchSize] = lambda: BatchSize(IDS_A_PAGE, 8 << 20)
    condition: Mapping[str, Any] = field(default_factory=dict)

    def records_after(self, after: bytes | None) -> Iterator[list[bytes]]:
        """Yield pages of raw records behind this id; None for all."""
        return self.within(Range(after=after), WHOLE)

    def ids_after(self, after: bytes | None, before: bytes | None = None) -> Iterator[list[bytes]]:
        """Yield pages of raw ids behind one id and before another."""
        return self.within(Range(after=after, before=before), IDS)

    def within(self, ids: Range, fields: Mapping[str, Any]) -> Iterator[list[bytes]]:
        """Yield pages of a range: each a fresh find, drained before anything is done with it."""
        if ids.before == MIN_KEY:
            return  # the server takes an empty range for a mistake
        while ids.after != MAX_KEY and (page := self.page(ids, fields)):
            yield page
            ids = replace(ids, after=id_of(page[-1]))
        # The upper end of an index scan with `min` excludes MaxKey, which sorts behind everything.
        if ids.after != MAX_KEY and ids.before is None and (page := self._of_max_key(fields)):
            yield page

    def page(self, ids: Range, fields: Mapping[str, Any], most: int = IDS_A_PAGE) -> list[bytes]:
        """Return the first raw documents of a range: a page of them, and at most so many."""
        size, start = self.size(), ids.after or ids.start
        limit = min(most, IDS_A_PAGE if fields else size.records)
        command: dict[str, Any] = {
            "find": self.collection.name,
            "filter": self.condition,
            "sort": {"_id": 1},
            "hint": {"_id": 1},
            "limit": limit + 1,
            "batchSize": limit + 1,
            "projection": fields,
            "readConcern": {"level": "majority"},
        }
        if start is not None:
            command["min"] = RawBSONDocument(start)  # sees every type, where $gt sees only one
        if ids.before is not None:
            command["max"] = RawBSONDocument(ids.before)
        page = self._found(command, size.nbytes)
        if fields is IDS:
            page = stored_ids(self.collection, self.what, self.patience, page)
        if page and id_of(page[0]) == ids.after:
            del page[0]
        return page[:limit]

    def _of_max_key(self, fields: Mapping[str, Any]) -> list[bytes]:
        condition = {"$and": [self.condition, {"_id": MaxKey()}]}
        return self._found({"find": self.collection.name, "filter": condition, "projection": fields}, 1)

    def _found(self, command: Mapping[str, Any], most: int) -> list[bytes]:
        """Run one find to its end, or until enough bytes came; two documents come in any case."""
        # The first answer is read by the command's options, later ones by those of the database.
        database = self.collection.database.with_options(codec_options=RAW)

        def drained() -> list[bytes]:
            page: list[bytes] = []
            nbytes = 0
            with database.cursor_command(dict(command), codec_options=RAW) as cursor:
                for document in cursor:
                    page.append(bytes(document.raw))
                    nbytes += len(page[-1])
                    if nbytes >= most and len(page) > 1:
                        break
            return page

        with named_errors(self.what), applied(self.condition):
            return self.patience(drained)
