"""What a server says about itself: version, deployment, disk, databases and collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pymongo import MongoClient

from dedup_job.mongo.client import RetryPolicy, named_errors
from dedup_job.mongo.collection_checks import LEDGER
from dedup_job.records import RAW

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
    def of(cls, client: MongoClient[Any], what: str, patience: RetryPolicy) -> Self:
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


def free_bytes(client: MongoClient[Any], database: str, what: str, patience: RetryPolicy) -> int | None:
    """Return the free bytes on a disk; None where a router answers or the database does not exist yet."""
    with named_errors(what):
        stats = patience(lambda: client[database].command("dbStats"))
    if not stats.get("fsTotalSize"):  # 0 where the database does not exist
        return None
    return int(stats["fsTotalSize"] - stats["fsUsedSize"])


OF_THE_SERVER = frozenset({"admin", "config", "local"})


class Catalog:
    """What a user may see on a server; reads alone."""

    def __init__(self, client: MongoClient[Any], patience: RetryPolicy) -> None:
        self._client, self._patience = client, patience

    def databases(self) -> list[str]:
        """Return the names of the databases, but for the server's own."""
        with named_errors("the source server"):
            found = self._patience(self._client.list_database_names)
        return sorted(set(found) - OF_THE_SERVER)

    def collections(self, database: str) -> list[str]:
        """Return the names of the collections that may be a source: no target of this job, nor its ledger."""
        with named_errors("the source server"):
            found = self._patience(
                lambda: self._client[database].list_collection_names(filter={"type": "collection"})
            )
        ours = {LEDGER.sub("", name) for name in found if LEDGER.search(name)}
        return sorted(
            name
            for name in found
            if name not in ours and not LEDGER.search(name) and not name.startswith("system.")
        )

    def some(self, database: str, collection: str, count: int) -> Sequence[bytes]:
        """Return so many records, drawn at random."""
        drawn: list[Mapping[str, Any]] = [{"$sample": {"size": count}}]
        records = self._client[database].get_collection(collection, codec_options=RAW)
        with named_errors("the source"):
            found = self._patience(lambda: list(records.aggregate(drawn)))
        return [bytes(record.raw) for record in found]
