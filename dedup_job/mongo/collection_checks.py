"""Check source, target and ledger collections: they exist, differ, and were not replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from shlex import quote
from typing import Any, TypeAlias

from pymongo.collection import Collection
from pymongo.errors import CollectionInvalid, OperationFailure

from dedup_job.errors import ConfigError, NotPermitted, StateError, UsageError
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.pasteable_command import command_line

EXISTS = 48
# Bytes of `database.collection`, by the server's limit.
LONGEST_NAME = 255
LONGEST_PART = ".dedup.exceptions"
# Collections that a message names.
MOST_NAMES = 8
LEDGER = re.compile(r"\.dedup\.\w+$")
VALID_NAME = re.compile(r"[^.$\x00]+(\.[^.$\x00]+)*")

About = Mapping[str, Any]


class SourceMissing(ConfigError):
    """The source does not exist."""


def check_source(source: RetryingCollection, section: str = "[source]") -> None:
    """Raise ConfigError if a collection cannot be read in the order of its ids."""
    _check_name(section, source)
    about = _describe(source)
    if about is None:
        raise SourceMissing(
            f"{section} collection: {source.full_name} does not exist; {_propose_collection(source)}"
        )
    kind = "clustered collection" if "clusteredIndex" in about["options"] else about["type"]
    if kind != "collection":
        advice = "name the collection behind it, or copy" if kind == "view" else "copy"
        raise ConfigError(
            f"{section} collection: {source.full_name} is a {kind}, which has no _id index; "
            f"{advice} its records into an ordinary collection"
        )
    if not about.get("idIndex"):
        raise ConfigError(
            f"{section} collection: {source.full_name} has no index on _id, which the job reads it by; "
            "copy its records into a collection that has one"
        )


def check_secondaries(source: RetryingCollection) -> None:
    """Raise ConfigError if the source cannot be read from secondaries."""
    if source.hello().get("msg") == "isdbgrid":
        raise ConfigError(
            "[source] read_preference: behind a router, a secondary may lack records that move "
            "between shards at the time; remove the setting"
        )


def _propose_collection(missing: RetryingCollection) -> str:
    """Return a hint at the collections that may be meant: a similar name, or the first names."""
    found = [about["name"] for about in missing.list_collections({})]
    if similar := get_close_matches(missing.name, [name for name in found if not LEDGER.search(name)], 1):
        return f"did you mean {similar[0]}?"
    names = possible_sources(found)
    if not names:
        return f"the database {missing.database.name} has no collections: is its name right?"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"the database has: {', '.join(names[:MOST_NAMES])}{more}"


def possible_sources(names: Iterable[str]) -> list[str]:
    """Return the names of collections that are neither ledgers nor the targets of ledgers, sorted."""
    no_ledgers = {name for name in names if not LEDGER.search(name)}
    return sorted(no_ledgers - {LEDGER.sub("", name) for name in names if LEDGER.search(name)})


def check_target(source: RetryingCollection, target: RetryingCollection) -> None:
    """Raise ConfigError if the target is the source, under any name, or does not keep every record."""
    check_ledger_place(target)
    about_source, about_target = _describe(source), _describe(target)
    if not about_target and (fault := _find_doubled_name(target)):
        raise ConfigError(f"[target] collection: {fault}")
    if not about_source or not about_target:
        return
    if hex_uuid(about_source) == hex_uuid(about_target):
        raise ConfigError(f"[target]: {target.full_name} is the source itself; choose another collection")
    # A clustered target keeps every record.
    kind = "capped collection" if about_target["options"].get("capped") else about_target["type"]
    if kind != "collection":
        raise ConfigError(
            f"[target] collection: {target.full_name} is a {kind}, which does not keep every record; "
            "choose a collection of its own"
        )
    if _collation(about_source) != _collation(about_target):
        raise ConfigError(
            f"[target] collection: {target.full_name} has another default collation than the source, so "
            "ids that are equal in one may differ in the other; choose another, or drop it if it is empty "
            "(the job creates it again)"
        )


def check_different(reference: RetryingCollection, others: Mapping[str, RetryingCollection]) -> None:
    """Raise ConfigError if a reference is one of other collections, given by name, under any name."""
    uuid = uuid_of(reference)
    for name, other in others.items():
        if uuid and uuid == uuid_of(other):
            raise ConfigError(
                f"[[reference]] collection: {reference.full_name} is {name} itself; name another collection"
            )


def check_ledger_place(beside: RetryingCollection) -> None:
    """Raise ConfigError if no ledger can be stored beside a collection, as its names would be refused."""
    _check_name("[target]", beside)
    if beside.name.startswith("system."):
        raise ConfigError(
            f"[target] collection: {beside.full_name} is a name that the server reserves; choose another"
        )
    too_many = len(f"{beside.full_name}{LONGEST_PART}".encode()) - LONGEST_NAME
    if too_many > 0:
        raise ConfigError(
            f"[target] collection: the name is too long by {too_many} bytes, as the ledger's collections are "
            f"named after it, as in ...{LONGEST_PART}; choose a shorter one"
        )


def check_collection_name(database: str, name: str, option: str) -> None:
    """Raise UsageError if the server would refuse a name, or keeps it and ledgers for themselves."""
    is_valid = VALID_NAME.fullmatch(name) and not name.startswith("system.") and not LEDGER.search(name)
    if not is_valid or len(f"{database}.{name}".encode()) > LONGEST_NAME:
        raise UsageError(f"{option} {quote(name)}: expected the name of a collection, such as old_pages")


def check_new_name(collection: RetryingCollection, option: str) -> None:
    """Raise UsageError if the name for a new collection repeats the name of its database."""
    if fault := _find_doubled_name(collection):
        raise UsageError(f"{option}: {fault}")


def _find_doubled_name(collection: RetryingCollection) -> str | None:
    """Return the fault in a name that repeats the name of its database, as DATABASE.COLLECTION, or None."""
    database, name = collection.database.name, collection.name
    if not name.startswith(f"{database}."):
        return None
    return (
        f"expected a collection of the database {database}; write "
        f"{name.removeprefix(f'{database}.')} instead of {name}"
    )


def check_archive(
    source: RetryingCollection, target: RetryingCollection, archive: RetryingCollection
) -> None:
    """Check that records of the source can be moved to a collection beside it, and back.

    Args:
        source: The source.
        target: The target; without copies, the collection beside which the ledger is stored.
        archive: The collection, which need not exist.

    Raises:
        ConfigError: If they cannot.
        UsageError: If the collection does not exist, and its name repeats the name of the database.
    """
    name = f"--archive: {archive.full_name}"
    about = _describe(archive)
    if about is None:
        check_new_name(archive, "--archive")
    uuid = hex_uuid(about)
    for what, other in (("source", source), ("target", target)):
        if archive.full_name == other.full_name or (uuid and uuid == uuid_of(other)):
            raise ConfigError(f"{name} is the {what} itself; choose another collection")
    if about is not None and (kind := _kind(about)) != "collection":
        raise ConfigError(f"{name} is a {kind}, which does not keep records as they are; choose another")
    about_source = _describe(source)
    if about_source is not None and (kind := _kind(about_source)) != "collection":
        raise ConfigError(
            f"{name}: the source is a {kind}, into which no record could be brought back without loss"
        )
    if about is not None and (index := expiring_index(archive)):
        raise ConfigError(
            f"{name} has the index {index}, by which the server deletes records after a time, so that swept "
            "records could not be restored; drop the index, or choose another collection"
        )
    for what, described in (("source", about_source), ("archive", about)):
        if described and _collation(described):
            raise ConfigError(
                f"{name}: the {what} has a default collation, under which the server takes different texts "
                "for equal, so it could remove a record that has just changed; `mark` works with it"
            )


def expiring_index(collection: RetryingCollection) -> str | None:
    """Return the name of an index that makes the server delete records; None if the user may not see it."""
    with suppress(NotPermitted):
        indexes = collection.attempt(lambda: list(collection.unretried.list_indexes()))
        return next((str(index["name"]) for index in indexes if "expireAfterSeconds" in index), None)
    return None


def create_alike(source: RetryingCollection, target: RetryingCollection) -> None:
    """Create the target, if it does not exist, with the source's collation.

    The collation says which ids are equal: without it, `a` and `A` would be two ids in the target.
    """
    about = _describe(source)
    collation = _collation(about) if about else None
    if _describe(target) is None:
        options = {"collation": dict(collation)} if collation else {}
        target.attempt(lambda: create_collection(target.unretried, **options))


def create_collection(collection: Collection[Any], **options: Any) -> None:
    """Create a collection, unless it exists."""
    try:
        collection.database.create_collection(collection.name, check_exists=False, **options)
    except CollectionInvalid:
        pass
    except OperationFailure as error:
        if error.code != EXISTS:
            raise


def _check_name(section: str, collection: RetryingCollection) -> None:
    if LEDGER.search(collection.name):
        raise ConfigError(
            f"{section} collection: {collection.full_name} belongs to a ledger; name the collection beside it"
        )


def collation_of(collection: RetryingCollection) -> str | None:
    """Return the locale of a collection's collation, or "simple"; None if the collection does not exist."""
    about = _describe(collection)
    if about is None:
        return None
    return str((_collation(about) or {"locale": "simple"})["locale"])


