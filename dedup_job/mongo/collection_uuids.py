"""Collection UUIDs of source, target and ledger: recognise a collection that was replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeAlias

from dedup_job.errors import StateError
from dedup_job.mongo.collection_checks import create_alike, created
from dedup_job.mongo.retrying_collection import RetryingCollection

OF_LEDGER = ("plans", "dropped", "exceptions", "runs", "overrides", "left")
MEANT = "or, if what is there now is meant, say so: dedup-job run --moved"

Noted: TypeAlias = Mapping[str, Mapping[str, str]]


class Places:
    """The present UUIDs of the source, the target and the ledger's collections."""

    def __init__(self, source: RetryingCollection, target: RetryingCollection) -> None:
        self._source, self._target = source, target

    def prepare(self) -> None:
        """Create the target and the ledger's collections, so that they have UUIDs before the first plan."""
        existing = _uuids(self._target, self._in_target.values())
        for part, name in self._in_target.items():
            if part != "target" and name not in existing:
                self._target.attempt(partial(created, self._target.database[name]))
        create_alike(self._source, self._target)

    def now(self) -> Noted:
        """Return the UUIDs of existing collections, as `{"collections": {"source": ..., "plans": ...}}`."""
        in_source, in_target = {"source": self._source.name}, self._in_target
        if self._source.database == self._target.database:
            return {"collections": _uuids_by_part(self._target, in_source | in_target)}
        of_source = _uuids_by_part(self._source, in_source)
        return {"collections": of_source | _uuids_by_part(self._target, in_target)}

    def noted(self) -> Noted:
        """Return the same, with the names of both servers."""
        servers = {"source": _server_name(self._source), "target": _server_name(self._target)}
        return {**self.now(), "servers": servers}

    @property
    def _in_target(self) -> dict[str, str]:
        name = self._target.name
        return {"target": name, **{part: f"{name}.dedup.{part}" for part in OF_LEDGER}}


def _uuids_by_part(neighbour: RetryingCollection, names: Mapping[str, str]) -> dict[str, str]:
    """Return the UUIDs of existing collections in the database of `neighbour`; names and UUIDs by part."""
    uuids = _uuids(neighbour, names.values())
    return {part: uuids[name] for part, name in names.items() if name in uuids}


def _uuids(neighbour: RetryingCollection, names: Iterable[str]) -> dict[str, str]:
    """Return the UUIDs of existing collections in the database of `neighbour`, by name."""
    found = neighbour.list_collections({"name": {"$in": list(names)}})
    known = [about for about in found if "uuid" in about["info"]]
    return {about["name"]: bytes(about["info"]["uuid"]).hex() for about in known}


def _server_name(collection: RetryingCollection) -> str:
    """Return the name of the replica set, which never changes; "standalone" or "isdbgrid" without one."""
    hello = collection.hello()
    name: str = hello.get("setName") or hello.get("msg") or "standalone"
    return name


def check_same(noted: Noted, now: Noted) -> None:
    """Raise StateError if a collection, or a server, is not the one that the ledger was made with."""
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
