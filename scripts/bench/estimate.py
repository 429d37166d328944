"""Compare the forecast of `dedup-job estimate` with the backfill of the same collection.

    python -m scripts.bench.estimate [--data DIR] [--sets leetcode] [--together] [--generated 50000]
        [--workers 2]

DIR/SET/docs.jsonl.gz has the records of a set (`_id`, `data`); the generated records are made up. With
`--together` all sets are also one collection, in random order. Memory is the peak of the process and its
workers together; disk is the size of target and ledger that the server reports at the end.

`--simulate` prints what samples say about duplicates in collections whose copies lie in several ways, without
texts or a server.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pymongo import MongoClient

from dedup_job.analysis.forecast import dropped_share
from scripts.bench.corpus import generate
from scripts.bench.measure import DATABASE, MB, Commands, documents, fill, job_commands, numbers, row, table
from scripts.dev.local_mongod import open_server


def sources(args: argparse.Namespace) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """Yield the name and the records of each source."""
    for count in args.generated:
        yield f"{count:,} generated", generate(count)
    for name in args.sets if args.data else []:
        yield name, documents(args.data / name / "docs.jsonl.gz")
    if args.together and args.data:
        mixed = [record for name in args.sets for record in documents(args.data / name / "docs.jsonl.gz")]
        random.Random(1).shuffle(mixed)
        yield "together", ({**record, "_id": number} for number, record in enumerate(mixed))


def stored(client: MongoClient[dict[str, Any]]) -> int:
    """Return the bytes of the target and the ledger on disk, including indexes."""
    # Without fsync, data that is only in the cache is not counted.
    client.admin.command("fsync")
    names = [name for name in client[DATABASE].list_collection_names() if name.startswith("unique")]
    books = [client[DATABASE].command("collStats", name) for name in names]
    return sum(int(book["storageSize"]) + int(book["totalIndexSize"]) for book in books)


def compare(name: str, commands: Commands, workers: str, client: MongoClient[dict[str, Any]]) -> None:
    """Estimate, run, and print a row for each figure."""
    client.admin.command("fsync")
    tried, told = commands.run("estimate", "--workers", workers)
    usage, done = commands.run("backfill", "--workers", workers)
    share = 100 * (done["duplicate"]["exact"] + done["duplicate"]["near"]) / done["read"]
    low, high = (100 * told["dropped"][end] for end in ("low", "high"))
    foretold = [
        ("seconds", told["seconds"], done["seconds"]),
        ("memory, MB", sum(told["memory"].values()) / MB, usage.peak / MB),
        ("disk, MB", sum(told["disk"].values()) / MB, stored(client) / MB),
    ]
    for what, before, after in foretold:
        row(name, what, float(before), float(after), f"{100 * (before / after - 1):+.0f} %")
    row(name, "dropped, %", f"{low:.1f} to {high:.1f}", share, "")
    row(name, "seconds for the estimate itself", tried.seconds, "", "")


RECORDS, SAMPLED, STRETCHES, SAMPLES = 1_000_000, 6_000, 50, 20


def simulate() -> None:
    """Print a row for each made-up collection of a million records: the true share, and what samples say."""
    rng, number = np.random.default_rng(7), np.arange(RECORDS)

    def with_copies(share: float, originals: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.where(rng.random(RECORDS) < share, originals, number)

    table("copies of a million records", "true share, %", "share of the sample", "scaled pairs")
    for name, groups in (
        ("30 % copies, anywhere", with_copies(0.3, rng.integers(RECORDS, size=RECORDS))),
        ("5 % copies, anywhere", with_copies(0.05, rng.integers(RECORDS, size=RECORDS))),
        ("half are copies of 20 pages", with_copies(0.5, -1 - rng.integers(20, size=RECORDS))),
        ("half are copies of 20,000 pages", with_copies(0.5, -1 - rng.integers(20_000, size=RECORDS))),
        ("30 % copies, of the record before", with_copies(0.3, number - number % 2)),
    ):
        length, lows, highs = SAMPLED // STRETCHES, [], []
        for _ in range(SAMPLES):
            starts = rng.choice(RECORDS // length, STRETCHES, replace=False) * length
            stretches = [
                [b"%d" % group for group in groups[start : start + length].tolist()] for start in starts
            ]
            share = dropped_share(RECORDS, stretches, SAMPLED)
            lows.append(100 * share.low)
            highs.append(100 * share.high)
        true = 100 * (1 - len(np.unique(groups)) / RECORDS)
        row(
            name,
            true,
            *(f"{np.median(some):.1f} ({min(some):.1f} to {max(some):.1f})" for some in (lows, highs)),
        )


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", type=lambda text: text.split(","), default=["leetcode"])
    parser.add_argument("--together", action="store_true", help="the sets in one collection too")
    parser.add_argument("--generated", type=numbers, default=[50_000])
    parser.add_argument("--workers", default="2")
    parser.add_argument("--quick", action="store_true", help="10,000 generated records alone")
    parser.add_argument("--simulate", action="store_true")
    args = parser.parse_args()
    if args.simulate:
        simulate()
        return
    if args.quick:
        args.generated, args.data = [10_000], None
    table("collection", "figure", "foretold", "taken", "off by")
    with open_server() as server, MongoClient[dict[str, Any]](server.uri) as client:
        for name, records in sources(args):
            fill(records, client)
            with job_commands(server) as commands:
                compare(name, commands, args.workers, client)


if __name__ == "__main__":
    main()
