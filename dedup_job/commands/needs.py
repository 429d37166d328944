"""Privileges that each command needs, and which of them the users of the two connections lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dedup_job.mongo.places import OF_LEDGER
from dedup_job.mongo.rights import Rights, lack

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
