"""Ask a server about itself: version, disk space, collections, and the privileges of a user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pymongo import MongoClient

from dedup_job.errors import NotPermitted
from dedup_job.mongo.collection_checks import OF_LEDGER, possible_sources
from dedup_job.mongo.connect_and_retry import RetryPolicy, named_errors
from dedup_job.mongo.retrying_collection import RetryingCollection

STANDALONE = "standalone server"


@dataclass(frozen=True, slots=True)
class Server:
    """Version and kind of a deployment.

    Attributes:
        version: Version of the member that answers.
        kind: "replica set NAME", "sharded cluster" or STANDALONE.
        lag: Seconds that the majority is behind the primary; 0 without a replica set.
    """

    version: str
    kind: str
    lag: float

    @classmethod
    def of(cls, client: MongoClient[Any], what: str, retry: RetryPolicy) -> Self:
        """Ask the server; no privilege is needed.

        Args:
            client: The connection.
            what: The name in messages, such as "the source server".
            retry: How long commands are retried.
        """
        with named_errors(what):
            hello = retry(lambda: client.admin.command("hello"))
            about = retry(lambda: client.admin.command("buildInfo"))
        return cls(about["version"], kind_of_deployment(hello), lag_of(hello))


def kind_of_deployment(hello: Mapping[str, Any]) -> str:
    """Return the kind of deployment, from the server's answer to `hello`."""
    if "setName" in hello:
        return f"replica set {hello['setName']}"
    return "sharded cluster" if hello.get("msg") == "isdbgrid" else STANDALONE


def lag_of(hello: Mapping[str, Any]) -> float:
    """Return the seconds that the majority is behind the primary, from the server's answer to `hello`.

    An idle replica set writes a no-op every ten seconds, so a lag shows on an idle set as well.
    """
    last = hello.get("lastWrite", {})
    if "majorityWriteDate" not in last:
        return 0.0
    return max(0.0, float((last["lastWriteDate"] - last["majorityWriteDate"]).total_seconds()))


def free_bytes(collection: RetryingCollection) -> int | None:
    """Return the free bytes on the disk of a collection's database.

    Returns:
        None if a router answers, or the database does not exist.
    """
    stats = collection.attempt(lambda: collection.database.command("dbStats"))
    # 0 if the database does not exist; missing in the answer of a router.
    if not stats.get("fsTotalSize"):
        return None
    return int(stats["fsTotalSize"] - stats["fsUsedSize"])


OF_THE_SERVER = frozenset({"admin", "config", "local"})


class Catalog:
    """Lists the databases and collections of a server that its user may see; only reads."""

    def __init__(self, client: MongoClient[Any], retry: RetryPolicy) -> None:
        self._client, self._retry = client, retry

    def databases(self) -> list[str]:
        """Return the names of the databases, sorted, without the server's own."""
        with named_errors("the source server"):
            found = self._retry(self._client.list_database_names)
        return sorted(set(found) - OF_THE_SERVER)

    def collections(self, database: str) -> list[str]:
        """Return the names of possible sources, sorted: collections that are no target and no ledger."""
        with named_errors("the source server"):
            found = self._retry(
                lambda: self._client[database].list_collection_names(filter={"type": "collection"})
            )
        return [name for name in possible_sources(found) if not name.startswith("system.")]

    def some(self, database: str, collection: str, count: int) -> Sequence[bytes]:
        """Return `count` random raw records; fewer if the collection is smaller."""
        source = RetryingCollection(self._client[database][collection], "the source", self._retry)
        return [bytes(one.raw) for one in source.raw_bson().aggregate([{"$sample": {"size": count}}])]


@dataclass(frozen=True, slots=True)
class Rights:
    """The privileges of a user.

    Attributes:
        user: Name of the user; empty if the server does not require a login.
        privileges: Privileges in the form of `connectionStatus`; None without a login: all is allowed.
    """

    user: str
    privileges: Sequence[Mapping[str, Any]] | None

    @classmethod
    def of(cls, collection: RetryingCollection) -> Self:
        """Return the privileges of the user of this connection; every user may read its own."""
        answer = collection.attempt(
            lambda: collection.database.command("connectionStatus", showPrivileges=True)
        )
        about = answer["authInfo"]
        users = ", ".join(one["user"] for one in about["authenticatedUsers"])
        return cls(users, about["authenticatedUserPrivileges"] if users else None)

    def lacking(self, actions: Iterable[str], database: str, collection: str = "") -> list[str]:
        """Return the actions that the user may not do on a collection, or on a database itself."""
        if self.privileges is None:
            return []
        allowed = {
            action
            for privilege in self.privileges
            if _covers(privilege["resource"], database, collection)
            for action in privilege["actions"]
        }
        return [action for action in actions if action not in allowed]

    def check(self, collection: RetryingCollection, actions: Iterable[str]) -> None:
        """Raise NotPermitted if the user lacks one of these privileges on a collection."""
        place = collection.database.name, collection.name
        if lacking := self.lacking(actions, *place):
            raise not_permitted(collection.what, lacking, *place)


