"""Shared by all campaigns: a collection, the result of an undisturbed run, and the comparison with it.

A campaign disturbs a job in one way, many times. After each time it checks that every source record is
decided exactly once, that the target has exactly the kept records, byte for byte, including the keeper of
each duplicate, and that the decisions equal an undisturbed run's.
"""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.database import Database

from dedup_job.ledger.reader import LedgerReader
from dedup_job.mongo.ids import id_of
from dedup_job.records import Action, Counts
from scripts.bench.corpus import Mix, Sample, samples
from tests.support.settings_toml import settings_toml

RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
SOURCE, TARGET = "pages", "unique"
LEDGER = ("head", "plans", "dropped", "exceptions", "runs")


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage of one trial, or of many: numbers of affected records, rows and runs.

    Attributes:
        lost: Records that are not decided, kept records missing from the target, and dropped records without
            their keeper.
        doubled: Records that were decided twice, or are in the target although they were not kept.
        different: Decisions, rows or bytes that differ from an undisturbed run.
        misled: Runs that ended with a wrong exit code, or too late.
    """

    lost: int = 0
    doubled: int = 0
    different: int = 0
    misled: int = 0

    def __add__(self, other: Damage) -> Damage:
        return Damage(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def __bool__(self) -> bool:
        return self != Damage()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a campaign; `worst` describes the first trials that did damage."""

    trials: int = 0
    damage: Damage = Damage()
    worst: tuple[str, ...] = ()

    def __add__(self, other: Result) -> Result:
        return Result(self.trials + other.trials, self.damage + other.damage, (self.worst + other.worst)[:5])


def trial(damage: Damage, about: str) -> Result:
    """Return the result of one trial."""
    return Result(1, damage, (f"{about}: {damage}",) if damage else ())


@dataclass(frozen=True)
class Material:
    """A source collection, and a target that refuses some of its records."""

    records: tuple[Mapping[str, Any], ...]
    refused: tuple[Any, ...] = ()
    batch_records: int = 16

    @classmethod
    def made(cls, count: int, seed: int, batch_records: int, refused: int = 2) -> Material:
        """Make records of all kinds; the refused records are those with the most duplicates."""
        planted: list[Sample] = list(samples(count, seed, Mix(duplicates=0.45, odd=0.08)))
        often = Counter(sample.of for sample in planted if sample.of is not None)
        worst = tuple(record for record, _ in often.most_common(refused))
        return cls(tuple(sample.record for sample in planted), worst, batch_records)


