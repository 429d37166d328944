"""A collection that retries its commands, and raises errors of this package in place of the driver's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from bson.codec_options import CodecOptions
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_preferences import Nearest, Primary, Secondary, SecondaryPreferred
from pymongo.results import UpdateResult

from dedup_job.mongo.connect_and_retry import RetryPolicy, TooLate, named_errors
from dedup_job.records import RAW

T = TypeVar("T")
ReadMode = Primary | SecondaryPreferred | Secondary | Nearest


def in_time(before: datetime) -> Mapping[str, Any]:
    """Return the condition that the server's clock has not passed this time."""
    return {"$expr": {"$lt": ["$$NOW", before]}}


class RetryingCollection:
    """A collection that retries transient errors and turns lasting ones into errors of this project.

    All methods may be sent twice, as an answer can be lost; so callers only send idempotent commands.  Reads
    return lists, not cursors: a retry must not hand out documents twice.

    Attributes:
        unretried: The driver's collection, whose commands are sent once and raise the driver's errors.
        what: The name in messages, such as "the source".
        retry: How long commands are retried.
    """

    def __init__(self, collection: Collection[Any], what: str, retry: RetryPolicy) -> None:
        self.unretried = collection
        self.what = what
        self.retry = retry

    def attempt(self, work: Callable[[], T]) -> T:
        """Do idempotent work that uses `unretried`, and return its result."""
        with named_errors(self.what):
            return self.retry(work)

    def write_in_time(
        self, deadline: Callable[[], datetime], write: Callable[[Collection[Any], Mapping[str, Any]], T]
    ) -> T:
        """Send a write that has no effect behind a deadline, again if it came too late; return its result.

        It must be idempotent.

        Args:
            deadline: Returns the time of the server until which the write is allowed; raises if it is not.
            write: Sends the write, whose filter includes the given one.
        """

        def send() -> T:
            before = deadline()
            result = write(self.unretried, in_time(before))
            # The process or the server may have been paused before it.
            if self.server_time() >= before:
                raise TooLate
            return result

        return self.attempt(send)

    def raw_bson(self) -> RetryingCollection:
        """Return the same collection, whose documents are not decoded."""
        return RetryingCollection(self.unretried.with_options(codec_options=RAW), self.what, self.retry)

    def read_from(self, preference: ReadMode) -> RetryingCollection:
        """Return the same collection, which is read from the members that a read preference selects."""
        return RetryingCollection(
            self.unretried.with_options(read_preference=preference), self.what, self.retry
        )

    @property
    def name(self) -> str:
        """Name of the collection, without the database."""
        return self.unretried.name

    @property
    def full_name(self) -> str:
        """Name of the collection, as `database.collection`."""
        return self.unretried.full_name

    @property
    def database(self) -> Database[Any]:
        """The database of the collection, unretried."""
        return self.unretried.database

    @property
    def client(self) -> MongoClient[Any]:
        """The client of the collection, unretried."""
        return self.unretried.database.client

    def find(self, *args: Any, **options: Any) -> list[Any]:
        """Return all documents that match."""
        return self.attempt(lambda: list(self.unretried.find(*args, **options)))

    def find_one(self, *args: Any, **options: Any) -> Any:
        """Return the first document that matches, or None."""
        return self.attempt(lambda: self.unretried.find_one(*args, **options))

    def aggregate(self, pipeline: list[Mapping[str, Any]]) -> list[Any]:
        """Return all documents that a pipeline yields."""
        return self.attempt(lambda: list(self.unretried.aggregate(pipeline)))

    def count_documents(self, *args: Any, **options: Any) -> int:
        """Return the number of documents that match."""
        return self.attempt(lambda: self.unretried.count_documents(*args, **options))

    def update_one(self, *args: Any, **options: Any) -> UpdateResult:
        """Update the first document that matches."""
        return self.attempt(lambda: self.unretried.update_one(*args, **options))

    def update_many(self, *args: Any, **options: Any) -> UpdateResult:
        """Update all documents that match."""
        return self.attempt(lambda: self.unretried.update_many(*args, **options))

    def replace_one(self, *args: Any, **options: Any) -> UpdateResult:
        """Replace the first document that matches."""
        return self.attempt(lambda: self.unretried.replace_one(*args, **options))

    def find_one_and_update(self, *args: Any, **options: Any) -> Any:
        """Update the first document that matches, and return it."""
        return self.attempt(lambda: self.unretried.find_one_and_update(*args, **options))

    def delete_one(self, condition: Mapping[str, Any]) -> None:
        """Delete the first document that matches."""
        self.attempt(lambda: self.unretried.delete_one(condition))

    def delete_many(self, condition: Mapping[str, Any]) -> None:
        """Delete all documents that match."""
        self.attempt(lambda: self.unretried.delete_many(condition))

    def list_collections(self, condition: Mapping[str, Any]) -> list[Any]:
        """Return the server's descriptions of collections in the same database."""
        # With plain options, so that a UUID is returned as bytes, whatever the connection string says.
        plain: CodecOptions[Any] = CodecOptions()
        database = self.unretried.database.with_options(codec_options=plain)
        return self.attempt(lambda: list(database.list_collections(filter=condition)))

    def hello(self) -> Any:
        """Return the server's description of itself and of its replica set."""
        return self.attempt(lambda: self.client.admin.command("hello"))

    def server_time(self) -> datetime:
        """Return the server's clock, in UTC."""
        time: datetime = self.hello()["localTime"]
        return time.replace(tzinfo=UTC)
