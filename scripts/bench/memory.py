"""Check that memory grows only with the index: compare the memory of a long run with the index's own figures.

    python -m scripts.bench.memory [--records 1000000] [--length 40] [--marks 10] [--quick]

Runs a backfill over made-up small records, MongoDB to MongoDB. The deciding process is this process, which
measures its memory between batches. Memory that is neither the index nor cached shingles should not grow.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from typing import Any

from pymongo import MongoClient

from dedup_job import config
from dedup_job.commands.backfill_and_run import decide
from dedup_job.pipeline.measure_and_limit_memory import family, resident_bytes
from dedup_job.records import Plan
from scripts.bench.corpus import Mix, generate
from scripts.bench.index_memory import keepers_bytes
from scripts.bench.measure import MB, fill, job_commands, mongod_of, row, table
from scripts.bench.watched_job import WatchedContext
from scripts.dev.local_mongod import open_server


@dataclass
class Marks:
    """Measures the memory at regular numbers of decided records, and prints it."""

    parts: WatchedContext
    every: int
    mongod: int | None
    decided: int = 0
    others: list[int] = field(default_factory=list)

    def observe(self, plan: Plan) -> None:
        """Count a batch, and measure if the next mark is reached."""
        before, self.decided = self.decided, self.decided + len(plan)
        if before // self.every == self.decided // self.every:
            return
        now, index = resident_bytes(os.getpid()) or 0, sum(keepers_bytes(self.parts.seen).values())
        # A private attribute: only this benchmark needs the size of the cache.
        texts = self.parts.seen._recent._nbytes
        workers = sum(resident_bytes(pid) or 0 for pid in family() if pid != self.mongod)
        self.others.append(now - index - texts)
        row(
            self.decided,
            len(self.parts.seen),
            now / MB,
            index / MB,
            texts / MB,
            self.others[-1] / MB,
            workers / MB,
        )


def main() -> None:
    """Run the backfill and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--length", type=int, default=40, help="median characters of a text")
    parser.add_argument("--marks", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="20,000 records")
    args = parser.parse_args()
    records = 20_000 if args.quick else args.records
    with open_server() as server, job_commands(server) as commands:
        os.environ["DEDUP_SOURCE_URI"] = server.uri
        with MongoClient[dict[str, Any]](server.uri) as client:
            fill(generate(records, mix=Mix(length=args.length, html=0.0)), client)
        table("decided", "keepers", "process MB", "index MB", "texts at hand MB", "the rest MB", "workers MB")
        with WatchedContext(config.load_settings(commands.settings)) as parts:
            marks = Marks(parts, max(1, records // args.marks), mongod_of(server))
            report = decide(parts, "backfill", marks.observe)
            index = sum(keepers_bytes(parts.seen).values()) / len(parts.seen)
    grown = (marks.others[-1] - marks.others[1]) / MB
    print(
        f"\n{report.docs_per_second:,.0f} documents/s; the index takes {index:.1f} bytes a keeper; "
        f"since the second mark the rest grew by {grown:+,.1f} MB"
    )


if __name__ == "__main__":
    main()
