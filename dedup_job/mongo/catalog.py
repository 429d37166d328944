"""The catalog of a server: its databases, their collections, and some records of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import MongoClient

from dedup_job.document import RAW
from dedup_job.mongo.client import Patience, named_errors
from dedup_job.mongo.namespace import LEDGER

OF_THE_SERVER = frozenset({"admin", "config", "local"})


class Catalog:
    """What a user may see on a server; reads alone."""

    def __init__(self, client: MongoClient[Any], patience: Patience) -> None:
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
