"""Times `dedup-job backfill`, MongoDB to MongoDB, against the job as it is usually done, in memory, in turn.

    python -m scripts.bench_end_to_end docs.jsonl.gz --baseline seed_baseline.py [--runs 3] [--workers 2]

Both work on the same records: one JSON object a line with `_id` and `data`.  Each is timed twice: as a whole
process, start-up included, and by the clock that it prints itself, which leaves loading out (ours counts from
taking the lease to giving it back, the other one from its first record to its last).  Prints documents per
second, the ratios pair by pair, and their medians.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from pymongo import MongoClient

from scripts.local_mongod import open_server

DATABASE = "bench"
SETTINGS = """
[source]
database = "bench"
collection = "pages"
fields = ["data"]
[target]
database = "bench"
collection = "unique"
[recipe]
profile = "{profile}"
"""


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of JSON lines, gzipped or not."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open() as lines:
        yield from map(json.loads, lines)


def load(path: Path, client: MongoClient[dict[str, Any]]) -> int:
    """Fill the source anew; returns how many records it holds."""
    client.drop_database(DATABASE)
    stream = documents(path)
    while batch := list(islice(stream, 1000)):
        client[DATABASE].pages.insert_many(batch, ordered=False)
    return client[DATABASE].pages.estimated_document_count()


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, dict[str, Any]]:
    """Run a command to its end; returns its wall seconds and the JSON object that it prints."""
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - started, json.loads(done.stdout)


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--baseline", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--profile", default="default")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_server() as server:
        settings = Path(folder) / "bench.toml"
        settings.write_text(SETTINGS.format(profile=args.profile))
        environment = {**os.environ, "DEDUP_SOURCE_URI": server.uri}
        ours = [sys.executable, "-m", "dedup_job", "backfill", "-c", str(settings), "--json"]
        theirs = [sys.executable, str(args.baseline), str(args.file)]
        rows: list[list[float]] = []
        print("| run | ours, whole | theirs, whole | ratio | ours, own clock | theirs, own clock | ratio |")
        print("|---|---|---|---|---|---|---|")
        for run in range(args.runs):
            with MongoClient[dict[str, Any]](server.uri) as client:
                count = load(args.file, client)
            seconds, report = timed([*ours, "--workers", args.workers], environment)
            usual, told = timed(theirs, environment)
            own, other = report["docs_per_second"], told["documents_per_second"]
            rows.append([count / seconds, count / usual, usual / seconds, own, other, own / other])
            print(row(str(run + 1), rows[-1]), flush=True)
        print(row("median", [median(column) for column in zip(*rows, strict=True)]))


def row(name: str, figures: list[float]) -> str:
    """Return a line of the table."""
    cells = [
        f"{figure:,.1f}" if place in (2, 5) else f"{figure:,.0f}" for place, figure in enumerate(figures)
    ]
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
