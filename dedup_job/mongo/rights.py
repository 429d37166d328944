"""Rights: what the user of a connection may do where, by the server's own books."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pymongo.database import Database

from dedup_job.errors import NotPermitted
from dedup_job.mongo.client import Patience, named_errors


@dataclass(frozen=True, slots=True)
class Rights:
    """What a user may do.

    user        his name; "" where the server knows nobody by name
    privileges  as `connectionStatus` tells them; None where nobody is asked who he is, so that all is allowed
    """

    user: str
    privileges: Sequence[Mapping[str, Any]] | None

    @classmethod
    def of(cls, database: Database[Any], what: str, patience: Patience) -> Self:
        """Ask the server; everybody may ask that of himself."""
        with named_errors(what):
            answer = patience(lambda: database.command("connectionStatus", showPrivileges=True))
        about = answer["authInfo"]
        users = ", ".join(one["user"] for one in about["authenticatedUsers"])
        return cls(users, about["authenticatedUserPrivileges"] if users else None)

    def lacking(self, actions: Iterable[str], database: str, collection: str = "") -> list[str]:
        """Return which of these actions he may not do on a collection, or on a database itself."""
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
        """Raise NotPermitted where he lacks one of these rights on a collection."""
        if lacking := self.lacking(actions, database, collection):
            raise NotPermitted(
                f"{what}: {lack(lacking, database, collection)}; see Rights in docs/operations.md"
            )


def lack(actions: Iterable[str], database: str, collection: str = "") -> str:
    """Say which rights a user lacks, as a server's refusal is told.

    >>> lack(["find", "insert"], "shop", "pages")
    'the user lacks the right to find and insert on shop.pages'
    """
    *first, last = actions
    named = f"{', '.join(first)} and {last}" if first else last
    return f"the user lacks the right to {named} on {f'{database}.{collection}' if collection else database}"


def _covers(resource: Mapping[str, Any], database: str, collection: str) -> bool:
    """Return whether a privilege on a resource is one on a collection, or with "" on a database.

    An empty name stands for all; {db: "shop", collection: ""} for shop itself, too.
    """
    if resource.get("anyResource"):
        return True
    if "db" not in resource:  # of the cluster
        return False
    return resource["db"] in ("", database) and resource["collection"] in ("", collection)
