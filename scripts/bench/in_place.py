"""Time `mark` and `sweep` beside the bare commands, and count the bytes that each way of deciding writes.

    python -m scripts.bench.in_place [--count 1000000] [--quick] [--only rates|disk|promote]

The collection has 30 % copies, and records of about 1 kB. The bare commands take the ids of the dropped
records, 2,000 at a time: `updateMany` sets the same field in all, `deleteMany` removes them, and the rows
with `insertMany` first copy them. Rows "that compare" read the records, and change those that are still
equal, byte for byte: with the job's filters, of a hundred records each, or with a command for each record.
They are the least that a program can do which never loses an edit. Each figure is the median of `--turns`
turns; in each turn all commands run one after the other, on the same records.

Bytes are what the server's storage engine and its journal have written, after a checkpoint. Where the server
is a replica set, they include its oplog.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypeAlias

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteMany, DeleteOne, MongoClient, UpdateMany, WriteConcern

from dedup_job.commands.mark import mark
from dedup_job.commands.sweep import open_archive, sweep
from dedup_job.config import load_settings
from dedup_job.mongo.ids import id_of
from dedup_job.mongo.unchanged_filters import filters
from dedup_job.pipeline.command_context import Context
from dedup_job.records import chunked
from scripts.bench.corpus import Mix, generate
from scripts.bench.measure import (
    COPY,
    DATABASE,
    IN_PLACE,
    MB,
    Commands,
    cpu_seconds,
    fill,
    forget,
    job_commands,
    mongod_of,
    row,
    table,
)
from scripts.dev.local_mongod import Server, open_server

MIX = Mix(spread=0.0, html=0.0, odd=0.0)
RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
IDS_AT_ONCE = 2_000
ARCHIVE, MOVED = "pages_archive", "moved"
MARK = {"dedup": {"keeper": 1, "similarity": 0.9, "reason": "near", "run": "20261124T000000-0000"}}
Ids: TypeAlias = Sequence[Any]
# Records/s, and microseconds of processor time a record: of this process, and of the server.
Cost: TypeAlias = tuple[float, float, float]


def written(client: MongoClient[dict[str, Any]]) -> int:
    """Return the bytes that the server has written to its data files and its journal, after a checkpoint."""
    client.admin.command("fsync")
    engine = client.admin.command("serverStatus")["wiredTiger"]
    return int(engine["block-manager"]["bytes written"] + engine["log"]["log bytes written"])


def on_disk(client: MongoClient[dict[str, Any]]) -> int:
    """Return the bytes of the benchmark's data files."""
    return int(client[DATABASE].command("dbStats")["totalSize"])


class BareCommands:
    """The commands of MongoDB that are compared with the job's; each takes the ids of some records."""

    def __init__(self, client: MongoClient[dict[str, Any]]) -> None:
        database = client.get_database(DATABASE, write_concern=WriteConcern("majority", j=True))
        self.pages, self.moved = (database[name].with_options(RAW) for name in ("pages", MOVED))

    def update(self, ids: Ids) -> None:
        """Set one mark in all of these records."""
        self.pages.update_many({"_id": {"$in": ids}}, {"$set": MARK})

    def update_compared(self, ids: Ids) -> None:
        """Set one mark in these records, where they are unchanged."""
        self.pages.bulk_write(
            [UpdateMany(condition, {"$set": MARK}) for condition, _ in filters(self._read(ids))],
            ordered=False,
        )

    def delete(self, ids: Ids) -> None:
        """Remove these records."""
        self.pages.delete_many({"_id": {"$in": ids}})

    def copy_and_delete(self, ids: Ids) -> None:
        """Copy these records to another collection, and remove them."""
        self._copy(ids)
        self.delete(ids)

    def copy_and_delete_compared(self, ids: Ids) -> None:
        """Copy these records to another collection, and remove them where they are unchanged."""
        removals = [DeleteMany(condition) for condition, _ in filters(self._copy(ids))]
        self.pages.bulk_write(removals, ordered=False)

    def copy_and_delete_each(self, ids: Ids) -> None:
        """Copy these records to another collection, and remove them one by one, where they are unchanged."""
        removals = [DeleteOne(condition) for condition, _ in filters(self._copy(ids), 1)]
        self.pages.bulk_write(removals, ordered=False)

    def _copy(self, ids: Ids) -> Mapping[bytes, bytes]:
        found = self._read(ids)
        self.moved.insert_many(map(RawBSONDocument, found.values()), ordered=False)
        return found

    def _read(self, ids: Ids) -> Mapping[bytes, bytes]:
        return {id_of(one.raw): one.raw for one in self.pages.find({"_id": {"$in": ids}})}


