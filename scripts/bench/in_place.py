"""Time `mark` and `sweep` beside the bare commands, and count the bytes that each way of deciding writes.

    python -m scripts.bench.in_place [--count 1000000] [--quick]

The collection has 30 % copies, and records of about 1 kB. The bare commands take the ids of the dropped
records, 2,000 at a time: `updateMany` sets the same field in all, `deleteMany` removes them, and the fourth
row first copies them with `insert_many`. Bytes are what the server's storage engine and its journal have
written, after a checkpoint. Where the server is a replica set, they include its oplog.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, WriteConcern

from dedup_job.records import chunked
from scripts.bench.corpus import Mix, generate
from scripts.bench.measure import DATABASE, MB, Commands, fill, row, table
from scripts.dev.local_mongod import Server, open_server

MIX = Mix(spread=0.0, html=0.0, odd=0.0)
RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
SETTINGS = """
[source]
database = "bench"
collection = "pages"
fields = ["data"]
[target]
"""
COPY, IN_PLACE = 'database = "bench"\ncollection = "unique"\n', "copy = false\n"
IDS_AT_ONCE = 2_000
ARCHIVE = "pages_archive"


def written(client: MongoClient[dict[str, Any]]) -> int:
    """Return the bytes that the server has written to its data files and its journal, after a checkpoint."""
    client.admin.command("fsync")
    engine = client.admin.command("serverStatus")["wiredTiger"]
    return int(engine["block-manager"]["bytes written"] + engine["log"]["log bytes written"])


def on_disk(client: MongoClient[dict[str, Any]]) -> int:
    """Return the bytes of the benchmark's data files."""
    return int(client[DATABASE].command("dbStats")["totalSize"])


class Bench:
    """A collection, the job on it, and the bare commands beside it."""

    def __init__(self, server: Server, client: MongoClient[dict[str, Any]], folder: Path, count: int) -> None:
        self.client, self.count = client, count
        self._server, self._folder = server, folder
        self.database = client.get_database(DATABASE, write_concern=WriteConcern("majority", j=True))

    def commands(self, target: str) -> Commands:
        """Return the job's commands with this `[target]`."""
        path = self._folder / f"{len(target)}.toml"
        path.write_text(SETTINGS + target)
        return Commands(self._server, path)

    def refill(self) -> None:
        """Replace the database by the made-up records."""
        fill(generate(self.count, mix=MIX), self.client)

    def dropped(self) -> list[Sequence[Any]]:
        """Return the ids of the dropped records, in lists."""
        ids = [found["_id"] for found in self.database["pages.dedup.dropped"].find({}, {"_id": 1})]
        return list(chunked(ids, IDS_AT_ONCE))

    def update_many(self, ids: Sequence[Any]) -> None:
        """Set one mark in all of these records."""
        mark = {"keeper": ids[0], "similarity": 0.9, "reason": "near", "run": "20261124T000000-0000"}
        self.database.pages.update_many({"_id": {"$in": ids}}, {"$set": {"dedup": mark}})

    def delete_many(self, ids: Sequence[Any]) -> None:
        """Remove these records."""
        self.database.pages.delete_many({"_id": {"$in": ids}})

    def copy_and_delete(self, ids: Sequence[Any]) -> None:
        """Copy these records to another collection, and remove them."""
        pages = self.database.pages.with_options(RAW)
        self.database["moved"].insert_many(list(pages.find({"_id": {"$in": ids}})), ordered=False)
        self.delete_many(ids)

    def bare(self, name: str, command: Callable[[Sequence[Any]], None]) -> float:
        """Run a bare command on all dropped records; print its rate, and return it."""
        lists = self.dropped()
        started = perf_counter()
        for ids in lists:
            command(ids)
        rate = sum(map(len, lists)) / (perf_counter() - started)
        row(name, rate, "")
        return rate

    def job(self, name: str, field: str, beside: Sequence[tuple[str, float]], *options: str) -> None:
        """Run a command of the job; print its rate, and how many times as fast each bare command is."""
        said = self.commands(IN_PLACE).run(name, "--yes", *options)[1]
        rate = said[field] / said["seconds"]
        row(f"`{name}`", rate, "; ".join(f"{bare / rate:.1f} times {other}" for other, bare in beside))


def measure_rates(bench: Bench) -> None:
    """Print the rates of the bare commands and of the job's."""
    table("command", "records/s", "the bare command is faster")
    bench.refill()
    bench.commands(IN_PLACE).run("backfill")
    update = bench.bare("`updateMany`", bench.update_many)
    bench.database.pages.update_many({}, {"$unset": {"dedup": ""}})
    bench.job("mark", "marked", [("updateMany", update)])
    bench.commands(IN_PLACE).run("mark", "--clear", "--yes")
    saved = list(bench.database.pages.with_options(RAW).find())
    rates = []
    for name, command in (
        ("`deleteMany`", bench.delete_many),
        ("`insert_many`, then `deleteMany`", bench.copy_and_delete),
    ):
        rates.append((name.replace("`", ""), bench.bare(name, command)))
        for some in chunked(saved, IDS_AT_ONCE):
            missing = {one["_id"] for one in some}
            missing -= {one["_id"] for one in bench.database.pages.find({"_id": {"$in": [*missing]}}, {})}
            if missing:
                again = [one for one in some if one["_id"] in missing]
                bench.database.pages.with_options(RAW).insert_many(again)
    bench.job("sweep", "moved", rates, "--archive", ARCHIVE)


def ways(bench: Bench) -> Iterator[tuple[str, int, int]]:
    """Yield each way, with the bytes that it writes, and the bytes of the data files afterwards."""
    for name, target in (("copy", COPY), ("decide only", IN_PLACE)):
        bench.refill()
        before = written(bench.client)
        bench.commands(target).run("backfill")
        yield name, written(bench.client) - before, on_disk(bench.client)
    for name, options in (("mark", ()), ("sweep", ("--archive", ARCHIVE))):
        before = written(bench.client)
        bench.commands(IN_PLACE).run(name, "--yes", *options)
        yield f"{name}, after deciding", written(bench.client) - before, on_disk(bench.client)
        if name == "mark":
            bench.commands(IN_PLACE).run(name, "--clear", "--yes")


def measure_disk(bench: Bench) -> None:
    """Print the bytes that each way writes."""
    bench.refill()
    size = bench.client[DATABASE].command("collStats", "pages")
    stored = on_disk(bench.client) / MB
    print(f"\n{size['count']:,} records of {size['avgObjSize']:,} bytes, {stored:,.0f} MB on disk\n")
    table("way", "written, MB", "data files afterwards, MB")
    for name, nbytes, stored in ways(bench):
        row(name, nbytes / MB, stored / MB)


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000, help="records")
    parser.add_argument("--quick", action="store_true", help="20,000 records")
    args = parser.parse_args()
    count = 20_000 if args.quick else args.count
    with (
        open_server() as server,
        MongoClient[dict[str, Any]](server.uri) as client,
        TemporaryDirectory() as folder,
    ):
        os.environ["DEDUP_SOURCE_URI"] = server.uri
        bench = Bench(server, client, Path(folder), count)
        measure_rates(bench)
        measure_disk(bench)


if __name__ == "__main__":
    main()
