"""The source: one collection, read in the server's `_id` order in short, bounded finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bson import encode
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from dedup_job.document import Batch
from dedup_job.mongo.client import RAW, Patience, named_errors
from dedup_job.mongo.ids import id_of, value
from dedup_job.mongo.lookup import Lookup
from dedup_job.mongo.pace import Pace
from dedup_job.mongo.window import Window

IDS_A_PAGE = 5_000
MIN_KEY = encode({"_id": MinKey()})
MAX_KEY = encode({"_id": MaxKey()})


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How much one batch may hold: so many records, or the first record that reaches so many bytes."""

    records: int = 1_000
    nbytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Storage:
    """What a collection takes: records, bytes of them, bytes on disk, and bytes of the index on `_id`."""

    records: int
    nbytes: int
    stored: int
    ids: int


class Source:
    """Reads records; writes nothing."""

    def __init__(
        self,
        collection: Collection[Any],
        condition: Mapping[str, Any],
        size: BatchSize = BatchSize(),
        patience: Patience = Patience(),
        pace: Pace | None = None,
    ) -> None:
        self._collection = collection.with_options(codec_options=RAW)
        self._condition = condition
        self._size = size
        self._patience = patience
        self._lookup = Lookup(collection, "the source", patience)
        self._pace = pace or Pace()

    def batches(self, window: Window) -> Iterator[Batch]:
        """Yield the undecided records of a window in the server's `_id` order."""
        if window.decided:
            yield from self._fetched(window)
            return
        for page in self._pages(window, {}):
            yield Batch([id_of(raw) for raw in page], page)

    @property
    def waited(self) -> float:
        """Seconds that were waited so far to keep the pace."""
        return self._pace.waited

    def fetch(self, ids: Sequence[bytes], fields: Sequence[str] = ()) -> Iterator[dict[bytes, bytes]]:
        """Yield the records that exist of these ids, by id, in pieces; see `Lookup.pieces`."""
        return self._lookup.pieces(ids, fields)

    def one(self, raw_id: bytes) -> bytes | None:
        """Return the record with this id, or None."""
        return next(self._lookup.pieces([raw_id]), {}).get(raw_id)

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return those of the ids that no record has."""
        return self._lookup.absent(ids)

    def estimated_count(self) -> int:
        """Return about how many records there are; a filter is not counted in."""
        with named_errors("the source"):
            return self._patience(self._collection.estimated_document_count)

    def estimated_count_before(self, start: bytes) -> int:
        """Return about how many records have a smaller ObjectId than this one."""
        behind = {"_id": {"$gte": value(start)}}
        with named_errors("the source"):
            inside: int = self._patience(lambda: self._collection.count_documents(behind, hint={"_id": 1}))
        return self.estimated_count() - inside

    def is_sharded(self) -> bool:
        """Return whether it is reached by a router; then the count has orphans of a migration in it."""
        with named_errors("the source"):
            hello = self._patience(lambda: self._collection.database.client.admin.command("hello"))
        return hello.get("msg") == "isdbgrid"

    def storage(self) -> Storage:
        """Return what the collection takes, by the server's own books; a filter is not counted in."""
        with named_errors("the source"):
            pipeline: list[Mapping[str, Any]] = [{"$collStats": {"storageStats": {}}}]
            shards = self._patience(lambda: list(self._collection.aggregate(pipeline)))
        stats = [shard["storageStats"] for shard in shards]
        return Storage(
            records=sum(one["count"] for one in stats),
            nbytes=sum(one["size"] for one in stats),
            stored=sum(one["storageSize"] for one in stats),
            ids=sum(one["indexSizes"].get("_id_", 0) for one in stats),
        )

    def drawn(self, count: int) -> list[bytes]:
        """Draw so many records at random; returns the ids of those that the filter takes, in `_id` order."""
        pipeline: list[Mapping[str, Any]] = [
            {"$sample": {"size": count}},
            {"$match": self._condition},
            {"$project": {"_id": 1}},
            {"$sort": {"_id": 1}},
        ]
        with named_errors("the source"):
            found = self._patience(lambda: list(self._collection.aggregate(pipeline)))
        return list(dict.fromkeys(bytes(document.raw) for document in found))

    def stretch(self, start: bytes, records: int) -> Batch:
        """Return so many records from an id on, fewer at the end or when they reach a batch's bytes."""
        page = self._page(start, None, {}, most=records)
        return Batch([id_of(raw) for raw in page], page)

    def is_on_this_machine(self) -> bool:
        """Return whether all servers that are known of have an address of the loopback."""
        nodes = self._collection.database.client.nodes
        return bool(nodes) and all(host in ("localhost", "127.0.0.1", "::1") for host, _ in nodes)

    def has_only_object_ids(self) -> bool:
        """Return whether every `_id` is an ObjectId: types sort apart, so the two ends tell."""
        ends = [self._end(1), self._end(-1)]
        return all(isinstance(document["_id"], ObjectId) for end in ends for document in end)

    def now(self) -> datetime:
        """Return the server's clock, in UTC."""
        with named_errors("the source"):
            hello = self._patience(lambda: self._collection.database.client.admin.command("hello"))
        time: datetime = hello["localTime"].replace(tzinfo=UTC)
        return time

    def newest(self) -> datetime | None:
        """Return the time in the greatest `_id`, where that is an ObjectId."""
        last = next((document["_id"] for document in self._end(-1)), None)
        return last.generation_time if isinstance(last, ObjectId) else None

    def _end(self, way: int) -> list[Any]:
        with named_errors("the source"):
            return self._patience(
                lambda: list(self._collection.find({}, {"_id": 1}).sort("_id", way).limit(1))
            )

    def _fetched(self, window: Window) -> Iterator[Batch]:
        """Look at ids alone, which the index holds, and fetch only records that are not decided yet."""
        waiting: list[bytes] = []
        for page in self._pages(window, {"_id": 1}):
            waiting += window.decided.missing([id_of(raw) for raw in page])
            while len(waiting) >= self._size.records:
                yield from self._records(waiting[: self._size.records])
                del waiting[: self._size.records]
        yield from self._records(waiting)

    def _records(self, ids: Sequence[bytes]) -> Iterator[Batch]:
        """Yield these records in this order, in batches of bounded bytes; deleted ones are left out."""
        while ids:
            size = self._paced_size
            asked = ids[: size.records]
            found = next(self._lookup.pieces(asked, nbytes=size.nbytes), {})
            self._pace.spend(len(found), sum(map(len, found.values())))
            last = max((i for i, raw_id in enumerate(asked) if raw_id in found), default=len(asked) - 1)
            present = [raw_id for raw_id in asked if raw_id in found]
            if present:
                yield Batch(present, [found[raw_id] for raw_id in present])
            ids = ids[last + 1 :]

    def _pages(self, window: Window, projection: Mapping[str, Any]) -> Iterator[list[bytes]]:
        """Yield pages of raw documents: each a fresh find, drained before anything is done with it."""
        last = window.after
        if window.before == MIN_KEY:
            return  # the server takes an empty range for a mistake
        while last != MAX_KEY and (page := self._page(last or window.start, last, projection, window.before)):
            yield page
            last = id_of(page[-1])
        # The upper end of an index scan with `min` excludes MaxKey, which sorts behind everything.
        if last != MAX_KEY and window.before is None and (page := self._max_key_page(projection)):
            yield page

    def _max_key_page(self, projection: Mapping[str, Any]) -> list[bytes]:
        condition = {"$and": [self._condition, {"_id": MaxKey()}]}
        with named_errors("the source"):
            found = self._patience(lambda: list(self._collection.find(condition, projection)))
        return [bytes(document.raw) for document in found]

    def _page(
        self,
        start: bytes | None,
        skip: bytes | None,
        projection: Mapping[str, Any],
        before: bytes | None = None,
        most: int = IDS_A_PAGE,
    ) -> list[bytes]:
        """Return the documents from `start` on, which is looked up inclusively, without `skip`."""
        size = self._paced_size
        limit = min(most, IDS_A_PAGE if projection else size.records)
        command: dict[str, Any] = {
            "find": self._collection.name,
            "filter": self._condition,
            "sort": {"_id": 1},
            "hint": {"_id": 1},
            "limit": limit + 1,
            "batchSize": limit + 1,
            "projection": projection,
            "readConcern": {"level": "majority"},
        }
        if start is not None:
            command["min"] = RawBSONDocument(start)  # sees every type, where $gt sees only one
        if before is not None:
            command["max"] = RawBSONDocument(before)
        with named_errors("the source"):
            page = self._patience(lambda: self._drained(command, size.nbytes))
        nbytes = sum(map(len, page))
        if page and id_of(page[0]) == skip:
            del page[0]
        # Ids alone come from the index: what they weigh is paid for, records they are not.
        self._pace.spend(0 if projection else len(page[:limit]), nbytes)
        return page[:limit]

    @property
    def _paced_size(self) -> BatchSize:
        """How much to read at once: a batch, or what the pace allows in about a second."""
        return BatchSize(self._pace.records(self._size.records), self._pace.nbytes(self._size.nbytes))

    def _drained(self, command: dict[str, Any], most: int) -> list[bytes]:
        """Run one find to its end, or until enough bytes came."""
        page: list[bytes] = []
        nbytes = 0
        # The first answer is read by the command's options, later ones by those of the database.
        database = self._collection.database.with_options(codec_options=RAW)
        with database.cursor_command(command, codec_options=RAW) as cursor:
            for document in cursor:
                page.append(bytes(document.raw))
                nbytes += len(page[-1])
                if nbytes >= most and len(page) > 1:
                    break
        return page
