"""A client that sends a comment with each command, and a time limit with each read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.command_cursor import CommandCursor
from pymongo.cursor import Cursor
from pymongo.database import Database

Method = TypeVar("Method", bound=Callable[..., Any])


class JobClient(MongoClient[Any]):
    """A client whose databases and collections send a comment with each command, and a limit with each read.

    Attributes:
        read_milliseconds: The time limit of a read.
        comment: Says who asks.  Administrators see it in `currentOp`, the profiler and the server's log.
    """

    def __init__(self, uri: str, read_milliseconds: int, comment: str, **options: Any) -> None:
        self.read_milliseconds = read_milliseconds
        self.comment = comment
        super().__init__(uri, **options)

    def __enter__(self) -> Self:
        return self

    def __getitem__(self, name: str) -> Database[Any]:
        return _JobDatabase(self, name)

    def get_database(self, *args: Any, **kwargs: Any) -> Database[Any]:
        """Return a database that sends comments and limits."""
        return _job_database(super().get_database(*args, **kwargs))


def _client(sender: Database[Any] | Collection[Any]) -> JobClient:
    database = sender.database if isinstance(sender, Collection) else sender
    return cast(JobClient, database.client)


def _comment(sender: Database[Any] | Collection[Any]) -> dict[str, Any]:
    """Return the comment of the next command, as an option."""
    return {"comment": _client(sender).comment}


def _limits(sender: Database[Any] | Collection[Any]) -> dict[str, Any]:
    """Return the comment and the time limit of the next read, as options."""
    return {"maxTimeMS": _client(sender).read_milliseconds, **_comment(sender)}


def _sending(options: Callable[[Any], dict[str, Any]], method: Method) -> Method:
    """Return a method of the driver that sends these options of its object, too."""

    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **{**options(self), **kwargs})

    return cast(Method, send)


class _JobDatabase(Database[Any]):
    def __getitem__(self, name: str) -> Collection[Any]:
        return _JobCollection(self, name)

    def get_collection(self, *args: Any, **kwargs: Any) -> Collection[Any]:
        return _job_collection(super().get_collection(*args, **kwargs))

    def with_options(self, *args: Any, **kwargs: Any) -> Database[Any]:
        return _job_database(super().with_options(*args, **kwargs))

    def cursor_command(self, command: Any, *args: Any, **kwargs: Any) -> CommandCursor[Any]:
        # The driver would send an option `comment` only with later pages.
        return super().cursor_command({**command, **_limits(self)}, *args, **{**_comment(self), **kwargs})

    command = _sending(_comment, Database.command)
    create_collection = _sending(_comment, Database.create_collection)
    list_collections = _sending(_limits, Database.list_collections)
    list_collection_names = _sending(_limits, Database.list_collection_names)


class _JobCollection(Collection[Any]):
    def with_options(self, *args: Any, **kwargs: Any) -> Collection[Any]:
        return _job_collection(super().with_options(*args, **kwargs))

    def find(self, *args: Any, **kwargs: Any) -> Cursor[Any]:
        milliseconds = _client(self).read_milliseconds
        return super().find(*args, **{"max_time_ms": milliseconds, **_comment(self), **kwargs})

    aggregate = _sending(_limits, Collection.aggregate)
    count_documents = _sending(_limits, Collection.count_documents)
    estimated_document_count = _sending(_limits, Collection.estimated_document_count)
    list_indexes = _sending(_comment, Collection.list_indexes)
    insert_many = _sending(_comment, Collection.insert_many)
    update_one = _sending(_comment, Collection.update_one)
    update_many = _sending(_comment, Collection.update_many)
    replace_one = _sending(_comment, Collection.replace_one)
    find_one_and_update = _sending(_comment, Collection.find_one_and_update)
    delete_one = _sending(_comment, Collection.delete_one)
    delete_many = _sending(_comment, Collection.delete_many)
    bulk_write = _sending(_comment, Collection.bulk_write)


def _options(made: Database[Any] | Collection[Any]) -> tuple[Any, ...]:
    return made.codec_options, made.read_preference, made.write_concern, made.read_concern


def _job_database(made: Database[Any]) -> Database[Any]:
    return _JobDatabase(made.client, made.name, *_options(made))


def _job_collection(made: Collection[Any]) -> Collection[Any]:
    return _JobCollection(made.database, made.name, False, *_options(made))
