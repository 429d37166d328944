"""Times `dedup-job backfill`, MongoDB to MongoDB, beside the job as it is usually done, and beside the floor.

    python -m scripts.bench_end_to_end [docs.jsonl.gz ...] --baseline seed_baseline.py [--generated 200000]
        [--runs 3] [--workers 2] [--quick]

All work on the same records: one JSON object a line with `_id` and `data`, or made-up ones with HTML.  The
usual job works in memory, and runs in turn with ours.  Each is timed as a whole process, start-up included,
and by its own clock, which leaves loading out.  Processor seconds are those of all processes; mongod's stand
apart.

The floor is what nobody can do without: a bare find, a bare parse of what is HTML, a bare rjieba.cut, and a
bare insert_many of what we kept, each for the same records on as many processes as we have workers.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pymongo import MongoClient

from scripts.corpus import Mix, generate
from scripts.local_mongod import Server, open_server
from scripts.measure import (
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

HEADER = ("records", "who", "documents/s, whole", "own clock", "CPU s", "mongod CPU s", "peak MB", "kept")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run took, the rate by its own clock, and what it kept."""

    usage: Usage
    rate: float
    kept: int


def made_up(count: int, folder: Path) -> Path:
    """Write made-up records, all of them with a text, and return the file."""
    file = folder / f"{count}.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for record in generate(count, mix=Mix(odd=0)):
            lines.write(json.dumps({"_id": str(record["_id"]), "data": record["data"]}) + "\n")
    return file


def ours(server: Server, workers: str) -> Outcome:
    """Run the backfill on what the source holds."""
    with job_commands(server) as commands, MongoClient[dict[str, Any]](server.uri) as client:
        forget(client)
        usage, report = commands.run("backfill", "--workers", workers)
    return Outcome(usage, report["docs_per_second"], report["unique"] + sum(report["passed"].values()))


def usual(script: Path, file: Path) -> Outcome:
    """Run the usual job on a file."""
    usage, told = watched([sys.executable, str(script), str(file)])
    return Outcome(usage, told["documents_per_second"], told["kept"])


def show(name: str, who: str, count: int, outcomes: list[Outcome]) -> float:
    """Print the medians of some runs; returns their CPU seconds."""
    usage = Usage.median([one.usage for one in outcomes])
    whole, own = count / usage.seconds, median(one.rate for one in outcomes)
    server = usage.server_cpu or ""
    row(name, who, whole, own, usage.cpu, server, usage.peak / MB, outcomes[-1].kept)
    return usage.cpu


def compare(name: str, file: Path, args: argparse.Namespace, server: Server) -> None:
    """Run both in turn and print a row for each, one for the ratios, and the floor's."""
    with MongoClient[dict[str, Any]](server.uri) as client:
        count = fill(documents(file), client)
    pairs = []
    for _ in range(args.runs):
        pairs.append((ours(server, args.workers), usual(args.baseline, file)))
    us = show(name, "**dedup-job**", count, [pair[0] for pair in pairs])
    show(name, "the usual job", count, [pair[1] for pair in pairs])
    ratios = [
        median(other.usage.seconds / mine.usage.seconds for mine, other in pairs),
        median(mine.rate / other.rate for mine, other in pairs),
        median(other.usage.cpu / mine.usage.cpu for mine, other in pairs),
    ]
    row(name, "ours against it, times", *ratios, "", "", "")
    floor(name, count, us, args, server)


def floor(name: str, count: int, cpu: float, args: argparse.Namespace, server: Server) -> None:
    """Print what the bare steps take, together and one by one, and how far above it we are."""
    command = [sys.executable, "-m", "scripts.floor", server.uri, "--workers", args.workers]
    usage, steps = watched(command, mongod=mongod_of(server))
    seconds, bare = (sum(step[key] for step in steps.values()) for key in ("seconds", "cpu"))
    row(name, "the floor", count / seconds, "", bare, usage.server_cpu, "", "")
    for step, took in steps.items():
        row(name, f"of it {step}", count / took["seconds"], "", took["cpu"], "", "", "")
    row(name, "ours against the floor, times", "", "", cpu / bare, "", "", "")


def sources(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of records, by name."""
    yield from ((file.resolve().parent.name, file) for file in args.files)
    yield from ((f"{count:,} made up", made_up(count, folder)) for count in args.generated)


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--baseline", type=Path, required=True)
    parser.add_argument(
        "--generated", type=numbers, default=[200_000], help='sizes of made-up sets; "" for none'
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--quick", action="store_true", help="one run, and 10,000 generated records")
    args = parser.parse_args()
    if args.quick:
        args.runs, args.generated = 1, [10_000]
    table(*HEADER)
    with tempfile.TemporaryDirectory() as folder, open_server() as server:
        for name, file in sources(args, Path(folder)):
            compare(name, file, args, server)


if __name__ == "__main__":
    main()
