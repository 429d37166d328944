"""What a backfill on Spark takes, stage by stage, and that it leaves what one machine leaves.

    python -m scripts.bench_spark [--count 200000] [--collection pages|forms] [--data FILE ...]
                                  [--masters "local[1]" "local[2]"] [--partitions N] [--quick]

The records are made up as `scripts/made_up.py` says (`pages`: texts of about 230 letters, 30 % copies;
`forms`: one form of 60 words of which nine are filled in, 5 % copies, so that nearly all share some keys), or
those of JSON-lines files.  A local backfill decides them first; then Spark does, by each master, and target
and rows on what was dropped are compared, byte for byte, and row for row without run and time.

The figures of a stage come from Spark's event log: seconds of the clock, seconds that its tasks took in all,
the median task and the longest one, bytes shuffled and spilled.  Processor time is that of all processes of
the command, Spark's Java and Python workers among them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from pymongo import MongoClient

from scripts.local_mongod import Server, open_server
from scripts.made_up import Collection, Forms, Pages, refill
from scripts.measure import DATABASE, MB, SETTINGS, Commands, documents, fill, forget, row, table

COLLECTIONS = {
    "pages": Collection(Pages()),
    "forms": Collection(Forms(forms=1, words_each=60, fields=3, least=0.3, most=1.0), copies=0.05, near=1.0),
}
ENGINE = """
[engine]
master = "{master}"
work = "{folder}/work"
{partitions}
[engine.conf]
"spark.eventLog.enabled" = "true"
"spark.eventLog.dir" = "file://{folder}/events"
"spark.eventLog.compress" = "false"
"spark.eventLog.rolling.enabled" = "false"
"""


@dataclass
class Tasks:
    """What the tasks of a stage took: seconds of each by its Spark stage, bytes, and when jobs ran."""

    seconds: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    shuffled: int = 0
    spilled: int = 0
    began: float = 0.0
    ended: float = 0.0

    @property
    def longest(self) -> tuple[float, float]:
        """Median and greatest seconds of the tasks of that Spark stage which took longest in all."""
        most = max(self.seconds.values(), key=sum, default=[0.0])
        return median(most), max(most)


def tasks_by_stage(log: Path) -> dict[str, Tasks]:
    """Return what the event log says of each stage, in order."""
    found: dict[str, Tasks] = {}
    names: dict[int, str] = {}
    jobs: dict[int, str] = {}
    for event in map(json.loads, log.open()):
        kind = event["Event"]
        if kind == "SparkListenerJobStart":
            name = (event.get("Properties") or {}).get("spark.job.description") or "carried out"
            jobs[event["Job ID"]] = name
            names |= dict.fromkeys(event["Stage IDs"], name)
            tasks = found.setdefault(name, Tasks(began=event["Submission Time"]))
        elif kind == "SparkListenerJobEnd":
            found[jobs[event["Job ID"]]].ended = event["Completion Time"]
        elif kind == "SparkListenerTaskEnd" and (metrics := event.get("Task Metrics")):
            tasks = found[names[event["Stage ID"]]]
            tasks.seconds[event["Stage ID"]].append(metrics["Executor Run Time"] / 1000)
            tasks.shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            tasks.spilled += metrics["Disk Bytes Spilled"]
    return found


def left(client: MongoClient[dict[str, Any]]) -> dict[str, str]:
    """Return a digest of the target and one of the rows on dropped records, less run and time."""
    digests = {}
    for name in ("unique", "unique.dedup.dropped", "unique.dedup.exceptions"):
        state = hashlib.sha256()
        for document in client[DATABASE][name].find({}, {"run": 0, "at": 0}).sort("_id", 1):
            state.update(repr(document).encode())
        digests[name] = state.hexdigest()
    return digests


def on_spark(server: Server, master: str, partitions: int | None) -> dict[str, str]:
    """Decide what the source holds on Spark and print what it took; returns what it left."""
    with tempfile.TemporaryDirectory() as folder, MongoClient[dict[str, Any]](server.uri) as client:
        (Path(folder) / "events").mkdir()
        settings = Path(folder) / "bench.toml"
        cut = f"partitions = {partitions}" if partitions else ""
        engine = ENGINE.format(master=master, folder=folder, partitions=cut)
        settings.write_text(SETTINGS.format(profile="default") + engine)
        forget(client)
        usage, report = Commands(server, settings).run("backfill", "--engine", "spark")
        events = next((Path(folder) / "events").iterdir())
        print(
            f"\n{master}: {usage.seconds:,.0f} s, {usage.cpu:,.0f} s of processor time, mongod "
            f"{usage.server_cpu:,.0f} s, peak {usage.peak / MB:,.0f} MB, {report['unique']:,} unique\n"
        )
        table("stage", "s", "s of its tasks", "median task s", "longest task s", "shuffled MB", "spilled MB")
        for name, tasks in tasks_by_stage(events).items():
            seconds = sum(map(sum, tasks.seconds.values()))
            sizes = (tasks.shuffled / MB, tasks.spilled / MB)
            row(name, (tasks.ended - tasks.began) / 1000, seconds, *tasks.longest, *sizes)
        return left(client)


def main() -> None:
    """Fill a collection, decide it here and on Spark, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--collection", choices=COLLECTIONS, default="pages")
    parser.add_argument("--data", type=Path, nargs="+", help="JSON lines in the place of made-up records")
    parser.add_argument("--masters", nargs="+", default=["local[1]", "local[2]"])
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--quick", action="store_true", help="two thousand records on two cores")
    options = parser.parse_args()
    if options.quick:
        options.count, options.masters = 2_000, ["local[2]"]
    with open_server() as server:
        run(server, options)


def run(server: Server, options: argparse.Namespace) -> None:
    """Do what the options say."""
    with MongoClient[dict[str, Any]](server.uri) as client, tempfile.TemporaryDirectory() as folder:
        if options.data:
            fill(numbered(options.data), client)
        else:
            refill(server.uri, COLLECTIONS[options.collection], options.count)
        settings = Path(folder) / "bench.toml"
        settings.write_text(SETTINGS.format(profile="default"))
        usage, report = Commands(server, settings).run("backfill")
        duplicate = report["duplicate"]
        print(
            f"local: {usage.seconds:,.0f} s, {usage.cpu:,.0f} s of processor time, mongod "
            f"{usage.server_cpu:,.0f} s, peak {usage.peak / MB:,.0f} MB, {report['read']:,} records, "
            f"{report['unique']:,} unique, {duplicate['exact']:,} exact, {duplicate['near']:,} near"
        )
        expected = left(client)
        for master in options.masters:
            same = on_spark(server, master, options.partitions) == expected
            print(
                f"\n{master}: " + ("the same as local, record for record" if same else "DIFFERENT from local")
            )
            if not same:
                raise SystemExit(1)


def numbered(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the records of all files, with numbers for ids: those of two files may be the same."""
    for number, record in enumerate(chain.from_iterable(map(documents, files))):
        yield {**record, "_id": number}


if __name__ == "__main__":
    main()
