"""Measure speed and accuracy of the job at ten million records and more, MongoDB to MongoDB.

    python -m scripts.bench.scale [--count 10000000] [--every 1000000] [--sample 20000] [--seed 0] [--quick]

The records are made up by `scripts/bench/made_up.py`: every record is derived from its number by hashing,
thousands at a time in numpy; a text is a sequence of words from a table, encoded as raw BSON and inserted
unordered with w=1. Texts have about 230 letters (half of them between 145 and 370), half are in HTML,
and one in ten is English. 30 % are copies of an earlier original, any of them equally likely: half are exact
copies in other markup, half near copies with some words replaced, with a similarity between 0.8 and 1.

A row for each million has documents/s, the processor time of the deciding process without its workers, and
its memory: of the process, and of each part of the index. The last lines count the planted copies that were
found: near copies in a random sample with a similarity of at least 0.8, computed from their texts, and all
exact copies. Ten million records take about 20 GB of disk in the folder for temporary files, until the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from pymongo import MongoClient

from scripts.bench.findings import findings, kept_of
from scripts.bench.made_up import Collection, Pages, refill
from scripts.bench.measure import DATABASE, MB, row, table
from scripts.bench.watched_job import Stretch, backfill
from scripts.dev.local_mongod import open_server


def show(stretches: Sequence[Stretch]) -> None:
    """Print a row of the table, and the header before the first row."""
    stretch, end = stretches[-1], stretches[-1].end
    if len(stretches) == 1:
        parts = (f"{name} MB" for name in end.parts)
        table("decided", "in the index", "documents/s", "CPU us a record", "process MB", *parts)
    sizes = (size / MB for size in end.parts.values())
    row(end.decided, end.indexed, stretch.rate, stretch.cpu, end.held / MB, *sizes)


def show_findings(collection: Collection, uri: str, count: int, sample: int) -> None:
    """Print how many of the planted copies were found."""
    table("planted", "records", "found", "share")
    for one in findings(collection, kept_of(uri, count), sample):
        row(one.kind, one.records, one.found, f"{one.share:.5f}")


def main() -> None:
    """Fill the source, run the backfill and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--every", type=int, default=1_000_000, help="records of a line")
    parser.add_argument("--sample", type=int, default=20_000, help="near copies whose similarity is computed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="100,000 records")
    args = parser.parse_args()
    count = 100_000 if args.quick else args.count
    collection = Collection(Pages(args.seed), args.seed)
    with open_server() as server:
        seconds = refill(server.uri, collection, count)
        print(f"{count:,} records made and inserted in {seconds:,.0f} s: {count / seconds:,.0f} a second\n")
        report, stretches = backfill(server, min(args.every, count // 10), show)
        first, last = stretches[0], stretches[-1]
        print(
            f"\n{report.docs_per_second:,.0f} documents/s in all; the last line against the first: "
            f"{last.rate / first.rate:.2f} times the rate, {last.cpu / first.cpu:.2f} times the CPU\n"
        )
        show_findings(collection, server.uri, count, args.sample)
        with MongoClient[dict[str, Any]](server.uri) as client:
            client.drop_database(DATABASE)


if __name__ == "__main__":
    main()