def is_capped(collection: RetryingCollection) -> bool:
    """Return whether a collection is capped: each record that it takes may push another one out."""
    about = _describe(collection)
    return about is not None and bool(about["options"].get("capped"))


def _kind(about: About) -> str:
    """Return "collection", or the kind of a collection that is no plain one."""
    if "clusteredIndex" in about["options"]:
        return "clustered collection"
    return "capped collection" if about["options"].get("capped") else str(about["type"])


def uuid_of(collection: RetryingCollection) -> str:
    """Return the UUID of a collection; empty for a view, or if it does not exist."""
    return hex_uuid(_describe(collection))


def hex_uuid(about: About | None) -> str:
    """Return the UUID in the server's description of a collection; empty for a view, or without any."""
    return bytes(about["info"].get("uuid", b"")).hex() if about else ""


def differing_options(first: RetryingCollection, second: RetryingCollection) -> list[str]:
    """Return the names of the first collection's options, such as its validator, that the second lacks."""
    of_first, of_second = ((_describe(one) or {"options": {}})["options"] for one in (first, second))
    return sorted(name for name, value in of_first.items() if of_second.get(name) != value)


def _collation(about: About) -> About | None:
    collation: About | None = about["options"].get("collation")
    return collation


def _describe(collection: RetryingCollection) -> About | None:
    """Return the server's description of a collection; None if it does not exist."""
    found = collection.list_collections({"name": collection.name})
    return found[0] if found else None


