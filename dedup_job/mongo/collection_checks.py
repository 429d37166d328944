"""Check that source and target exist, differ, and can be read or created."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import CollectionInvalid, OperationFailure

from dedup_job.errors import ConfigError
from dedup_job.mongo.client import RetryPolicy, named_errors

EXISTS = 48
LONGEST_NAME = 255  # bytes of a database's and a collection's name with the dot between them
LONGEST_PART = ".dedup.exceptions"
LEDGER = re.compile(r"\.dedup\.\w+$")

About = Mapping[str, Any]


class SourceMissing(ConfigError):
    """There is no such collection."""


def check_source(source: Collection[Any], patience: RetryPolicy) -> None:
    """Raise ConfigError unless the source is a collection that can be read in the order of its ids."""
    _check_name("[source]", source)
    about = _about(source, patience, "the source")
    if about is None:
        with named_errors("the source"):
            names = sorted(source.database.list_collection_names())
        there = ", ".join(names[:8]) or "nothing"
        raise SourceMissing(f"[source] collection: {source.full_name} does not exist; {there} is there")
    kind = "clustered collection" if "clusteredIndex" in about["options"] else about["type"]
    if kind != "collection":
        raise ConfigError(
            f"[source] collection: {source.full_name} is a {kind}, which has no _id index; "
            "name the collection behind it, or copy its records into one"
        )
    if not about.get("idIndex"):
        raise ConfigError(
            f"[source] collection: {source.full_name} has no index on _id, which the job reads it by; "
            "copy its records into a collection that has one"
        )


def check_target(source: Collection[Any], target: Collection[Any], patience: RetryPolicy) -> None:
    """Raise ConfigError when the target is the source, by whatever name, or does not keep every record."""
    _check_name("[target]", target)
    _check_room_for_ledger(target)
    here, there = _about(source, patience, "the source"), _about(target, patience, "the target")
    if not here or not there:
        return
    if here["info"]["uuid"] == there["info"].get("uuid"):
        raise ConfigError(f"[target]: {target.full_name} is the source itself; choose another collection")
    kind = "capped collection" if there["options"].get("capped") else there["type"]
    if kind != "collection":
        raise ConfigError(
            f"[target] collection: {target.full_name} is a {kind}, which does not keep every record; "
            "choose a collection of its own"
        )
    if _collation(here) != _collation(there):
        raise ConfigError(
            f"[target] collection: {target.full_name} has another default collation than the source, so "
            "that one id may be two there; drop it if it is empty (the job makes it anew), or choose another"
        )


def create_alike(source: Collection[Any], target: Collection[Any], patience: RetryPolicy) -> None:
    """Make the target, where there is none yet, with the source's collation.

    The collation says which ids are one: in a target without it, `a` and `A` would be two.
    """
    about = _about(source, patience, "the source")
    collation = _collation(about) if about else None
    if _about(target, patience, "the target") is None:
        options = {"collation": dict(collation)} if collation else {}
        with named_errors("the target"):
            patience(lambda: created(target, **options))


def created(collection: Collection[Any], **options: Any) -> None:
    """Create a collection; an answer that was lost makes this happen twice."""
    try:
        collection.database.create_collection(collection.name, check_exists=False, **options)
    except CollectionInvalid:
        pass
    except OperationFailure as error:
        if error.code != EXISTS:
            raise


def _check_name(section: str, collection: Collection[Any]) -> None:
    if LEDGER.search(collection.name):
        raise ConfigError(
            f"{section} collection: {collection.full_name} belongs to a ledger; name the collection beside it"
        )


def _check_room_for_ledger(target: Collection[Any]) -> None:
    """Raise ConfigError where the server would not take the target's name, or that of a ledger beside it."""
    if target.name.startswith("system."):
        raise ConfigError(
            f"[target] collection: {target.full_name} is a name of the server's own; choose another"
        )
    too_many = len(f"{target.full_name}{LONGEST_PART}".encode()) - LONGEST_NAME
    if too_many > 0:
        raise ConfigError(
            f"[target] collection: the name is too long by {too_many} bytes, as the ledger's collections are "
            f"named after it, as in ...{LONGEST_PART}; choose a shorter one"
        )


def collation_of(collection: Collection[Any], patience: RetryPolicy, what: str) -> str | None:
    """Return the locale of a collection's default collation, "simple" for none; None for no collection."""
    about = _about(collection, patience, what)
    if about is None:
        return None
    return str((_collation(about) or {"locale": "simple"})["locale"])


def _collation(about: About) -> About | None:
    collation: About | None = about["options"].get("collation")
    return collation


def _about(collection: Collection[Any], patience: RetryPolicy, what: str) -> About | None:
    with named_errors(what):
        found = patience(lambda: list(collection.database.list_collections(filter={"name": collection.name})))
    return found[0] if found else None
