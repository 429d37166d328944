"""Check that Spark makes the same decisions as one machine, record for record, on real and made-up sets.

    python -m scripts.bench.spark_answers [--data DIR] [--sets NAME,...] [--count 300000] [--cores 2]
                                    [--partitions 1,2,7] [--quick] [--prefer RULE] [--reference]

A local backfill decides a set, then Spark with each number of partitions per core. The target is compared
byte for byte; the rows about dropped and unchecked records are compared without run and time.
`DIR/SET/docs.jsonl.gz` has the records of a real set; `together` is all of them in one collection. `pages`
are made-up texts of many lengths with copies, the other sets are the forms of `scripts.bench.forms`.

With `--reference`, every second record is moved to a reference collection before.

With `--prefer longest` (or another rule that needs no field), the kept records and the ids of the dropped
ones must equal those of the local backfill, and keeper, distance and similarity those of local decisions in a
single batch. The last column counts dropped records for which the local backfill, with its batches, names
another keeper.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bson import decode
from pymongo import MongoClient

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.index.keepers import Keepers
from dedup_job.mongo.ids import id_of
from dedup_job.pipeline.job import decide
from dedup_job.records import RAW, RawIds, chunked
from scripts.bench.forms import CHANGED, ONE, THIRTY
from scripts.bench.groups import recipe_of
from scripts.bench.made_up import Collection, Pages, refill
from scripts.bench.measure import (
    DATABASE,
    Commands,
    Usage,
    documents,
    fill,
    forget,
    numbers,
    row,
    settings_text,
    table,
)
from scripts.dev.local_mongod import Server, open_server

REAL = ("leetcode", "medical_qa", "reuters21578")
TOGETHER = "together"
# Decimal places of similarities in a ledger.
PLACES = 4
MADE_UP = {"pages": Collection(Pages()), "thirty": THIRTY, "one": ONE, "copies": CHANGED}
ENGINE = """
[engine]
kind = "spark"
master = "{master}"
work = "{folder}/work"
{partitions}
[engine.conf]
"spark.eventLog.enabled" = "true"
"spark.eventLog.dir" = "file://{folder}/events"
"spark.eventLog.compress" = "false"
"spark.eventLog.rolling.enabled" = "false"
"""


PREFER = """
[match]
prefer = ["{rule}"]
"""
REFERENCE = f"""
[[reference]]
database = "{DATABASE}"
collection = "tests"
"""
Matches = Mapping[Any, tuple[Any, int | None, float | None]]


@dataclass(frozen=True, slots=True)
class Decided:
    """The usage of a backfill, its report, its result, and the matches of the dropped records."""

    usage: Usage
    report: Mapping[str, Any]
    left: Mapping[str, str]
    dropped: Matches


def decided_here(server: Server, more: str = "") -> Decided:
    """Decide the source on this machine, with more settings."""
    with TemporaryDirectory() as folder:
        return _decided(server, Path(folder), more)


def decided_on_spark(
    server: Server, master: str, partitions: int | None, folder: Path, more: str = ""
) -> Decided:
    """Decide the source on Spark, with more settings; its event log is written to `events` in the folder."""
    (folder / "events").mkdir()
    cut = f"partitions = {partitions}" if partitions else ""
    return _decided(server, folder, ENGINE.format(master=master, folder=folder, partitions=cut) + more)


def _decided(server: Server, folder: Path, engine: str) -> Decided:
    settings = folder / "bench.toml"
    settings.write_text(settings_text() + engine)
    with MongoClient[dict[str, Any]](server.uri) as client:
        forget(client)
        # With --allow, because nearly all records may be copies.
        usage, report = Commands(server, settings).run("backfill", "--allow")
        return Decided(usage, report, left(client), dropped_in(client))


def dropped_in(client: MongoClient[dict[str, Any]]) -> Matches:
    """Return the match of each dropped record by its id."""
    rows = client[DATABASE]["unique.dedup.dropped"].find()
    return {row["_id"]: (row["keeper"], row["distance"], row["similarity"]) for row in rows}


def dropped_in_one_batch(client: MongoClient[dict[str, Any]], prefer: str) -> Matches:
    """Return the match of each dropped record if all records of the source are decided in one batch."""
    recipe = recipe_of(prefer=[prefer])
    fingerprint = Fingerprinter(recipe)
    raws = [bytes(record.raw) for record in client[DATABASE].pages.with_options(RAW).find().sort("_id", 1)]
    ids, prints = list(map(id_of, raws)), fingerprint(raws)
    keepers = Keepers(recipe, 1 << 40)
    entered = keepers.add_texts(RawIds.of(ids), prints)
    decision = decide(ids, prints, entered.texts, recipe.matching, keepers, by_rank=True)
    return {
        decode(raw_id)["_id"]: (decode(match.keeper)["_id"], match.distance, match.similarity)
        for raw_id, verdict in zip(ids, decision.verdicts, strict=True)
        if (match := verdict.match) is not None
    }


def left(client: MongoClient[dict[str, Any]]) -> dict[str, str]:
    """Return a digest of the target, and of each kind of rows without run and time."""
    digests = {}
    for name in ("unique", "unique.dedup.dropped", "unique.dedup.exceptions"):
        state = hashlib.sha256()
        for document in client[DATABASE][name].find({}, {"run": 0, "at": 0}).sort("_id", 1):
            state.update(repr(document).encode())
        digests[name] = state.hexdigest()
    return digests


def numbered(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the records of all files, with numbers as ids, because ids of two files may be equal."""
    for number, record in enumerate(chain.from_iterable(map(documents, files))):
        yield {**record, "_id": number}


