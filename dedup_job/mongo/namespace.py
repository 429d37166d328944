"""Where a collection is: does it exist, is it a collection, and is it the same as another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.collection import Collection

from dedup_job.errors import ConfigError
from dedup_job.mongo.client import Patience, named_errors


def check_source(source: Collection[Any], patience: Patience) -> None:
    """Raise ConfigError unless the source is an existing collection."""
    about = _about(source, patience, "the source")
    if about is None:
        with named_errors("the source"):
            names = sorted(source.database.list_collection_names())
        there = ", ".join(names[:8]) or "nothing"
        raise ConfigError(f"[source] collection: {source.full_name} does not exist; {there} is there")
    if about["type"] != "collection":
        raise ConfigError(
            f"[source] collection: {source.full_name} is a {about['type']}, which has no _id index"
        )


def check_apart(source: Collection[Any], target: Collection[Any], patience: Patience) -> None:
    """Raise ConfigError when source and target are one collection, by whatever name: its UUID tells."""
    one, other = _about(source, patience, "the source"), _about(target, patience, "the target")
    if one and other and one["info"]["uuid"] == other["info"]["uuid"]:
        raise ConfigError(f"[target]: {target.full_name} is the source itself; choose another collection")


def _about(collection: Collection[Any], patience: Patience, what: str) -> Mapping[str, Any] | None:
    with named_errors(what):
        found = patience(lambda: list(collection.database.list_collections(filter={"name": collection.name})))
    return found[0] if found else None
