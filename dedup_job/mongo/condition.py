"""The condition: the filter of the source, and what the server says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from dedup_job.errors import ConfigError
from dedup_job.mongo.client import Patience, is_refused, name_of_refusal, named_errors

LONGEST = 300  # characters of what a server says


def check_condition(source: Collection[Any], condition: Mapping[str, Any], patience: Patience) -> None:
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
