"""A client that limits the time of each read with `maxTimeMS`.

`maxTimeMS` counts the time that the server works on a cursor, over all batches of the cursor, and not the
time that this process takes between batches.  The job reads a collection in pages, each with a find of its
own (`Pages`, `Lookup`), so the limit applies to a page, not to a run.  Only `list` with an order keeps a
cursor open for longer; the server has sorted all rows before it returns the first batch.

The driver's own `timeoutMS` is no substitute: it limits writes too, and the driver retries a failed read
without a pause until the timeout, while `RetryPolicy` backs off.
"""

from __future__ import annotations

from typing import Any, cast

from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.command_cursor import CommandCursor
from pymongo.cursor import Cursor
from pymongo.database import Database


class TimeoutClient(MongoClient[Any]):
    """A client whose databases and collections send a time limit with each read.

    Attributes:
        read_milliseconds: The time limit of a read.
    """

    def __init__(self, uri: str, read_milliseconds: int, **options: Any) -> None:
        self.read_milliseconds = read_milliseconds
        super().__init__(uri, **options)

    def __getitem__(self, name: str) -> Database[Any]:
        return _LimitedDatabase(self, name)

    def get_database(self, *args: Any, **kwargs: Any) -> Database[Any]:
        """Return a database with a time limit."""
        return _limited_database(super().get_database(*args, **kwargs))


class _LimitedDatabase(Database[Any]):
    @property
    def limit(self) -> int:
        """Time limit of a read, in milliseconds."""
        return cast(TimeoutClient, self.client).read_milliseconds

    def __getitem__(self, name: str) -> Collection[Any]:
        return _LimitedCollection(self, name)

    def get_collection(self, *args: Any, **kwargs: Any) -> Collection[Any]:
        return _limited_collection(super().get_collection(*args, **kwargs))

    def with_options(self, *args: Any, **kwargs: Any) -> Database[Any]:
        return _limited_database(super().with_options(*args, **kwargs))

    def cursor_command(self, *args: Any, **kwargs: Any) -> CommandCursor[Any]:
        return super().cursor_command(*args, **{"maxTimeMS": self.limit, **kwargs})

    def list_collections(self, *args: Any, **kwargs: Any) -> CommandCursor[Any]:
        return super().list_collections(*args, **{"maxTimeMS": self.limit, **kwargs})

    def list_collection_names(self, *args: Any, **kwargs: Any) -> list[str]:
        return super().list_collection_names(*args, **{"maxTimeMS": self.limit, **kwargs})


class _LimitedCollection(Collection[Any]):
    @property
    def limit(self) -> int:
        """Time limit of a read, in milliseconds."""
        return cast(_LimitedDatabase, self.database).limit

    def with_options(self, *args: Any, **kwargs: Any) -> Collection[Any]:
        return _limited_collection(super().with_options(*args, **kwargs))

    def find(self, *args: Any, **kwargs: Any) -> Cursor[Any]:
        return super().find(*args, **{"max_time_ms": self.limit, **kwargs})

    def aggregate(self, *args: Any, **kwargs: Any) -> CommandCursor[Any]:
        return super().aggregate(*args, **{"maxTimeMS": self.limit, **kwargs})

    def count_documents(self, *args: Any, **kwargs: Any) -> int:
        return super().count_documents(*args, **{"maxTimeMS": self.limit, **kwargs})

    def estimated_document_count(self, *args: Any, **kwargs: Any) -> int:
        return super().estimated_document_count(*args, **{"maxTimeMS": self.limit, **kwargs})


def _options(made: Database[Any] | Collection[Any]) -> tuple[Any, ...]:
    return made.codec_options, made.read_preference, made.write_concern, made.read_concern


def _limited_database(made: Database[Any]) -> Database[Any]:
    return _LimitedDatabase(made.client, made.name, *_options(made))


def _limited_collection(made: Collection[Any]) -> Collection[Any]:
    return _LimitedCollection(made.database, made.name, False, *_options(made))
