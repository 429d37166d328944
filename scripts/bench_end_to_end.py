"""Times `dedup-job backfill`, MongoDB to MongoDB, against the job as it is usually done, in memory, in turn.

    python -m scripts.bench_end_to_end docs.jsonl.gz --baseline seed_baseline.py [--runs 3] [--workers 2]

Each is a whole process on the same records: one JSON object a line with `_id` and `data`.  Prints the
documents per second of each run, the median of each side, and the ratio pair by pair.
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
        rates: list[tuple[float, float]] = []
        print("| run | dedup-job, documents/s | the usual job, documents/s | ratio | peak MB |")
        print("|---|---|---|---|---|")
        for run in range(args.runs):
            with MongoClient[dict[str, Any]](server.uri) as client:
                count = load(args.file, client)
            seconds, report = timed([*ours, "--workers", args.workers], environment)
            usual, _ = timed(theirs, environment)
            rates.append((count / seconds, count / usual))
            ratio = usual / seconds
            print(f"| {run + 1} | {count / seconds:,.0f} | {count / usual:,.0f} | {ratio:.1f} "
                  f"| {report['peak_rss_mb']:,.0f} |", flush=True)  # fmt: skip
        mine, other = (median(side) for side in zip(*rates, strict=True))
        ratio = median(mine / other for mine, other in rates)
        print(f"| median | {mine:,.0f} | {other:,.0f} | {ratio:.1f} | |")


if __name__ == "__main__":
    main()