OF_LEDGER = ("plans", "dropped", "exceptions", "runs", "overrides", "left")

# UUIDs of collections and names of servers, by "collections" or "servers", and then by part.
CollectionIds: TypeAlias = Mapping[str, Mapping[str, str]]


class Places:
    """The present UUIDs of the source, the target and the ledger's collections."""

    def __init__(
        self, source: RetryingCollection, target: RetryingCollection, has_copies: bool = True
    ) -> None:
        """Set the collections.

        Args:
            source: The source.
            target: The target; without copies, the collection beside which the ledger is stored.
            has_copies: Whether unique records are copied to the target.
        """
        self._source, self._target, self._has_copies = source, target, has_copies

    def prepare(self) -> None:
        """Create the target and the ledger's collections, so that they have UUIDs before the first plan."""
        existing = _uuids(self._target, self._in_target)
        for part, name in self._in_target.items():
            if part != "target" and part not in existing:
                self._target.attempt(partial(create_collection, self._target.database[name]))
        if self._has_copies:
            create_alike(self._source, self._target)

    def now(self) -> CollectionIds:
        """Return the UUIDs of existing collections, as `{"collections": {"source": ..., "plans": ...}}`."""
        in_source, in_target = {"source": self._source.name}, self._in_target
        if self._source.database == self._target.database:
            return {"collections": _uuids(self._target, in_source | in_target)}
        of_source = _uuids(self._source, in_source)
        return {"collections": of_source | _uuids(self._target, in_target)}

    def with_servers(self) -> CollectionIds:
        """Return the UUIDs of `now`, with the names of both servers."""
        servers = {"source": _server_name(self._source), "target": _server_name(self._target)}
        return {**self.now(), "servers": servers}

    @property
    def _in_target(self) -> dict[str, str]:
        name = self._target.name
        of_ledger = {part: f"{name}.dedup.{part}" for part in OF_LEDGER}
        return {"target": name, **of_ledger} if self._has_copies else of_ledger


def _uuids(neighbour: RetryingCollection, names: Mapping[str, str]) -> dict[str, str]:
    """Return the UUIDs of existing collections in the database of `neighbour`; names and UUIDs by part."""
    found = neighbour.list_collections({"name": {"$in": list(names.values())}})
    uuids = {about["name"]: hex_uuid(about) for about in found}
    return {part: uuids[name] for part, name in names.items() if uuids.get(name)}


def _server_name(collection: RetryingCollection) -> str:
    """Return the name of the replica set, which never changes; "standalone" or "isdbgrid" without one."""
    hello = collection.hello()
    name: str = hello.get("setName") or hello.get("msg") or "standalone"
    return name


def check_same(stored: CollectionIds, now: CollectionIds) -> None:
    """Raise StateError if a collection, or a server, is not the one that the ledger was made with."""
    check_not_exchanged(stored, now.get("collections", {}).get("source"))
    for kind, places in now.items():
        for part, was in stored[kind].items():
            if places.get(part) != was:
                raise StateError(_sentence(kind, part))


def check_not_exchanged(stored: CollectionIds, source: str | None) -> None:
    """Raise StateError if the target has the name of the source, and the ledger knows of no promotion.

    Args:
        stored: The collections in the ledger.
        source: UUID of the collection with the name of the source; None if there is none.
    """
    if source is not None and source == stored.get("collections", {}).get("target"):
        # `--moved` would be wrong here: it would take the unique records for the source.
        raise StateError(
            "the source is the collection that this ledger filled: the target was renamed to the source's "
            "name by hand; rename both collections back, and let promote do it: then the ledger "
            "can continue, see docs/how-to/replace-the-source.md"
        )


def _sentence(kind: str, part: str) -> str:
    accept = f"or accept the present collections: {command_line('run --moved')}"
    if kind == "servers":
        return f"the {part} is on another server than before; restore its connection string, {accept}"
    if part == "source":
        return (
            "the source is not the collection that the ledger was made from: it was dropped, renamed or "
            f"restored, or this is another server; bring it back, {accept}"
        )
    if part == "target":
        return (
            "the target is not the collection that was filled: it was dropped, renamed or restored, or this "
            "is another server; restore it together with its .dedup collections, or drop it and them and run "
            f"backfill again, {accept}"
        )
    return (
        f"the ledger's collection {part} was dropped or restored; restore the "
        f"target database from a backup, {accept}"
    )
