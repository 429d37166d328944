"""The source: one collection, read page by page at a pace that its server bears."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bson.objectid import ObjectId
from pymongo.collection import Collection

from dedup_job.errors import NotPermitted
from dedup_job.mongo.client import RetryPolicy, named_errors
from dedup_job.mongo.id_lookup import Lookup
from dedup_job.mongo.id_text import value
from dedup_job.mongo.id_window import Window
from dedup_job.mongo.ids import id_of
from dedup_job.mongo.pages import IDS, WHOLE, BatchSize, IdRange, Pages, applied
from dedup_job.mongo.rate_limit import Pace
from dedup_job.records import RAW, Batch


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
        patience: RetryPolicy = RetryPolicy(),
        pace: Pace | None = None,
    ) -> None:
        self._collection = collection.with_options(codec_options=RAW)
        self._condition = condition
        self._size = size
        self._patience = patience
        self._lookup = Lookup(collection, "the source", patience)
        self._pace = pace or Pace()
        self._reading = Pages(self._collection, "the source", patience, self._paced_size, condition)

    def batches(self, window: Window) -> Iterator[Batch]:
        """Yield the undecided records of a window in the server's `_id` order."""
        if window.decided:
            yield from self._fetched(window)
            return
        for page in self._reading.within(window.range, WHOLE):
            self._pace.spend(len(page), sum(map(len, page)))
            yield Batch([id_of(raw) for raw in page], page)

    @property
    def waited(self) -> float:
        """Seconds that were waited so far to keep the pace."""
        return self._pace.waited

    def fetch(self, ids: Sequence[bytes], fields: Sequence[str] = ()) -> Iterator[dict[bytes, bytes]]:
        """Yield the records that exist of these ids, by id, in pieces; see `Lookup.pieces`."""
        return self._lookup.pieces(ids, fields)

    def present(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids of the records that exist of these, as they are there; see `Lookup.present`."""
        return self._lookup.present(ids)

    def matching(self, ids: Iterable[bytes], condition: Mapping[str, Any]) -> set[bytes]:
        """Return the ids of those of these records that a condition takes; see `Lookup.matching`."""
        return self._lookup.matching(ids, condition)

    def records(self, ids: Sequence[bytes]) -> Iterator[Batch]:
        """Yield these records in this order, in batches of bounded bytes; deleted ones are left out."""
        while ids:
            size = self._paced_size()
            asked, found = self._first_of(ids[: size.records], size.nbytes)
            last = max((i for i, raw_id in enumerate(asked) if raw_id in found), default=len(asked) - 1)
            present = [raw_id for raw_id in asked if raw_id in found]
            if present:
                yield Batch(present, [found[raw_id] for raw_id in present])
            ids = ids[last + 1 :]

    def _first_of(self, asked: Sequence[bytes], nbytes: int) -> tuple[Sequence[bytes], dict[bytes, bytes]]:
        """Return the records of about so many bytes, and how many of the ids were asked for to get them.

        The server gives them in `_id` order.  Where they are asked for in another one, those that are beyond
        the bytes may stand before some that came; then fewer are asked for, until none does.
        """
        while True:
            found = next(self._lookup.pieces(asked, nbytes=nbytes), {})
            self._pace.spend(len(found), sum(map(len, found.values())))
            last = max((i for i, raw_id in enumerate(asked) if raw_id in found), default=0)
            lacking = {raw_id for raw_id in asked[:last] if raw_id not in found}
            if not lacking or not lacking - self.absent(lacking):
                return asked, found
            asked = asked[: max(1, len(asked) // 2)]

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
        pipeline: list[Mapping[str, Any]] = [{"$collStats": {"storageStats": {}}}]
        try:
            with named_errors("the source"):
                shards = self._patience(lambda: list(self._collection.aggregate(pipeline)))
        except NotPermitted as error:
            raise NotPermitted(
                f"the source: the user lacks the right to collStats on {self._collection.full_name}; "
                "see Rights in docs/operations.md"
            ) from error
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
        with named_errors("the source"), applied(self._condition):
            found = self._patience(lambda: list(self._collection.aggregate(pipeline)))
        return list(dict.fromkeys(bytes(document.raw) for document in found))

    def stretch(self, start: bytes, records: int) -> Batch:
        """Return so many records from an id on, fewer at the end or when they reach a batch's bytes."""
        page = self._reading.page(IdRange(start), WHOLE, records)
        self._pace.spend(len(page), sum(map(len, page)))
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

    def last(self) -> bytes | None:
        """Return the greatest `_id`, whatever the filter says of its record; None where there is none."""
        return next((bytes(document.raw) for document in self._end(-1)), None)

    def _end(self, way: int) -> list[Any]:
        with named_errors("the source"):
            return self._patience(
                lambda: list(self._collection.find({}, {"_id": 1}).sort("_id", way).limit(1))
            )

    def _fetched(self, window: Window) -> Iterator[Batch]:
        """Look at ids alone, which the index holds, and fetch only records that are not decided yet."""
        waiting: list[bytes] = []
        for page in self._reading.within(window.range, IDS):
            # Ids alone come from the index: what they weigh is paid for, records they are not.
            self._pace.spend(0, sum(map(len, page)))
            waiting += window.decided.missing([id_of(raw) for raw in page])
            while len(waiting) >= self._size.records:
                yield from self.records(waiting[: self._size.records])
                del waiting[: self._size.records]
        yield from self.records(waiting)

    def _paced_size(self) -> BatchSize:
        """How much to read at once: a batch, or what the pace allows in about a second."""
        return BatchSize(self._pace.records(self._size.records), self._pace.nbytes(self._size.nbytes))
