"""Translate the commands of a job to the steps of the commit protocol's model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from tests.support.fault_proxy import Command

READS = {"find", "getMore", "count", "aggregate", "listCollections", "ping", "hello", "killCursors"}
# Sent once, before anything is decided.
PREPARES = {"create", "createIndexes"}


def steps(commands: Iterable[Command], target: str) -> list[str]:
    """Return the steps of these commands; reads and renewals of the lease are no steps."""
    named = (step for command in commands for step in _of(command, target))
    return [name for name, _ in groupby(named)]


def _of(command: Command, target: str) -> Iterator[str]:
    if command.name in READS | PREPARES:
        return
    collection = command.body[command.name]
    if (command.name, collection) == ("insert", target):
        step = "try" if command.body["writeConcern"] == {"w": 1} else "insert"
        yield from (f"{step} {record['_id']}" for record in command.documents)
        return
    place = collection.removeprefix(f"{target}.dedup.")
    match command.name, place:
        case "findAndModify", "head":
            if not _is_renewal(command.body):
                yield _swap(command.body["update"])
        case "update", "plans":
            yield "store"
        case "delete", "plans":
            yield "clean" if "_id.fence" in command.documents[0]["q"] else "forget"
        case (("insert" | "update"), ("dropped" | "exceptions")):
            yield f"note {place}"
        case "delete", ("dropped" | "exceptions"):
            yield f"retract {place}"
        case "update", ("head" | "runs"):
            return
        case unknown:
            raise AssertionError(f"the model knows nothing of {unknown}")


def _is_renewal(body: dict[str, Any]) -> bool:
    """Return whether a swap only renews the lease: it sets the values that it compares."""
    changes = body["update"][0]["$set"]
    return all(
        isinstance(value, dict) and name in body["query"] and value.get("$literal") == body["query"][name]
        for name, value in changes.items()
    )


def _swap(update: list[dict[str, Any]]) -> str:
    changes = update[0]["$set"]
    if "fence" in changes:
        return "take"
    if "watermark" in changes or "last" in changes:
        return "advance"
    return {"pending": "accept", "covered": "cover", "lease": "end"}[next(iter(changes))]
