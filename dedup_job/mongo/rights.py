"""Privileges: those a user has, and those each command needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dedup_job.errors import NotPermitted
from dedup_job.mongo.collection_checks import OF_LEDGER
from dedup_job.mongo.retrying_collection import RetryingCollection


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

    def check(self, what: str, actions: Iterable[str], database: str, collection: str) -> None:
        """Raise NotPermitted if the user lacks one of these privileges on a collection."""
        if lacking := self.lacking(actions, database, collection):
            raise NotPermitted(
                f"{what}: {lack(lacking, database, collection)}; see docs/how-to/grant-rights.md"
            )


def lack(actions: Iterable[str], database: str, collection: str = "") -> str:
    """Describe missing privileges, in the words of the message for a refused command.

    >>> lack(["find", "insert"], "shop", "pages")
    'the user lacks the right to find and insert on shop.pages'
    """
    *first, last = actions
    named = f"{', '.join(first)} and {last}" if first else last
    return f"the user lacks the right to {named} on {f'{database}.{collection}' if collection else database}"


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


LEDGER = ("head", *OF_LEDGER, "aside")
RUN = "backfill, run, reconcile, restore"


@dataclass(frozen=True, slots=True)
class Need:
    """The privileges that some commands need, besides `listCollections` on both databases.

    Attributes:
        commands: Names of the commands.
        source: Actions on the source.
        target: Actions on the target.
        ledger: Actions on each collection of the ledger.
    """

    commands: str
    source: Sequence[str] = ("find",)
    target: Sequence[str] = ("find",)
    ledger: Sequence[str] = ("find",)


READING = "report, status, list, group, find, why, explain, evaluate, tune, fit-idf, verify"
WRITE = ("find", "insert", "update", "remove")
NEEDS = (
    Need(READING),
    Need("estimate", source=("find", "collStats")),
    Need(RUN, target=("find", "insert"), ledger=WRITE),
    Need(
        "backfill --copy-indexes",
        ("find", "listIndexes"),
        ("find", "insert", "listIndexes", "createIndex"),
        WRITE,
    ),
    Need("undo", target=("find", "insert", "remove"), ledger=WRITE),
    Need("reconcile --apply", target=WRITE, ledger=WRITE),
)


@dataclass(frozen=True, slots=True)
class Users:
    """The users of the two connections.

    Attributes:
        source: Privileges of the user of the source's connection.
        target: Privileges of the user of the target's connection.
        source_place: Database and collection of the source.
        target_place: Database and collection of the target.
    """

    source: Rights
    target: Rights
    source_place: tuple[str, str]
    target_place: tuple[str, str]

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
        if self.source_place[0] != database or self.source != self.target:
            yield from _describe_missing(self.target, ["listCollections"], database)
        yield from _describe_missing(self.target, need.target, database, collection)
        parts = (f"{collection}.dedup.{part}" for part in LEDGER)
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
