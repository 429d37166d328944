"""Measure the memory of `sync` by the number of changed records.

The first table measures the whole command: every record of a collection gets another text, is compared and
decided again. The second table measures only the memory beside the index of texts, for numbers of records
that a whole run would take too long for.

    python -m scripts.bench.sync_memory [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bson import ObjectId, encode
from pymongo import MongoClient
from pymongo.collection import Collection

from dedup_job.ledger.decisions_to_replace_on_disk import EarlierDecision, EarlierDecisions
from dedup_job.mongo.ids import IdSet
from dedup_job.records import UNIQUE, Action
from dedup_job.report.counts_with_ids import AffectedRecords
from scripts.bench.measure import row, table
from scripts.dev.local_mongod import LocalMongod

RECORDS = (20_000, 40_000, 80_000)
HELD = (500_000, 5_000_000)
BATCH = 2_000
MEGABYTE = 1 << 20


def peak_bytes() -> int:
    """Return the peak memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10


def fill(source: Collection[Any], count: int) -> None:
    """Insert records with distinct texts."""
    for first in range(0, count, 10_000):
        numbers = range(first, min(first + 10_000, count))
        source.insert_many([{"text": " ".join(_words(n))} for n in numbers], ordered=False)


def _words(number: int) -> Iterator[str]:
    """Yield words that no other number has."""
    return (f"{number:x}{chr(ord('g') + place)}" for place in range(12))


def weigh(uri: str, count: int) -> int:
    """Return the peak memory of the deciding process of an apply over `count` changed records."""
    with MongoClient[Any](uri) as client, tempfile.TemporaryDirectory() as folder:
        database = client[f"apply_{count}"]
        settings = Path(folder, "job.toml")
        settings.write_text(
            f'[source]\ndatabase = "{database.name}"\ncollection = "pages"\nfields = ["text"]\n'
            f'[target]\ndatabase = "{database.name}"\ncollection = "unique"\n'
            # Small, as both fill up at the beginning and say nothing of the number of records.
            "[match]\ncache_mb = 1\n[limits]\nbatch_records = 500\n"
        )
        fill(database["pages"], count)
        run(uri, "backfill", "-c", str(settings))
        database["pages"].update_many({}, [{"$set": {"text": {"$concat": ["$text", " again"]}}}])
        ended = run(uri, "sync", "--yes", "--json", "-c", str(settings))
        told = json.loads(ended.stdout)
        decided = sum(told["changed"][fate] for fate in ("kept", "dropped", "refused"))
        assert decided == told["updated"]["read"] == count, told
        client.drop_database(database)
        return int(ended.stderr.splitlines()[-1])


def run(uri: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this program, which prints its peak memory at the end."""
    environment = {**os.environ, "DEDUP_SOURCE_URI": uri, "DEDUP_TARGET_URI": uri}
    command = [sys.executable, "-m", "scripts.bench.sync_memory", "--as", "job", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def hold(count: int) -> int:
    """Store everything that an apply stores about `count` changed records; return the growth of the peak.

    The ids are stored as records to compare (`rest`), to report (`changed`) and to decide again.
    """
    before = peak_bytes()
    decisions, changed = EarlierDecisions(), AffectedRecords()

    def pages() -> Iterator[list[bytes]]:
        for first in range(0, count, BATCH):
            ids = [encode({"_id": ObjectId(n.to_bytes(12, "big"))}) for n in range(first, first + BATCH)]
            decisions.add({raw_id: EarlierDecision(first // BATCH, UNIQUE, bytes(16)) for raw_id in ids}, ids)
            changed.add((raw_id, Action.UNIQUE) for raw_id in ids)
            yield ids

    rest = IdSet.of(pages())
    for some in decisions.present():
        assert len(decisions.find(some)) == len(decisions.moved(some)) == len(some)
    assert len(rest) == changed.counts.total() == count
    return peak_bytes() - before


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    with LocalMongod() as server:
        table("records changed", "peak of the deciding process, MB")
        for count in RECORDS[:2] if args.quick else RECORDS:
            row(count, round(weigh(server.uri, count) / MEGABYTE))
    print()
    table("records changed", "held beside the index of texts, MB")
    for count in HELD[:1] if args.quick else HELD:
        command = [sys.executable, "-m", "scripts.bench.sync_memory", "--as", "held", str(count)]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        row(count, round(int(told.stdout) / MEGABYTE))


def as_job(arguments: list[str]) -> None:
    """Run the command line, and print the peak memory of this process at the end."""
    from dedup_job import __main__

    sys.argv[1:] = arguments
    try:
        __main__.main()
    finally:
        sys.stderr.write(f"{peak_bytes()}\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--as", "job", *arguments]:
            as_job(arguments)
        case ["--as", "held", count]:
            print(hold(int(count)))
        case _:
            main()