# Raw documents by collection.
Snapshot = Mapping[str, Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class State:
    """The result of a run, without values that differ from run to run.

    Attributes:
        decided: For each record, its verdicts in the applied plans, in order.
        target: Raw records by id.
        rows: Rows of `dropped` and `exceptions` by id.
        head: Watermark, number of plans, counts; also the pending plan and the lease, which must be empty.
    """

    decided: Mapping[bytes, Sequence[tuple[Any, ...]]]
    target: Mapping[bytes, bytes]
    rows: Mapping[str, Mapping[bytes, Mapping[str, Any]]]
    head: tuple[Any, ...]


@dataclass(frozen=True)
class Arena:
    """A private database for disturbing a job repeatedly."""

    database: Database[Any]
    material: Material
    folder: Path
    limits: Mapping[str, float] = field(default_factory=dict)

    def fill(self) -> None:
        """Make the source, and a target that refuses records."""
        self.database[SOURCE].insert_many(self.material.records)
        self.make_target()

    def make_target(self) -> None:
        validator = {"_id": {"$nin": list(self.material.refused)}}
        self.database.create_collection(TARGET, validator=validator)

    def reset(self, before: Snapshot | None = None) -> None:
        """Restore a snapshot of target and ledger; without a snapshot, empty both."""
        self.database[TARGET].delete_many({})
        if before is None:
            for name in (*LEDGER, "overrides", "left"):
                self.ledger(name).drop()
            return
        # Into the existing collections, because the ledger stores their UUIDs.
        for name, raws in before.items():
            collection = self.database[name].with_options(RAW)
            collection.delete_many({})
            if raws:
                collection.insert_many(map(RawBSONDocument, raws), bypass_document_validation=True)

    def snapshot(self) -> Snapshot:
        """Return the contents of the target and its ledger, by collection."""
        names = (TARGET, *(f"{TARGET}.dedup.{name}" for name in (*LEDGER, "overrides", "left")))
        return {name: list(self._raw(name).values()) for name in names}

    def overtake(self, chance: Random) -> None:
        """Change texts and other fields of some source records, and delete some records."""
        pages = self.database[SOURCE]
        texts = [one["data"] for one in self.material.records if isinstance(one.get("data"), str)]
        ids = [record["_id"] for record in self.material.records]
        chosen = chance.sample(ids, 3 * (len(ids) // 6))
        share = len(chosen) // 3
        for raw_id in chosen[:share]:
            pages.update_one({"_id": raw_id}, {"$set": {"data": chance.choice(texts)[::-1]}})
        pages.update_many({"_id": {"$in": chosen[share : 2 * share]}}, {"$set": {"seen": True}})
        pages.delete_many({"_id": {"$in": chosen[2 * share :]}})

    def ledger(self, name: str) -> Any:
        return self.database[f"{TARGET}.dedup.{name}"]

    def config_file(self, **tables: Mapping[str, Any]) -> Path:
        """Write the settings of the job and return their path."""
        limits = {"batch_records": self.material.batch_records, **self.limits}
        everything: dict[str, Mapping[str, Any]] = {
            "source": {"database": self.database.name, "collection": SOURCE, "fields": ["data"]},
            "target": {"database": self.database.name, "collection": TARGET},
            "limits": {**limits, **tables.pop("limits", {})},
            **tables,
        }
        path = self.folder / f"{uuid.uuid4().hex}.toml"
        path.write_text(settings_toml(everything), "utf-8")
        return path

    def state(self) -> State:
        """Read the present state."""
        reader = LedgerReader(self.database, TARGET)
        head = reader.head()
        decided: dict[bytes, list[tuple[Any, ...]]] = {}
        counts = Counts()
        for stored in reader.plans(head) if head else ():
            counts += stored.plan.counts
            for raw_id, verdict in zip(stored.plan.ids, stored.plan.verdicts, strict=True):
                match = verdict.match and (
                    verdict.match.keeper,
                    verdict.match.distance,
                    verdict.match.similarity,
                )
                decided.setdefault(raw_id, []).append((verdict.action, verdict.reason, match))
        about = head and (
            head.watermark,
            head.next,
            head.pending,
            head.lease,
            head.counts.read == counts.read,
        )
        return State(
            decided, self._raw(TARGET), {name: self._rows(name) for name in LEDGER[2:4]}, about or ()
        )

    def _raw(self, name: str) -> dict[bytes, bytes]:
        found = self.database[name].with_options(RAW).find()
        raws = (bytes(document.raw) for document in found)
        return {id_of(raw): raw for raw in raws}

    def _rows(self, name: str) -> dict[bytes, dict[str, Any]]:
        return {
            id_of(bytes(document.raw)): {
                key: value for key, value in document.items() if key not in ("run", "at")
            }
            for document in self.ledger(name).with_options(RAW).find()
        }

    def damage(self, undisturbed: State) -> Damage:
        """Compare the present state with the result of an undisturbed run."""
        now, source = self.state(), self._raw(SOURCE)
        kept = {i for i, v in now.decided.items() if v[-1][0] in (Action.UNIQUE, Action.UNCHECKED)}
        keepers = [v[-1][2][0] for v in now.decided.values() if v[-1][0] is Action.DUPLICATE]
        lost = len(source.keys() - now.decided.keys()) + len(kept - now.target.keys())
        lost += sum(keeper not in now.target for keeper in keepers)
        doubled = sum(len(verdicts) - 1 for verdicts in now.decided.values())
        doubled += len(now.target.keys() - kept)
        different = _differences(now.decided, undisturbed.decided) + (now.head != undisturbed.head)
        different += sum(raw != source[raw_id] for raw_id, raw in now.target.items())
        different += sum(_differences(now.rows[name], undisturbed.rows[name]) for name in now.rows)
        return Damage(lost, doubled, different)


def _differences(one: Mapping[bytes, Any], other: Mapping[bytes, Any]) -> int:
    return sum(one.get(key) != other.get(key) for key in one.keys() | other.keys())


@contextmanager
def arena(client: MongoClient[Any], material: Material, **limits: float) -> Iterator[Arena]:
    """Create and fill an arena; it is removed at the end."""
    database = client[f"arena_{uuid.uuid4().hex}"]
    with tempfile.TemporaryDirectory() as folder:
        made = Arena(database, material, Path(folder), **({"limits": limits} if limits else {}))
        try:
            made.fill()
            yield made
        finally:
            client.drop_database(database)
