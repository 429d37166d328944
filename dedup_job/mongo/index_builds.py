"""Building indexes, as far as a majority of the members has them: one that is down holds nothing up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from bson.son import SON
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from dedup_job.mongo.client import Patience, is_refused, name_of_refusal, named_errors
from dedup_job.mongo.server import STANDALONE, kind_of_deployment

REASONS: Mapping[int | None, str] = {
    11000: "unique, and several records have the same value",
    85: "there is another index on the same fields",
    86: "there is another index of this name",
    171: "a record has lists in several of its fields",
}

Index: TypeAlias = Mapping[str, Any]


class IndexRefused(Exception):
    """The server does not build an index; its own sentence may hold what is in a record."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.reason = reason


def build_indexes(
    collection: Collection[Any], what: str, indexes: Iterable[Index], patience: Patience
) -> None:
    """Build indexes in one pass over the records; those that are there already are no work.

    what  the collection's name in messages

    Raises IndexRefused when the server will not build one of them, and then builds none.

    A replica set would wait without end for all members that vote, also for one that is down.  It is told to
    wait for a majority, as with every write of the job; the others follow when they can.
    """
    command: SON[str, Any] = SON(createIndexes=collection.name, indexes=list(indexes))
    database = collection.database
    with named_errors(what):
        hello = patience(lambda: database.client.admin.command("hello"))
        if kind_of_deployment(hello) != STANDALONE:  # which takes no such option
            command["commitQuorum"] = "majority"
        try:
            patience(lambda: database.command(command))
        except OperationFailure as error:
            if not is_refused(error):
                raise
            other = f"the server refuses it ({name_of_refusal(error)})"
            raise IndexRefused(what, REASONS.get(error.code, other)) from None
