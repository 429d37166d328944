"""Measure a backfill on Spark, stage by stage, and check that it gives the same result as one machine.

    python -m scripts.bench.spark [--count 200000] [--collection pages|forms|key] [--data FILE ...]
                                  [--masters "local[1],local[2]"] [--pinned] [--partitions N] [--quick]

The records come from JSON-lines files, or are made up by `scripts/bench/made_up.py`:

    pages  texts of about 230 letters, 30 % copies
    forms  one form of 60 words, nine of them filled in; 5 % copies; nearly all records share some keys
    key    one form of 100 words, three of them filled in; all texts match, and each has several common keys

A local backfill decides them first, then Spark with each master. The target is compared byte for byte, and
the rows about dropped records are compared without run and time.

The figures of a stage come from Spark's event log: seconds by the clock, the sum of the seconds of its tasks,
and bytes shuffled and spilled. The table also shows the Spark stage with the largest ratio of its longest to
its median task, in seconds (among stages with a task of at least a second) and in rows. Tasks without rows do
not count there: Spark splits a Parquet file between several tasks, and one of them gets all rows. Processor
time is of all processes of the command, including Spark's Java and Python workers. With `local[1]`, Java and
its Python worker are two processes, and Java compiles and collects garbage in further threads, so they use
more than one processor if there are more; `--pinned` limits `local[n]` to n processors.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from scripts.bench.made_up import Collection, Forms, Pages, refill
from scripts.bench.measure import MB, Usage, row, table
from scripts.bench.spark_answers import decided_here, decided_on_spark, fill_from
from scripts.dev.local_mongod import Server, open_server

COLLECTIONS = {
    "pages": Collection(Pages()),
    "forms": Collection(Forms(forms=1, words_each=60, fields=3, least=0.3, most=1.0), copies=0.05, near=1.0),
    "key": Collection(Forms(forms=1, words_each=100, fields=1, least=1.0, most=1.0), copies=0),
}
OTHER = "carried out"
# Stages that read or write MongoDB.
WITH_IO = {"records", OTHER}
# The length of a task of less than this many seconds depends on the machine more than on its work.
SHORT = 1.0


class Uneven(NamedTuple):
    """The median and the longest task of a Spark stage."""

    usual: float = 0.0
    most: float = 0.0

    @property
    def times(self) -> float:
        """The longest task divided by the median task."""
        return self.most / self.usual if self.usual else 1.0


@dataclass
class Tasks:
    """The tasks of a stage: seconds and rows of each by Spark stage, bytes, and when they ran.

    Attributes:
        seconds: Seconds of the tasks with rows, by Spark stage.
        rows: Rows of the same tasks.
        total: Seconds of all tasks.
    """

    seconds: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    rows: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    total: float = 0.0
    shuffled: int = 0
    spilled: int = 0
    began: float = 0.0
    ended: float = 0.0

    def uneven(self, of: Mapping[int, list[float]]) -> Uneven:
        """Return the Spark stage with the largest ratio of longest to median task, among long stages."""
        long = [one for one in self.seconds if max(self.seconds[one]) >= SHORT]
        found = [Uneven(median(of[one]), max(of[one])) for one in long if of[one]]
        return max(found, key=lambda uneven: uneven.times, default=Uneven())


def tasks_by_stage(log: Path) -> dict[str, Tasks]:
    """Return the tasks of each stage from the event log, in order."""
    found: dict[str, Tasks] = {}
    names: dict[int, str] = {}
    jobs: dict[int, str] = {}
    for event in map(json.loads, log.open()):
        kind = event["Event"]
        if kind == "SparkListenerJobStart":
            name = (event.get("Properties") or {}).get("spark.job.description") or OTHER
            # A description with spaces is Spark's own, for listing files.
            name = OTHER if " " in name else name
            jobs[event["Job ID"]] = name
            names |= dict.fromkeys(event["Stage IDs"], name)
            tasks = found.setdefault(name, Tasks(began=event["Submission Time"]))
        elif kind == "SparkListenerJobEnd":
            found[jobs[event["Job ID"]]].ended = event["Completion Time"]
        elif kind == "SparkListenerTaskEnd" and (metrics := event.get("Task Metrics")):
            tasks, stage = found[names[event["Stage ID"]]], event["Stage ID"]
            tasks.total += metrics["Executor Run Time"] / 1000
            read = (
                metrics["Shuffle Read Metrics"]["Total Records Read"],
                metrics["Input Metrics"]["Records Read"],
            )
            if rows := sum(read):
                tasks.rows[stage].append(rows)
                tasks.seconds[stage].append(metrics["Executor Run Time"] / 1000)
            tasks.shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            tasks.spilled += metrics["Disk Bytes Spilled"]
        elif kind == "SparkListenerApplicationEnd":
            # Manifests, and the commit after all stages.
            rest = found.pop(OTHER, Tasks())
            rest.began = max(tasks.ended for tasks in found.values())
            found[OTHER] = replace(rest, ended=event["Timestamp"])
    return found


def show(stages: Mapping[str, Tasks]) -> None:
    """Print the figures of each stage."""
    head = ("stage", "s", "s of its tasks", "longest task s", "times the median", "rows, times the median")
    table(*head, "shuffled MB", "spilled MB")
    for name, tasks in stages.items():
        seconds, rows = tasks.uneven(tasks.seconds), tasks.uneven(tasks.rows)
        sizes = (tasks.shuffled / MB, tasks.spilled / MB)
        took = (tasks.ended - tasks.began) / 1000
        row(name, took, tasks.total, seconds.most, seconds.times, rows.times, *sizes)


def faster(one: Mapping[str, Tasks], other: Mapping[str, Tasks]) -> float:
    """Return the ratio of the seconds of two runs, over the stages without MongoDB."""
    names = one.keys() - WITH_IO
    return sum(one[n].ended - one[n].began for n in names) / sum(
        other[n].ended - other[n].began for n in names
    )


@contextmanager
def pinned(master: str) -> Iterator[None]:
    """Limit processes that are started inside the block to as many processors as `local[n]` names.

    With another master, they may use all processors.
    """
    all_of_them = os.sched_getaffinity(0)
    if cores := re.fullmatch(r"local\[(\d+)\]", master):
        os.sched_setaffinity(0, sorted(all_of_them)[: int(cores[1])])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def told(name: str, usage: Usage, report: Mapping[str, Any]) -> None:
    """Print the total figures of a backfill."""
    duplicate = report["duplicate"]
    print(
        f"\n{name}: {usage.seconds:,.0f} s, {usage.cpu:,.0f} s of processor time, mongod "
        f"{usage.server_cpu:,.0f} s, peak {usage.peak / MB:,.0f} MB; {report['read']:,} records, "
        f"{report['unique']:,} unique, {duplicate['exact']:,} exact, {duplicate['near']:,} near\n"
    )


def main() -> None:
    """Fill a collection, decide it locally and on Spark, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--collection", choices=COLLECTIONS, default="pages")
    parser.add_argument("--data", type=Path, nargs="+", help="JSON lines in the place of made-up records")
    parser.add_argument("--masters", default="local[1],local[2]", metavar="MASTER,...")
    parser.add_argument("--pinned", action="store_true", help="so many processors as the master has cores")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--quick", action="store_true", help="two thousand records on two cores")
    options = parser.parse_args()
    if options.quick:
        options.count, options.masters = 2_000, "local[2]"
    with open_server() as server:
        run(server, options)


def run(server: Server, options: argparse.Namespace) -> None:
    """Run the benchmark with these options."""
    if options.data:
        fill_from(options.data, server)
    else:
        refill(server.uri, COLLECTIONS[options.collection], options.count)
    here = decided_here(server)
    told("local", here.usage, here.report)
    found: list[Mapping[str, Tasks]] = []
    for master in options.masters.split(","):
        with tempfile.TemporaryDirectory() as folder, pinned(master if options.pinned else ""):
            there = decided_on_spark(server, master, options.partitions, Path(folder))
            told(master, there.usage, there.report)
            found.append(tasks_by_stage(next((Path(folder) / "events").iterdir())))
        show(found[-1])
        if there.left != here.left:
            raise SystemExit(f"\n{master}: DIFFERENT from local")
        print(f"\n{master}: equal to local, record for record")
    if len(found) > 1:
        print(f"\nstages without MongoDB: {faster(found[0], found[-1]):.2f} times as fast by the last master")


if __name__ == "__main__":
    main()
