"""Ask a server about itself: version, deployment, free disk space, databases and collections."""

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


def free_bytes(client: MongoClient[Any], database: str, what: str, retry: RetryPolicy) -> int | None:
    """Return the free bytes on a database's disk; None if a router answers or the database does not exist."""
    with named_errors(what):
        stats = retry(lambda: client[database].command("dbStats"))
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
        ours = {LEDGER.sub("", name) for name in found if LEDGER.search(name)}
        return sorted(
            name
            for name in found
            if name not in ours and not LEDGER.search(name) and not name.startswith("system.")
        )

    def some(self, database: str, collection: str, count: int) -> Sequence[bytes]:
        """Return `count` random raw records; fewer if the collection is smaller."""
        drawn: list[Mapping[str, Any]] = [{"$sample": {"size": count}}]
        records = self._client[database].get_collection(collection, codec_options=RAW)
        with named_errors("the source"):
            found = self._retry(lambda: list(records.aggregate(drawn)))
        return [bytes(record.raw) for record in found]
