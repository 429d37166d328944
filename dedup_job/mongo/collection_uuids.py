"""Collection UUIDs of source, target and ledger: recognise a collection that was replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from bson.codec_options import CodecOptions
from pymongo.collection import Collection

from dedup_job.errors import StateError
from dedup_job.mongo.client import RetryPolicy, named_errors
from dedup_job.mongo.collection_checks import create_alike, created

OF_LEDGER = ("plans", "dropped", "exceptions", "runs", "overrides", "left")
MEANT = "or, if what is there now is meant, say so: dedup-job run --moved"

Noted: TypeAlias = Mapping[str, Mapping[str, str]]


class Places:
    """Source, target and the ledger's collections, as they are now."""

    def __init__(self, source: Collection[Any], target: Collection[Any], patience: RetryPolicy) -> None:
        self._source, self._target, self._patience = source, target, patience

    def prepare(self) -> None:
        """Make the target and the ledger's collections, so that they have a UUID before the first plan."""
        there = self._uuids(self._target, self._in_target.values(), "the target")
        for part, name in self._in_target.items():
            if part != "target" and name not in there:
                with named_errors("the ledger"):
                    self._patience(lambda: created(self._target.database[name]))  # noqa: B023
        create_alike(self._source, self._target, self._patience)

    def now(self) -> Noted:
        """Return the UUIDs of those that exist, as `{"collections": {"source": ..., "plans": ...}}`."""
        in_source, in_target = {"source": self._source.name}, self._in_target
        if self._source.database == self._target.database:
            return {"collections": self._found(self._target, in_source | in_target, "the target")}
        here = self._found(self._source, in_source, "the source")
        return {"collections": here | self._found(self._target, in_target, "the target")}

    def noted(self) -> Noted:
        """Return the same, and what the servers' own names are."""
        servers = {"source": self._server(self._source), "target": self._server(self._target)}
        return {**self.now(), "servers": servers}

    @property
    def _in_target(self) -> dict[str, str]:
        name = self._target.name
        return {"target": name, **{part: f"{name}.dedup.{part}" for part in OF_LEDGER}}

    def _found(self, beside: Collection[Any], names: Mapping[str, str], what: str) -> dict[str, str]:
        """Return the UUIDs of those parts whose collections exist beside one; `names` are given by part."""
        there = self._uuids(beside, names.values(), what)
        return {part: there[name] for part, name in names.items() if name in there}

    def _uuids(self, beside: Collection[Any], names: Iterable[str], what: str) -> dict[str, str]:
        plain: CodecOptions[Any] = CodecOptions()  # so that a UUID is bytes
        database = beside.database.with_options(codec_options=plain)
        condition = {"name": {"$in": list(names)}}
        with named_errors(what):
            found = self._patience(lambda: list(database.list_collections(filter=condition)))
        known = [about for about in found if "uuid" in about["info"]]
        return {about["name"]: bytes(about["info"]["uuid"]).hex() for about in known}

    def _server(self, collection: Collection[Any]) -> str:
        """Return the name of a replica set, which it has from its beginning; others have none."""
        with named_errors("the server"):
            hello = self._patience(lambda: collection.database.client.admin.command("hello"))
        name: str = hello.get("setName") or hello.get("msg") or "standalone"
        return name


def check_same(noted: Noted, now: Noted) -> None:
    """Raise StateError when something that a ledger was made from or filled is not what it was."""
    for kind, places in now.items():
        for part, was in noted[kind].items():
            if places.get(part) != was:
                raise StateError(_sentence(kind, part))


def _sentence(kind: str, part: str) -> str:
    if kind == "servers":
        return f"the {part} is on another server than it was; set its connection string back, {MEANT}"
    if part == "source":
        return (
            "the source is not the collection that the ledger was made from: it was dropped, renamed or "
            f"restored, or this is another server; put it back, {MEANT}"
        )
    if part == "target":
        return (
            "the target is not the collection that was filled: it was dropped, renamed or restored, or this "
            "is another server; restore it together with its .dedup collections, or drop it and them and run "
            f"backfill again, {MEANT}"
        )
    return (
        f"{part} of the ledger is not the collection that it was: it was dropped or restored; restore the "
        f"target database from a backup, {MEANT}"
    )
