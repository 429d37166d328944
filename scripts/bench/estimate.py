"""Compare the forecast of `dedup-job estimate` with the backfill of the same collection.

    python -m scripts.bench.estimate [--data DIR] [--sets leetcode] [--together] [--generated 50000]
        [--workers 2]

DIR/SET/docs.jsonl.gz has the records of a set (`_id`, `data`); the generated records are made up. With
`--together` all sets are also one collection, in random order. Memory is the peak of the process and its
workers together; disk is the size of target and ledger that the server reports at the end.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pymongo import MongoClient

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
    args = parser.parse_args()
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
