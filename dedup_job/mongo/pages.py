"""Read a range of ids page by page in `_id` order, in short bounded finds, with prefetch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from bson import encode
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from dedup_job.errors import ConfigError
from dedup_job.mongo.connect_and_retry import is_refused, named_refusals
from dedup_job.mongo.ids import IdSet, has_nan, id_of, plain_nans, portions, selector
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.records import BACKFILL, OUTSIDE_SOURCE, RAW, RawIds
from dedup_job.signals import SHUTDOWN
from dedup_job.start_threads_and_count_processors import Threads

# The earliest time that an ObjectId can hold.
BEGINNING_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class DecidedIds(Protocol):
    """The ids that a plan decided, and the mode of its run."""

    @property
    def mode(self) -> str:
        """Mode of the plan."""
        ...

    @property
    def ids(self) -> RawIds:
        """The ids, in the order of decision."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """A range of raw ids, in the server's order, without the ids that are decided.

    Attributes:
        start: First id; None for the smallest.
        after: Id after which the range begins, instead of `start`; None for no such id.
        decided: Ids to leave out.
        before: Id before which the range ends; None for no end.
    """

    start: bytes | None = None
    after: bytes | None = None
    decided: IdSet = IdSet()
    before: bytes | None = None

    def without(self, plans: Iterable[DecidedIds]) -> Window:
        """Return the same range without the ids that these plans decided."""
        return replace(self, decided=IdSet.of(map(self._ids_inside, plans)))

    def _ids_inside(self, decided: DecidedIds) -> RawIds:
        """Return the ids of a plan that may be in the range."""
        ids = decided.ids
        if decided.mode in OUTSIDE_SOURCE:
            return ids.between(0, 0)
        if self.after is not None:
            return ids.between(0, 0) if decided.mode == BACKFILL else ids
        if self.start is not None:
            # Only a window of ObjectIds has a start, and their bytes sort as the server sorts them.
            return ids.not_before(self.start)
        return ids


def rest_of_backfill(watermark: bytes | None) -> Window:
    """Return the window of ids after the watermark; a backfill has scanned all ids before."""
    return Window(after=watermark)


def since(covered: datetime | None, lookback: timedelta, only_object_ids: bool) -> Window:
    """Return the window of ids that may be new since the last scan.

    ObjectIds begin with a time, but clients make them: clocks differ and transactions commit late, so an id
    may arrive after larger ids that a run has already seen.

    Args:
        covered: All ids with an earlier time are decided; None if there was no scan.
        lookback: The longest delay of an ObjectId that the window allows for.
        only_object_ids: Whether all ids are ObjectIds. Other ids have no time, so the window is everything.
    """
    if covered is None or not only_object_ids or lookback >= covered - BEGINNING_OF_TIME:
        return Window()
    return Window(start=encode({"_id": ObjectId.from_datetime(covered - lookback)}))


# Asking for a field that no index has makes the server read the record itself.
NOT_IN_INDEX = {"_id": 1, "-": 1}


def stored_ids(collection: RetryingCollection, ids: Sequence[bytes]) -> list[bytes]:
    """Return the ids of records, given the ids in the index; the order stays the same.

    The index stores every NaN as the same NaN; the records keep its sign and bits.
    """
    stored: dict[bytes, bytes] = {}
    for some in portions(filter(has_nan, ids)):
        found = collection.raw_bson().find(selector(some), NOT_IN_INDEX)
        stored |= {plain_nans(raw_id): raw_id for raw_id in (id_of(bytes(one.raw)) for one in found)}
    return [stored.get(raw_id, raw_id) for raw_id in ids] if stored else list(ids)


T = TypeVar("T")


def prefetch(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches in order, reading one batch ahead; an error is raised when its batch is due."""
    source = iter(batches)
    reader = Threads(1)
    try:
        coming = reader.submit(next, source, None)
        while (batch := SHUTDOWN.result(coming)) is not None:
            coming = reader.submit(next, source, None)
            yield batch
    finally:
        # Without waiting for the server.
        reader.stop()


# Characters of the server's message in an error.
LONGEST = 300


def check_condition(source: RetryingCollection, condition: Mapping[str, Any]) -> None:
    """Raise ConfigError, with the server's reason, if the server refuses this filter; reads no record."""
    if not condition:
        return
    find = {"find": source.name, "filter": condition, "sort": {"_id": 1}, "hint": {"_id": 1}, "limit": 1}
    explain = {"explain": find, "verbosity": "queryPlanner"}

    def explain_filter() -> None:
        try:
            source.database.command(explain)
        except OperationFailure as error:
            if not is_refused(error):
                raise
            # The message cannot hold parts of a record, as none was read.
            message = " ".join(str((error.details or {}).get("errmsg", "")).split())
            raise ConfigError(f"[source] filter: the server refuses it: {message[:LONGEST]}") from error

    source.attempt(explain_filter)


