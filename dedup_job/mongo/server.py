"""A server: which version it is, how it is set up, how far its majority is, and what room its disk has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pymongo import MongoClient

from dedup_job.mongo.client import Patience, named_errors

STANDALONE = "standalone server"


@dataclass(frozen=True, slots=True)
class Server:
    """What a deployment says of itself.

    version  of the member that answers
    kind     "replica set NAME", "sharded cluster" or STANDALONE
    lag      seconds that the majority is behind the primary; 0 where there is none
    """

    version: str
    kind: str
    lag: float

    @classmethod
    def of(cls, client: MongoClient[Any], what: str, patience: Patience) -> Self:
        """Ask it; everybody who is known to it may."""
        with named_errors(what):
            hello = patience(lambda: client.admin.command("hello"))
            about = patience(lambda: client.admin.command("buildInfo"))
        return cls(about["version"], kind_of_deployment(hello), lag_of(hello))


def kind_of_deployment(hello: Mapping[str, Any]) -> str:
    """Return how a server is set up, by its answer to `hello`."""
    if "setName" in hello:
        return f"replica set {hello['setName']}"
    return "sharded cluster" if hello.get("msg") == "isdbgrid" else STANDALONE


def lag_of(hello: Mapping[str, Any]) -> float:
    """Return how many seconds the majority is behind; a set writes something every ten seconds."""
    last = hello.get("lastWrite", {})
    if "majorityWriteDate" not in last:
        return 0.0
    return max(0.0, float((last["lastWriteDate"] - last["majorityWriteDate"]).total_seconds()))


def free_bytes(client: MongoClient[Any], database: str, what: str, patience: Patience) -> int | None:
    """Return the free bytes on a disk; None where a router answers or the database does not exist yet."""
    with named_errors(what):
        stats = patience(lambda: client[database].command("dbStats"))
    if not stats.get("fsTotalSize"):  # 0 where the database does not exist
        return None
    return int(stats["fsTotalSize"] - stats["fsUsedSize"])