def lack(actions: Iterable[str], database: str, collection: str = "") -> str:
    """Describe missing privileges, in the words of the message for a refused command.

    >>> lack(["find", "insert"], "shop", "pages")
    'the user lacks the right to find and insert on shop.pages'
    """
    *first, last = actions
    named = f"{', '.join(first)} and {last}" if first else last
    return f"the user lacks the right to {named} on {f'{database}.{collection}' if collection else database}"


def not_permitted(what: str, actions: Iterable[str], database: str, collection: str = "") -> NotPermitted:
    """Return the error to raise for missing privileges; `what` is the name of the server in messages."""
    return NotPermitted(f"{what}: {lack(actions, database, collection)}; see docs/how-to/grant-rights.md")


def _covers(resource: Mapping[str, Any], database: str, collection: str) -> bool:
    """Return whether a privilege on a resource is valid for a collection, or with "" for a database itself.

    An empty name in a resource means all names; {db: "shop", collection: ""} also covers the database itself.
    """
    if resource.get("anyResource"):
        return True
    # A privilege on the cluster covers no database.
    if "db" not in resource:
        return False
    return resource["db"] in ("", database) and resource["collection"] in ("", collection)


LEDGER_NAMES = ("head", *OF_LEDGER, "aside")
RUN = "backfill, run, restore"


@dataclass(frozen=True, slots=True)
class Need:
    """The privileges that some commands need, besides `listCollections` on both databases.

    Attributes:
        commands: Names of the commands.
        source: Actions on the source.
        target: Actions on the target.
        ledger: Actions on each collection of the ledger.
        database: Actions on the target's database itself.
    """

    commands: str
    source: Sequence[str] = ("find",)
    target: Sequence[str] = ("find",)
    ledger: Sequence[str] = ("find",)
    database: Sequence[str] = ()


# The right to rename collections within a database.
RENAME = "renameCollectionSameDB"
READING = (
    "report, status, list, export, group, find, why, compare, changes, history, evaluate, tune, fit-idf, "
    "verify"
)
WRITE = ("find", "insert", "update", "remove")
COPY_INDEXES = "backfill --copy-indexes"
NEEDS = (
    Need(READING),
    Need("estimate", source=("find", "collStats")),
    Need(RUN, target=("find", "insert"), ledger=WRITE),
    Need(
        COPY_INDEXES,
        ("find", "listIndexes"),
        ("find", "insert", "listIndexes", "createIndex"),
        WRITE,
    ),
    Need("undo", target=("find", "insert", "remove"), ledger=WRITE),
    Need("sync", target=WRITE, ledger=WRITE),
    Need("mark", source=("find", "update"), ledger=WRITE),
    Need("sweep", source=("find", "insert", "remove"), ledger=WRITE),
    Need("promote", ("find", "listIndexes"), ("find", "listIndexes"), WRITE, (RENAME,)),
)


@dataclass(frozen=True, slots=True)
class Users:
    """The users of the two connections.

    Attributes:
        source: Privileges of the user of the source's connection.
        target: Privileges of the user of the target's connection.
        source_place: Database and collection of the source.
        target_place: Database and collection of the target; the ledger is beside it.
        has_copies: Whether records are copied to the target, so that privileges on it are needed.
    """

    source: Rights
    target: Rights
    source_place: tuple[str, str]
    target_place: tuple[str, str]
    has_copies: bool = True

    def lacking(self, need: Need) -> list[str]:
        """Return a sentence for each missing privilege; one for all collections of the ledger together."""
        return [*self._lacking_in_source(need), *self._lacking_in_target(need)]

    def _lacking_in_source(self, need: Need) -> Iterator[str]:
        database, collection = self.source_place
        yield from _describe_missing(self.source, ["listCollections"], database)
        yield from _describe_missing(self.source, need.source, database, collection)

    def _lacking_in_target(self, need: Need) -> Iterator[str]:
        database, collection = self.target_place
        # With one user and one database, the source has reported a missing listCollections already.
        is_reported = self.source_place[0] == database and self.source == self.target
        of_database = [*(() if is_reported else ("listCollections",)), *need.database]
        yield from _describe_missing(self.target, of_database, database)
        if self.has_copies:
            yield from _describe_missing(self.target, need.target, database, collection)
        parts = (f"{collection}.dedup.{part}" for part in LEDGER_NAMES)
        missing = [
            text for part in parts for text in _describe_missing(self.target, need.ledger, database, part)
        ]
        if missing:
            yield missing[0] + (f", and {len(missing) - 1} more like it" if len(missing) > 1 else "")


def _describe_missing(
    rights: Rights, actions: Sequence[str], database: str, collection: str = ""
) -> Iterator[str]:
    if lacking := rights.lacking(actions, database, collection):
        yield lack(lacking, database, collection)
