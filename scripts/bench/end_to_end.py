"""Time `dedup-job backfill`, MongoDB to MongoDB, against the usual job and against the unavoidable steps.

    python -m scripts.bench.end_to_end [docs.jsonl.gz ...] [--baseline seed_baseline.py] [--generated 200000]
        [--texts mixed,short,english] [--runs 3] [--workers 2] [--quick] [--before DIR [--night]]

All candidates work on the same records: JSON objects with `_id` and `data`, one per line, or made-up records,
half of them in HTML. Made-up texts are mixed, in Chinese or English or both, of about 300 characters; short,
of 40 characters; or english, of about 3,000. The usual job works in memory. The candidates take turns. Each
is timed as a whole process, including start-up, and by its own clock, which excludes loading. Processor
seconds are of all its processes; mongod's are in a column of their own.

The floor is the time of the unavoidable steps: a bare find, a bare parse of the HTML, the bare segmenter, and
a bare insert_many of the kept records, for the same records on as many processes as there are workers.

With `--before`, none of these run. This checkout and another checkout of the project, with its own .venv,
decide the same records in turn, and their time and processor time are compared pair by pair. `--night` times
a nightly run: a backfill has decided the first half of the records, and the second half has arrived since.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from pymongo import MongoClient

from scripts.bench.corpus import Mix, generate
from scripts.bench.measure import (
    DATABASE,
    MB,
    Usage,
    documents,
    fill,
    forget,
    job_commands,
    mongod_of,
    numbers,
    row,
    table,
    watched,
)
from scripts.dev.local_mongod import Server, open_server

HEADER = ("records", "who", "documents/s, whole", "own clock", "CPU s", "mongod CPU s", "peak MB", "kept")
# What can be made up; all records have a text.
MIXES = {
    "mixed": Mix(odd=0),
    "short": Mix(odd=0, length=40, spread=0, templates=0),
    "english": Mix(odd=0, length=3_000, spread=0.3, templates=0, english=True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run: its usage, its rate by its own clock, and the number of kept records."""

    usage: Usage
    rate: float
    kept: int


def made_up(count: int, mix: str, folder: Path) -> Path:
    """Write made-up records, and return the file."""
    file = folder / f"{mix}-{count}.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for record in generate(count, mix=MIXES[mix]):
            lines.write(json.dumps({"_id": str(record["_id"]), "data": record["data"]}) + "\n")
    return file


def ours(
    server: Server, workers: str, checkout: Path | None = None, night: Sequence[dict[str, Any]] = ()
) -> Outcome:
    """Run a backfill of the source, with this checkout or with another one.

    With records for the `night`, the backfill decides the other records, and the nightly run on these is
    timed.
    """
    with job_commands(server) as commands, MongoClient[dict[str, Any]](server.uri) as client:
        forget(client)
        if checkout:
            folder = checkout.resolve()
            commands = replace(commands, program=[str(folder / ".venv/bin/dedup-job")], folder=folder)
        if night:
            pages = client[DATABASE].pages
            pages.delete_many({"_id": {"$in": [record["_id"] for record in night]}})
            commands.run("backfill", "--workers", workers)
            pages.insert_many(night)
        usage, report = commands.run("run" if night else "backfill", "--workers", workers)
    # An earlier version of the project called unchecked records passed.
    unchecked = report.get("unchecked") or report.get("passed") or {}
    return Outcome(usage, report["docs_per_second"], report["unique"] + sum(unchecked.values()))


def usual(script: Path, file: Path) -> Outcome:
    """Run the usual job on a file."""
    usage, told = watched([sys.executable, str(script), str(file)])
    return Outcome(usage, told["documents_per_second"], told["kept"])


def show(name: str, who: str, count: int, outcomes: Sequence[Outcome]) -> None:
    """Print the medians of some runs."""
    usage = Usage.median([one.usage for one in outcomes])
    whole, own = count / usage.seconds, median(one.rate for one in outcomes)
    server = usage.server_cpu or ""
    row(name, who, whole, own, usage.cpu, server, usage.peak / MB, outcomes[-1].kept)


@dataclass(frozen=True, slots=True)
class Floor:
    """The seconds and processor seconds of each bare step."""

    steps: Mapping[str, Mapping[str, float]]
    server_cpu: float | None

    def sum(self, key: str) -> float:
        """Return the sum over the steps."""
        return sum(step[key] for step in self.steps.values())


def bare(server: Server, workers: str) -> Floor:
    """Run the bare steps on the records of the source and the target."""
    command = [sys.executable, "-m", "scripts.bench.floor", server.uri, "--workers", workers]
    usage, steps = watched(command, mongod=mongod_of(server))
    return Floor(steps, usage.server_cpu)


