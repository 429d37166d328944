"""Needs: which rights a command takes, and which of them the users of the two connections lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dedup_job.mongo.places import OF_LEDGER
from dedup_job.mongo.rights import Rights, lack

LEDGER = ("head", *OF_LEDGER, "aside")
RUN = "backfill, run, reconcile, restore"


@dataclass(frozen=True, slots=True)
class Need:
    """The rights that some commands take, beside that to list the collections of both databases."""

    commands: str
    source: Sequence[str] = ("find",)
    target: Sequence[str] = ("find",)
    ledger: Sequence[str] = ("find",)


LOOKING = "report, status, list, group, find, why, explain, evaluate, tune, fit-idf, verify"
KEEPING = ("find", "insert", "update", "remove")
NEEDS = (
    Need(LOOKING),
    Need("estimate", source=("find", "collStats")),
    Need(RUN, target=("find", "insert"), ledger=KEEPING),
    Need(
        "backfill --copy-indexes",
        ("find", "listIndexes"),
        ("find", "insert", "listIndexes", "createIndex"),
        KEEPING,
    ),
    Need("undo", target=("find", "insert", "remove"), ledger=KEEPING),
    Need("reconcile --apply", target=KEEPING, ledger=KEEPING),
)


@dataclass(frozen=True, slots=True)
class Users:
    """Who reads the source and who fills the target, each with a database and a collection in it."""

    source: Rights
    target: Rights
    source_place: tuple[str, str]
    target_place: tuple[str, str]

    def lacking(self, need: Need) -> list[str]:
        """Return in sentences which rights are lacking; of those on the ledger's collections the first."""
        return [*self._in_source(need), *self._in_target(need)]

    def _in_source(self, need: Need) -> Iterator[str]:
        database, collection = self.source_place
        yield from _missing(self.source, ["listCollections"], database)
        yield from _missing(self.source, need.source, database, collection)

    def _in_target(self, need: Need) -> Iterator[str]:
        database, collection = self.target_place
        if self.source_place[0] != database or self.source != self.target:
            yield from _missing(self.target, ["listCollections"], database)
        yield from _missing(self.target, need.target, database, collection)
        parts = (f"{collection}.dedup.{part}" for part in LEDGER)
        found = [one for part in parts for one in _missing(self.target, need.ledger, database, part)]
        if found:
            yield found[0] + (f", and {len(found) - 1} more like it" if len(found) > 1 else "")


def _missing(rights: Rights, actions: Sequence[str], database: str, collection: str = "") -> Iterator[str]:
    if lacking := rights.lacking(actions, database, collection):
        yield lack(lacking, database, collection)