class Rates:
    """Measures commands of the job, and bare commands, on the dropped records of one collection."""

    def __init__(self, server: Server, client: MongoClient[dict[str, Any]], commands: Commands) -> None:
        self._mongod, self._commands = mongod_of(server), commands
        self._database = client[DATABASE]
        self._pages = client[DATABASE].pages.with_options(RAW)
        self._saved = list(self._pages.find())
        ids = [found["_id"] for found in client[DATABASE]["pages.dedup.dropped"].find({}, {"_id": 1})]
        self._dropped = list(chunked(ids, IDS_AT_ONCE))
        self._records = len(ids)
        self.costs: dict[str, list[Cost]] = defaultdict(list)

    def bare(self, name: str, command: Callable[[Ids], None]) -> None:
        """Measure a bare command on all dropped records."""

        def work() -> None:
            for ids in self._dropped:
                command(ids)

        self._reset()
        self._measure(name, work)

    def job(self, name: str, work: Callable[[Context], object]) -> None:
        """Measure a command of the job in this process, from its first question to the server."""
        self._reset()
        with Context(load_settings(self._commands.settings)) as context:
            self._measure(name, lambda: work(context))

    def median(self, name: str) -> Cost:
        """Return the median of each figure of a command."""
        rate, own, server = map(median, zip(*self.costs[name], strict=True))
        return rate, own, server

    def ratio(self, name: str, other: str) -> float:
        """Return how many times as long a command takes as another one: the median over the turns."""
        pairs = zip(self.costs[name], self.costs[other], strict=True)
        return median(theirs[0] / own[0] for own, theirs in pairs)

    def _reset(self) -> None:
        """Put all records back, without marks."""
        for name in (ARCHIVE, MOVED):
            self._database.drop_collection(name)
        self._pages.delete_many({})
        for some in chunked(self._saved, IDS_AT_ONCE):
            self._pages.insert_many(some)
        self._database["pages.dedup.head"].update_one({}, {"$unset": {"mark": "", "sweep": ""}})

    def _measure(self, name: str, work: Callable[[], object]) -> None:
        started, own, server = perf_counter(), process_time(), self._server_seconds()
        work()
        used, micro = self._server_seconds() - server, 1e6 / self._records
        rate = self._records / (perf_counter() - started)
        self.costs[name].append((rate, (process_time() - own) * micro, used * micro))

    def _server_seconds(self) -> float:
        return cpu_seconds(self._mongod) if self._mongod else 0.0


def measure_rates(server: Server, client: MongoClient[dict[str, Any]], count: int, turns: int) -> None:
    """Print the costs of the bare commands and of the job's."""
    fill(generate(count, mix=MIX), client)
    with job_commands(server, target=IN_PLACE) as commands:
        commands.run("backfill")
        bare, rates = BareCommands(client), Rates(server, client, commands)
        for _ in range(turns):
            rates.bare("`updateMany`", bare.update)
            rates.bare("find, `updateMany` that compares", bare.update_compared)
            rates.job("`mark`", lambda context: mark(context, lambda count: None))
            rates.bare("`deleteMany`", bare.delete)
            rates.bare("`insertMany`, `deleteMany`", bare.copy_and_delete)
            rates.bare("`insertMany`, `deleteMany` that compares", bare.copy_and_delete_compared)
            rates.bare("`insertMany`, `deleteOne` for each, that compares", bare.copy_and_delete_each)
            rates.job(
                "`sweep`",
                lambda context: sweep(context, open_archive(context, ARCHIVE), lambda count: None),
            )
    table(
        "command", "records/s", "processor time of the job, us a record", "of the server", "time of the job"
    )
    times = {
        name: ", ".join(f"{rates.ratio(job, name):.1f} times for {job}" for job in jobs)
        for jobs, names in (
            (["`mark`"], list(rates.costs)[:2]),
            (["`sweep`"], list(rates.costs)[3:7]),
        )
        for name in names
    }
    for name in rates.costs:
        row(name, *rates.median(name), times.get(name, ""))


def ways(server: Server, client: MongoClient[dict[str, Any]]) -> Iterator[tuple[str, int, int]]:
    """Yield each way, with the bytes that it writes, and the bytes of the data files afterwards."""
    with ExitStack() as stack:
        copying, in_place = (
            stack.enter_context(job_commands(server, target=target)) for target in (COPY, IN_PLACE)
        )
        steps: list[tuple[str, Commands, Sequence[str]]] = [
            ("copy", copying, ["backfill"]),
            ("decide only", in_place, ["backfill"]),
            ("mark, after deciding", in_place, ["mark", "--yes"]),
            ("sweep, after deciding", in_place, ["sweep", "--yes", "--archive", ARCHIVE]),
        ]
        for name, commands, (command, *options) in steps:
            if name == "sweep, after deciding":
                in_place.run("mark", "--clear", "--yes")
            before = written(client)
            commands.run(command, *options)
            yield name, written(client) - before, on_disk(client)
            if commands is copying:
                forget(client)


def measure_disk(server: Server, client: MongoClient[dict[str, Any]], count: int) -> None:
    """Print the bytes that each way writes."""
    fill(generate(count, mix=MIX), client)
    size = client[DATABASE].command("collStats", "pages")
    stored = on_disk(client) / MB
    print(f"\n{size['count']:,} records of {size['avgObjSize']:,} bytes, {stored:,.0f} MB on disk\n")
    table("way", "written, MB", "data files afterwards, MB")
    for name, nbytes, stored in ways(server, client):
        row(name, nbytes / MB, stored / MB)


def measure_promote(server: Server, client: MongoClient[dict[str, Any]], count: int) -> None:
    """Print how long `promote` takes, as a command, with the comparison of all records and without it."""
    fill(generate(count, mix=MIX), client)
    table("command", "seconds", "records/s")
    with job_commands(server) as commands:
        commands.run("backfill")
        for options in ([], ["--skip-verify"]):
            usage, _ = commands.run("promote", "--yes", *options)
            row(f"`{' '.join(['promote', *options])}`", usage.seconds, count / usage.seconds)
            commands.run("promote", "--back", "--yes")


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000, help="records")
    parser.add_argument("--quick", action="store_true", help="20,000 records")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each rate")
    parser.add_argument("--only", choices=("rates", "disk", "promote"), help="print only this table")
    args = parser.parse_args()
    count = 20_000 if args.quick else args.count
    with open_server() as server, MongoClient[dict[str, Any]](server.uri) as client:
        os.environ["DEDUP_SOURCE_URI"] = server.uri
        if args.only in (None, "rates"):
            measure_rates(server, client, count, args.turns)
        if args.only in (None, "disk"):
            measure_disk(server, client, count)
        if args.only in (None, "promote"):
            measure_promote(server, client, count)


if __name__ == "__main__":
    main()