def compare(name: str, file: Path, args: argparse.Namespace, server: Server) -> None:
    """Run all candidates in turn; print a row for each, and the ratios of their times."""
    with MongoClient[dict[str, Any]](server.uri) as client:
        count = fill(documents(file), client)
    mine, floors, others = [], [], []
    for _ in range(args.runs):
        mine.append(ours(server, args.workers))
        floors.append(bare(server, args.workers))
        if args.baseline:
            others.append(usual(args.baseline, file))
    show(name, "**dedup-job**", count, mine)
    if others:
        show(name, "the usual job", count, others)
        pairs = list(zip(mine, others, strict=True))
        ratios = [
            median(other.usage.seconds / own.usage.seconds for own, other in pairs),
            median(own.rate / other.rate for own, other in pairs),
            median(other.usage.cpu / own.usage.cpu for own, other in pairs),
        ]
        row(name, "ours against it, times", *ratios, "", "", "")
    show_floor(name, count, floors)
    above = [own.usage.cpu / floor.sum("cpu") for own, floor in zip(mine, floors, strict=True)]
    row(name, "ours against the floor, times", "", "", median(above), "", "", "")
    row(name, "from pair to pair", "", "", f"{min(above):.2f} to {max(above):.2f}", "", "", "")


def compare_before(name: str, file: Path, args: argparse.Namespace, server: Server) -> None:
    """Run this checkout and the other one in turn; print both, and the ratio of their processor times."""
    records = list(documents(file))
    with MongoClient[dict[str, Any]](server.uri) as client:
        count = fill(records, client)
    night = records[count // 2 :] if args.night else []
    checkouts = (None, args.before)
    # A first run of each is not counted: it compiles code and caches it for later runs.
    for checkout in checkouts:
        ours(server, args.workers, checkout)
    pairs = []
    for run in range(args.runs):
        order = checkouts if run % 2 == 0 else checkouts[::-1]
        done = {checkout: ours(server, args.workers, checkout, night) for checkout in order}
        pairs.append((done[None], done[args.before]))
    count = len(night) or count
    sides = [("this checkout", [mine for mine, _ in pairs]), ("the one before", [one for _, one in pairs])]
    for who, outcomes in sides:
        show(name, who, count, outcomes)
        own = median(one.usage.own_cpu for one in outcomes)
        row(name, f"of {who} the deciding process", "", "", own, "", "", "")
        worker = median(one.usage.worker_peak for one in outcomes)
        row(name, f"of {who} a worker", "", "", "", "", worker / MB, "")
    times = [mine.usage.seconds / before.usage.seconds for mine, before in pairs]
    cpus = [mine.usage.cpu / before.usage.cpu for mine, before in pairs]
    row(name, "time and CPU, this against before, times", median(times), "", median(cpus), "", "", "")
    spans = [f"{min(ratios):.2f} to {max(ratios):.2f}" for ratios in (times, cpus)]
    row(name, "from pair to pair", spans[0], "", spans[1], "", "", "")


def show_floor(name: str, count: int, floors: Sequence[Floor]) -> None:
    """Print the medians of the bare steps: their sum, and each step."""
    seconds, cpu = (median(floor.sum(key) for floor in floors) for key in ("seconds", "cpu"))
    server = median(floor.server_cpu or 0.0 for floor in floors)
    row(name, "the floor", count / seconds, "", cpu, server, "", "")
    for step in floors[0].steps:
        seconds, cpu = (median(floor.steps[step][key] for floor in floors) for key in ("seconds", "cpu"))
        row(name, f"of it {step}", count / seconds, "", cpu, "", "", "")


def sources(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each set of records, and its file."""
    yield from ((file.resolve().parent.name, file) for file in args.files)
    yield from (
        (f"{count:,} {mix} made up", made_up(count, mix, folder))
        for mix in args.texts.split(",")
        for count in args.generated
    )


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--baseline", type=Path, help="the usual job; left out where none is given")
    parser.add_argument(
        "--generated", type=numbers, default=[200_000], help='sizes of made-up sets; "" for none'
    )
    parser.add_argument("--texts", default="mixed", help="kinds of made-up texts: mixed, short, english")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout to compare with, alone")
    parser.add_argument("--night", action="store_true", help="with --before: a nightly run on half of them")
    parser.add_argument("--quick", action="store_true", help="one run, and 10,000 generated records")
    args = parser.parse_args()
    if args.quick:
        args.runs, args.generated = 1, [10_000]
    table(*HEADER)
    with tempfile.TemporaryDirectory() as folder, open_server() as server:
        for name, file in sources(args, Path(folder)):
            (compare_before if args.before else compare)(name, file, args, server)


if __name__ == "__main__":
    main()
