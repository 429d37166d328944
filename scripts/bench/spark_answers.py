"""Check that Spark makes the same decisions as one machine, record for record, on real and made-up sets.

    python -m scripts.bench.spark_answers [--data DIR] [--sets NAME,...] [--count 300000] [--cores 2]
                                    [--partitions 1,2,7] [--quick]

A local backfill decides a set, then Spark with each number of partitions per core. The target is compared
byte for byte; the rows about dropped and unchecked records are compared without run and time.
`DIR/SET/docs.jsonl.gz` has the records of a real set; `together` is all of them in one collection. `pages`
are made-up texts of many lengths with copies, the other sets are the forms of `scripts.bench.forms`.
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

from pymongo import MongoClient

from scripts.bench.forms import CHANGED, ONE, THIRTY
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


@dataclass(frozen=True, slots=True)
class Decided:
    """The usage of a backfill, its report, and its result."""

    usage: Usage
    report: Mapping[str, Any]
    left: Mapping[str, str]


def decided_here(server: Server) -> Decided:
    """Decide the source on this machine."""
    with TemporaryDirectory() as folder:
        return _decided(server, Path(folder), "")


def decided_on_spark(server: Server, master: str, partitions: int | None, folder: Path) -> Decided:
    """Decide the source on Spark; its event log is written to `events` in the folder."""
    (folder / "events").mkdir()
    cut = f"partitions = {partitions}" if partitions else ""
    return _decided(server, folder, ENGINE.format(master=master, folder=folder, partitions=cut))


def _decided(server: Server, folder: Path, engine: str) -> Decided:
    settings = folder / "bench.toml"
    settings.write_text(settings_text() + engine)
    with MongoClient[dict[str, Any]](server.uri) as client:
        forget(client)
        # With --allow, because nearly all records may be copies.
        usage, report = Commands(server, settings).run("backfill", "--allow")
        return Decided(usage, report, left(client))


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


def compare(server: Server, name: str, cores: int, parts: Sequence[int]) -> bool:
    """Decide the source locally and on Spark, and print a row; return whether all results are equal."""
    here, answers = decided_here(server), []
    for each in parts:
        with TemporaryDirectory() as folder:
            there = decided_on_spark(server, f"local[{cores}]", each * cores, Path(folder))
        answers.append("equal" if there.left == here.left else "DIFFERENT")
    duplicate = here.report["duplicate"]
    counts = (here.report["read"], here.report["unique"], duplicate["exact"], duplicate["near"])
    row(name, *counts, *answers)
    return set(answers) == {"equal"}


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
    options = parser.parse_args()
    known = sets(options.data, 2_000 if options.quick else options.count)
    chosen = options.sets.split(",") if options.sets else list(known)
    with open_server() as server:
        table("set", "records", "unique", "exact", "near", *(f"{each} a core" for each in options.partitions))
        same = []
        for name in chosen:
            known[name](server)
            same.append(compare(server, name, options.cores, options.partitions))
    if not all(same):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
