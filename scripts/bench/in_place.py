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
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, WriteConcern

from dedup_job.commands.mark import mark
from dedup_job.commands.sweep import open_archive, sweep
from dedup_job.config import check_settings
from dedup_job.pipeline.context import Context
from dedup_job.records import chunked
from scripts.bench.corpus import Mix, generate
from scripts.bench.measure import DATABASE, MB, Commands, cpu_seconds, fill, mongod_of, row, table
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

    def bare(self, name: str, command: Callable[[Sequence[Any]], None]) -> None:
        """Run a bare command on all dropped records, and print its cost."""
        lists = self.dropped()

        def work() -> None:
            for ids in lists:
                command(ids)

        self._show(name, work)

    def job(self, name: str, work: Callable[[Context], object]) -> None:
        """Run a command of the job in this process, without its start, and print its cost."""
        with Context(check_settings(tomllib.loads(SETTINGS + IN_PLACE), "bench")) as context:
            self._show(name, lambda: work(context))

    def _show(self, name: str, work: Callable[[], object]) -> None:
        records, mongod = sum(map(len, self.dropped())), mongod_of(self._server)
        started, own, server = perf_counter(), process_time(), cpu_seconds(mongod) if mongod else 0.0
        work()
        used = (cpu_seconds(mongod) if mongod else 0.0) - server
        micro = 1e6 / records
        row(name, records / (perf_counter() - started), (process_time() - own) * micro, used * micro)


def measure_rates(bench: Bench) -> None:
    """Print the costs of the bare commands and of the job's."""
    table("command", "records/s", "processor time of the job, us a record", "of the server")
    bench.refill()
    bench.commands(IN_PLACE).run("backfill")
    saved = list(bench.database.pages.with_options(RAW).find())
    steps: list[Callable[[], None]] = [
        lambda: bench.bare("`updateMany`", bench.update_many),
        lambda: bench.job("`mark`", lambda context: mark(context, lambda count: None)),
        lambda: bench.bare("`deleteMany`", bench.delete_many),
        lambda: bench.bare("`insert_many`, then `deleteMany`", bench.copy_and_delete),
        lambda: bench.job(
            "`sweep`",
            lambda context: sweep(context, open_archive(context, ARCHIVE), lambda count: None),
        ),
    ]
    for step in steps:
        bench.database.pages.delete_many({})
        for some in chunked(saved, IDS_AT_ONCE):
            bench.database.pages.with_options(RAW).insert_many(some)
        step()


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