def check_fields_exist(collection: RetryingCollection, setting: str, paths: Sequence[str]) -> None:
    """Raise ConfigError, with the name of the setting, if no record has one of its fields.

    Usually one of the first records has it; only where none has it does the server read all of them.
    """
    # A query cannot name a field that begins with $, which it takes for an operator.
    for path in (path for path in paths if not path.startswith("$")):
        has_field = {path: {"$exists": True}}
        if collection.find_one({}, {"_id": 1}) and not collection.find_one(has_field, {"_id": 1}):
            raise ConfigError(f"{setting}: no record of {collection.full_name} has a field {path}")


def named_filter_errors(condition: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Turn the server's refusal to apply a filter to records into a ConfigError.

    The message only has the error's name: the server's message may hold parts of a record.
    """
    if not condition:
        return nullcontext()
    return named_refusals(ConfigError, "[source] filter: the server cannot apply it to the records")


MIN_KEY = encode({"_id": MinKey()})
MAX_KEY = encode({"_id": MaxKey()})
IDS_A_PAGE = 5_000
# With this projection, the server only reads the index.
IDS: Mapping[str, Any] = {"_id": 1}
WHOLE: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The most records in a page or batch; it also ends with the record that reaches `nbytes`."""

    records: int = 1_000
    nbytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Pages:
    """Reads a collection page by page, in the order of ids.

    Attributes:
        collection: The collection.
        size: Returns the size of the next page.
        condition: A filter; other records are left out.
        read: Called with each raw record that the server returns; returns the record to hand out.
        after: A time of the replica set: members answer when they have all records of that time. None for
            no such time.
    """

    collection: RetryingCollection
    size: Callable[[], BatchSize] = lambda: BatchSize(IDS_A_PAGE, 8 << 20)
    condition: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[bytes], bytes] = bytes
    after: Timestamp | None = None

    def records_after(self, after: bytes | None) -> Iterator[list[bytes]]:
        """Yield pages of raw records after this id; None for all records."""
        return self.within(Window(after=after), WHOLE)

    def ids_after(self, after: bytes | None) -> Iterator[list[bytes]]:
        """Yield pages of raw ids after this id; None for all ids."""
        return self.within(Window(after=after), IDS)

    def within(self, ids: Window, fields: Mapping[str, Any]) -> Iterator[list[bytes]]:
        """Yield the pages of a window, decided ids included.

        Each page is a new find that is read to its end at once, so no cursor has to stay open.
        """
        while page := self.page(ids, fields):
            yield page
            ids = replace(ids, after=id_of(page[-1]))
        # An index scan with `min` ends before MaxKey, which sorts after everything.
        if ids.after != MAX_KEY and ids.before is None and (page := self._find_max_key(fields)):
            yield page

    def page(self, ids: Window, fields: Mapping[str, Any], most: int = IDS_A_PAGE) -> list[bytes]:
        """Return the first page of a window, decided ids included.

        Args:
            ids: The window.
            fields: The projection; `WHOLE` for whole records.
            most: The most documents.
        """
        size, start = self.size(), ids.after or ids.start
        if start == MAX_KEY:
            # A range with `min` ends before MaxKey.
            return [] if ids.after else self._find_max_key(fields)
        if ids.before is not None and ids.before in (start, MIN_KEY):
            # The server refuses an empty range.
            return []
        limit = min(most, IDS_A_PAGE if fields else size.records)
        command: dict[str, Any] = {
            "find": self.collection.name,
            "filter": self.condition,
            "sort": {"_id": 1},
            "hint": {"_id": 1},
            "limit": limit + 1,
            "batchSize": limit + 1,
            "projection": fields,
        }
        if start is not None:
            # `min` compares ids of all types; `$gt` only finds ids of the same type.
            command["min"] = RawBSONDocument(start)
        if ids.before is not None:
            command["max"] = RawBSONDocument(ids.before)
        page = self._run_find(command, size.nbytes)
        if fields is IDS:
            page = stored_ids(self.collection, page)
        if page and id_of(page[0]) == ids.after:
            del page[0]
        return page[:limit]

    def _find_max_key(self, fields: Mapping[str, Any]) -> list[bytes]:
        condition = {"$and": [self.condition, {"_id": MaxKey()}]}
        return self._run_find({"find": self.collection.name, "filter": condition, "projection": fields}, 1)

    def _run_find(self, command: Mapping[str, Any], most: int) -> list[bytes]:
        """Run a find to its end, or until it has returned `most` bytes and at least two documents."""
        # The driver decodes the first answer by the command's options, later ones by the database's.
        database = self.collection.database.with_options(codec_options=RAW)
        concern = {"level": "majority"} | ({"afterClusterTime": self.after} if self.after else {})
        command = {**command, "readConcern": concern}

        def read_page() -> list[bytes]:
            page: list[bytes] = []
            nbytes = 0
            with (
                named_filter_errors(self.condition),
                database.cursor_command(
                    dict(command),
                    codec_options=RAW,
                    read_preference=self.collection.unretried.read_preference,
                ) as cursor,
            ):
                for document in cursor:
                    page.append(self.read(document.raw))
                    nbytes += len(page[-1])
                    if nbytes >= most and len(page) > 1:
                        break
            return page

        return self.collection.attempt(read_page)
