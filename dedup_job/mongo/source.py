"""The source: one collection, read page by page at a limited rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from pymongo.read_preferences import Nearest, Primary, Secondary, SecondaryPreferred

from dedup_job.errors import NotPermitted
from dedup_job.mongo.id_lookup import RecordsById
from dedup_job.mongo.ids import id_of, value
from dedup_job.mongo.pages import IDS, WHOLE, BatchSize, Pages, Window, named_filter_errors
from dedup_job.mongo.read_rate_limit import Pace
from dedup_job.mongo.retrying_collection import ReadMode, RetryingCollection
from dedup_job.mongo.server import not_permitted
from dedup_job.records import Batch

PREFERENCES: Mapping[str, type[SecondaryPreferred | Secondary | Nearest]] = {
    "secondaryPreferred": SecondaryPreferred,
    "secondary": Secondary,
    "nearest": Nearest,
}
# Records drawn to estimate how many meet the filter.
DRAWN = 1_000


@dataclass(frozen=True, slots=True)
class Storage:
    """The size of a collection.

    Attributes:
        records: Number of records.
        nbytes: Bytes of the records.
        stored: Bytes of the records on disk, compressed.
        ids: Bytes of the index on `_id`.
    """

    records: int
    nbytes: int
    stored: int
    ids: int


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a replica set from which records are read.

    Attributes:
        preference: The read preference.
        after: Time of the replica set that they must have reached; None before a scan begins.
    """

    preference: ReadMode = field(default_factory=Primary)
    after: Timestamp | None = None

    @classmethod
    def of(cls, preference: str, max_staleness: int) -> Self:
        """Return the members for a read preference by its name, and a bound on staleness in seconds."""
        if preference == "primary":
            return cls()
        return cls(PREFERENCES[preference](max_staleness=max_staleness))

    @property
    def are_primary(self) -> bool:
        """Whether only the primary is read."""
        return isinstance(self.preference, Primary)