def fill_from(files: Sequence[Path], server: Server) -> None:
    """Fill the source with the records of files."""
    with MongoClient[dict[str, Any]](server.uri) as client:
        fill(numbered(files), client)


def sets(data: Path | None, count: int) -> dict[str, Callable[[Server], object]]:
    """Return a function for each set that fills the source with it."""
    found: dict[str, Callable[[Server], object]] = {}
    if data:
        files = {name: data / name / "docs.jsonl.gz" for name in REAL}
        found |= {name: partial(fill_from, [file]) for name, file in files.items()}
        found[TOGETHER] = partial(fill_from, list(files.values()))
    for name, collection in MADE_UP.items():
        found[name] = partial(_refill, collection, count)
    return found


def _refill(collection: Collection, count: int, server: Server) -> None:
    refill(server.uri, collection, count)


def move_to_reference(server: Server) -> None:
    """Move every second record of the source to the reference."""
    with MongoClient[dict[str, Any]](server.uri) as client:
        pages = client[DATABASE].pages
        ids = [record["_id"] for record in pages.find({}, {"_id": 1}).sort("_id", 1)][::2]
        client[DATABASE].drop_collection("tests")
        for some in chunked(ids, 1_000):
            client[DATABASE].tests.insert_many(pages.find({"_id": {"$in": list(some)}}))
            pages.delete_many({"_id": {"$in": list(some)}})


def compare(server: Server, name: str, cores: int, parts: Sequence[int], prefer: str, more: str) -> bool:
    """Decide the source locally and on Spark, and print a row; return whether all results are equal."""
    here, answers, others = decided_here(server, more), [], 0
    at_once: Matches = {}
    if prefer:
        with MongoClient[dict[str, Any]](server.uri) as client:
            at_once = dropped_in_one_batch(client, prefer)
    for each in parts:
        with TemporaryDirectory() as folder:
            there = decided_on_spark(server, f"local[{cores}]", each * cores, Path(folder), more)
        if prefer:
            # Rows name their plans, whose numbers differ.
            is_equal = there.left["unique"] == here.left["unique"]
            is_equal &= there.left["unique.dedup.exceptions"] == here.left["unique.dedup.exceptions"]
            is_equal &= there.dropped.keys() == here.dropped.keys() and _are_equal(there.dropped, at_once)
            others = sum(match[0] != here.dropped[raw_id][0] for raw_id, match in there.dropped.items())
        else:
            is_equal = there.left == here.left
        answers.append("equal" if is_equal else "DIFFERENT")
    duplicate = here.report["duplicate"]
    counts = (here.report["read"], here.report["unique"], duplicate["exact"], duplicate["near"])
    row(name, *counts, *answers, *([others] if prefer else []))
    return set(answers) == {"equal"}


def _are_equal(there: Matches, here: Matches) -> bool:
    """Return whether matches in a ledger, which rounds similarities, equal matches in memory."""
    rounded = {
        raw_id: (keeper, distance, None if similarity is None else round(similarity, PLACES))
        for raw_id, (keeper, distance, similarity) in here.items()
    }
    return rounded == dict(there)


def main() -> None:
    """Compare each set and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="where the real sets are")
    parser.add_argument("--sets", help="some of them; default: all")
    parser.add_argument("--count", type=int, default=300_000, help="records of a made-up set")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--partitions", type=numbers, default=[1, 2, 7], help="a core")
    parser.add_argument("--quick", action="store_true", help="2,000 records of each made-up set")
    parser.add_argument("--prefer", default="", help="a rule of [match] prefer that needs no field")
    parser.add_argument("--reference", action="store_true", help="move half of the records to a reference")
    options = parser.parse_args()
    known = sets(options.data, 2_000 if options.quick else options.count)
    chosen = options.sets.split(",") if options.sets else list(known)
    if options.prefer and options.reference:
        parser.error("--prefer and --reference: choose one")
    more = PREFER.format(rule=options.prefer) if options.prefer else REFERENCE if options.reference else ""
    with open_server() as server:
        columns = [f"{each} a core" for each in options.partitions]
        others = ["other keepers"] if options.prefer else []
        table("set", "records", "unique", "exact", "near", *columns, *others)
        same = []
        for name in chosen:
            known[name](server)
            if options.reference:
                move_to_reference(server)
            same.append(compare(server, name, options.cores, options.partitions, options.prefer, more))
    if not all(same):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
