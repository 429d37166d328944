"""Read a collection page by page in `_id` order, in short bounded finds, with prefetch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from bson import encode
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from dedup_job.errors import ConfigError
from dedup_job.mongo.client import RetryPolicy, is_refused, name_of_refusal, named_errors
from dedup_job.mongo.ids import has_nan, id_of, plain_nans, portions, selector
from dedup_job.records import RAW
from dedup_job.signals import SHUTDOWN
from dedup_job.threads import Threads

NOT_OF_THE_INDEX = {"_id": 1, "-": 1}  # a field that is asked for makes the server look at the record


def stored_ids(
    collection: Collection[Any], what: str, patience: RetryPolicy, ids: Sequence[bytes]
) -> list[bytes]:
    """Return ids that came from the index as the records have them, in the same order."""
    records = collection.with_options(codec_options=RAW)
    stored: dict[bytes, bytes] = {}
    for some in portions(filter(has_nan, ids)):
        condition = selector(some)
        with named_errors(what):
            found = patience(lambda: list(records.find(condition, NOT_OF_THE_INDEX)))  # noqa: B023
        stored |= {plain_nans(raw_id): raw_id for raw_id in (id_of(bytes(one.raw)) for one in found)}
    return [stored.get(raw_id, raw_id) for raw_id in ids] if stored else list(ids)


T = TypeVar("T")


def prefetch(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches in order, one of them read in advance; an error comes where its batch would have."""
    source = iter(batches)
    reader = Threads(1)
    try:
        coming = reader.submit(next, source, None)
        while (batch := SHUTDOWN.result(coming)) is not None:
            coming = reader.submit(next, source, None)
            yield batch
    finally:
        reader.stop()  # a run that stops does not wait for the server


LONGEST = 300  # characters of what a server says


def check_condition(source: Collection[Any], condition: Mapping[str, Any], patience: RetryPolicy) -> None:
    """Raise ConfigError with the server's reason when it would not find by this filter; nothing is read."""
    if not condition:
        return
    find = {"find": source.name, "filter": condition, "sort": {"_id": 1}, "hint": {"_id": 1}, "limit": 1}
    asked = {"explain": find, "verbosity": "queryPlanner"}
    with named_errors("the source"):
        try:
            patience(lambda: source.database.command(asked))
        except OperationFailure as error:
            if not is_refused(error):
                raise
            told = " ".join(str((error.details or {}).get("errmsg", "")).split())  # no record was read yet
            raise ConfigError(f"[source] filter: the server refuses it: {told[:LONGEST]}") from error


@contextmanager
def applied(condition: Mapping[str, Any]) -> Iterator[None]:
    """Turn what the server refuses while it looks at records into ConfigError, where there is a filter.

    Only its name is told: the server's sentence may hold what is in a record.
    """
    try:
        yield
    except OperationFailure as error:
        if not condition or not is_refused(error):
            raise
        name = name_of_refusal(error)
        raise ConfigError(f"[source] filter: the server cannot apply it to the records ({name})") from error


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
class IdRange:
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
    patience: RetryPolicy = RetryPolicy()
    size: Callable[[], BatchSize] = lambda: BatchSize(IDS_A_PAGE, 8 << 20)
    condition: Mapping[str, Any] = field(default_factory=dict)

    def records_after(self, after: bytes | None) -> Iterator[list[bytes]]:
        """Yield pages of raw records behind this id; None for all."""
        return self.within(IdRange(after=after), WHOLE)

    def ids_after(self, after: bytes | None, before: bytes | None = None) -> Iterator[list[bytes]]:
        """Yield pages of raw ids behind one id and before another."""
        return self.within(IdRange(after=after, before=before), IDS)

    def within(self, ids: IdRange, fields: Mapping[str, Any]) -> Iterator[list[bytes]]:
        """Yield pages of a range: each a fresh find, drained before anything is done with it."""
        if ids.before == MIN_KEY:
            return  # the server takes an empty range for a mistake
        while ids.after != MAX_KEY and (page := self.page(ids, fields)):
            yield page
            ids = replace(ids, after=id_of(page[-1]))
        # The upper end of an index scan with `min` excludes MaxKey, which sorts behind everything.
        if ids.after != MAX_KEY and ids.before is None and (page := self._of_max_key(fields)):
            yield page

    def page(self, ids: IdRange, fields: Mapping[str, Any], most: int = IDS_A_PAGE) -> list[bytes]:
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