class Source(RecordsById):
    """Reads a collection; writes nothing."""

    def __init__(
        self,
        collection: RetryingCollection,
        condition: Mapping[str, Any],
        size: BatchSize = BatchSize(),
        pace: Pace | None = None,
        read: Callable[[bytes], bytes] = bytes,
        members: Members = Members(),
    ) -> None:
        """Set the collection and the way it is read.

        Args:
            collection: The collection.
            condition: A filter; other records are left out by `batches`, `draw_ids` and `stretch`.
            size: The most records and bytes of a batch.
            pace: Limits the read rate; None for no limit.
            read: Called with each raw record that the server returns; returns the record to hand out.
            members: The members of the replica set from which `batches` may read.
        """
        super().__init__(collection, read)
        self._condition = condition
        self._size = size
        self._pace = pace or Pace()
        self._pages = Pages(collection, self._paced_size, condition, read)
        self.members = members

    def begin_scan(self) -> tuple[datetime, datetime | None]:
        """Begin to read records that a run decides: later batches have all that the primary has now.

        Returns:
            The primary's clock, in UTC, and the time in the largest `_id` if it is an ObjectId.
        """
        # One reply has the clock and the time of the replica set, so no record is between the two.
        hello = self.collection.hello()
        self.members = replace(self.members, after=hello.get("operationTime"))
        return hello["localTime"].replace(tzinfo=UTC), self.newest()

    def batches(self, window: Window) -> Iterator[Batch]:
        """Yield the undecided records of a window in the server's `_id` order.

        If nothing in the window is decided, as in a backfill, they are read from the preferred members.
        Otherwise, they are found and read on the primary: a secondary may lack ids that arrived late.
        """
        if window.decided:
            yield from self._fetch_undecided(window)
            return
        yield from map(self._paced_batch, self._bulk_pages().within(window, WHOLE))

    def _bulk_pages(self) -> Pages:
        """Return the pages of the preferred members, with all records that the primary had at `begin_scan`.

        A member that lags answers when it has caught up with that time.  Each page is then the same as if the
        primary had been read at some moment after the scan began, so a run from a secondary leaves out only
        records that arrive while it runs, as a run from the primary does.
        """
        if self.members.are_primary:
            return self._pages
        if self.members.after is None:
            self.begin_scan()
        collection = self.collection.read_from(self.members.preference)
        return replace(self._pages, collection=collection, after=self.members.after)

    def undecided_ids(self, window: Window) -> Iterator[list[bytes]]:
        """Yield the ids of the undecided records of a window, in pages, which may be empty."""
        for page in self._pages.within(window, IDS):
            # Ids count for the limit on bytes, but not for the limit on records.
            self._pace.spend(0, sum(map(len, page)))
            yield window.decided.missing([id_of(raw) for raw in page])

    @property
    def waited(self) -> float:
        """Seconds spent waiting for the rate limit so far."""
        return self._pace.waited

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
        """Return the ids that were requested, and the first records with these ids, of about `nbytes`.

        The server returns records in the order of ids, which may differ from the order in `asked`.  If a
        record beyond `nbytes` comes before a returned record in `asked`, fewer ids are requested.
        """
        while True:
            found = next(self.fetch(asked, nbytes=nbytes), {})
            self._pace.spend(len(found), sum(map(len, found.values())))
            last = max((i for i, raw_id in enumerate(asked) if raw_id in found), default=0)
            lacking = {raw_id for raw_id in asked[:last] if raw_id not in found}
            if not lacking or not lacking - self.absent(lacking):
                return asked, found
            asked = asked[: max(1, len(asked) // 2)]

    def estimated_count(self) -> int:
        """Return the number of records by the server's metadata, whatever the filter."""
        return self.collection.attempt(self.collection.unretried.estimated_document_count)

    def estimated_matches(self) -> int:
        """Return the estimated number of records that meet the filter, by a random sample."""
        count = self.estimated_count()
        if not self._condition or not count:
            return count
        drawn = min(count, DRAWN)
        return round(count * len(self.draw_ids(drawn)) / drawn)

    def estimated_count_before(self, start: bytes) -> int:
        """Return the estimated number of records with a smaller ObjectId than this one."""
        behind = {"_id": {"$gte": value(start)}}
        return self.estimated_count() - self.collection.count_documents(behind, hint={"_id": 1})

    def is_sharded(self) -> bool:
        """Return whether a router answers; then the estimated count includes orphaned documents."""
        is_router: bool = self.collection.hello().get("msg") == "isdbgrid"
        return is_router

    def storage(self) -> Storage:
        """Return the collection's size by the server's statistics, whatever the filter."""
        try:
            shards = self.collection.aggregate([{"$collStats": {"storageStats": {}}}])
        except NotPermitted as error:
            place = self.collection.database.name, self.collection.name
            raise not_permitted(self.collection.what, ["collStats"], *place) from error
        stats = [shard["storageStats"] for shard in shards]
        return Storage(
            records=sum(one["count"] for one in stats),
            nbytes=sum(one["size"] for one in stats),
            stored=sum(one["storageSize"] for one in stats),
            ids=sum(one["indexSizes"].get("_id_", 0) for one in stats),
        )

    def draw_ids(self, count: int) -> list[bytes]:
        """Draw `count` records at random; return the ids of those that meet the filter, in `_id` order."""
        pipeline: list[Mapping[str, Any]] = [
            {"$sample": {"size": count}},
            {"$match": self._condition},
            {"$project": {"_id": 1}},
            {"$sort": {"_id": 1}},
        ]
        records = self.collection.raw_bson().unretried

        def draw() -> list[Any]:
            with named_filter_errors(self._condition):
                return list(records.aggregate(pipeline))

        found = self.collection.attempt(draw)
        return list(dict.fromkeys(bytes(document.raw) for document in found))

    def stretch(self, start: bytes, records: int) -> Batch:
        """Return `records` records from an id on; fewer at the end, or if they reach a batch's bytes."""
        return self._paced_batch(self._pages.page(Window(start), WHOLE, records))

    def has_only_object_ids(self) -> bool:
        """Return whether every `_id` is an ObjectId."""
        # Ids of one type sort together, so the smallest and the largest id are enough.
        ends = [self._end(1), self._end(-1)]
        return all(isinstance(document["_id"], ObjectId) for end in ends for document in end)

    def now(self) -> datetime:
        """Return the server's clock, in UTC."""
        return self.collection.server_time()

    def newest(self) -> datetime | None:
        """Return the time in the largest `_id` if it is an ObjectId."""
        last = next((document["_id"] for document in self._end(-1)), None)
        return last.generation_time if isinstance(last, ObjectId) else None

    def last(self) -> bytes | None:
        """Return the largest `_id`, whatever the filter; None if the source is empty."""
        return next((bytes(document.raw) for document in self._end(-1)), None)

    def _end(self, way: int) -> list[Any]:
        return self.collection.raw_bson().find({}, {"_id": 1}, sort=[("_id", way)], limit=1)

    def _fetch_undecided(self, window: Window) -> Iterator[Batch]:
        """Scan the ids in the index, and fetch only the undecided records."""
        waiting: list[bytes] = []
        for ids in self.undecided_ids(window):
            waiting += ids
            while len(waiting) >= self._size.records:
                yield from self.records(waiting[: self._size.records])
                del waiting[: self._size.records]
        yield from self.records(waiting)

    def _paced_batch(self, page: list[bytes]) -> Batch:
        """Return the records of a page when the rate limit allows it."""
        self._pace.spend(len(page), sum(map(len, page)))
        return Batch([id_of(raw) for raw in page], page)

    def _paced_size(self) -> BatchSize:
        """Page size: one batch, or about one second's worth at the rate limit."""
        return BatchSize(self._pace.records(self._size.records), self._pace.nbytes(self._size.nbytes))
