"""Time a backfill whose target refuses every copy of one text, against a target that accepts the first copy.

    python -m scripts.bench.refused [--copies 20000] [--batch 5000] [--runs 3] [--quick]

All records except the first are exact or near copies of one text. The target refuses none of them or all: by
a validator, or by a unique index on a value that the first record has. "Against taken" is the ratio to the
ordinary case, where one copy is kept and the others are dropped. Processor seconds are of the job and mongod
together.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database

from scripts.bench.corpus import Mix, generate
from scripts.bench.measure import DATABASE, Commands, Usage, fill, forget, job_commands, row, table
from scripts.dev.local_mongod import open_server

SINGLE = Mix(duplicates=0.0, templates=0.0, odd=0.0, html=0.0)
# Characters of the text: long enough that a number at its end leaves it near.
LEAST = 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """The copies in the source, and the target's reaction to them."""

    copies: str
    target: str

    def records(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield one record that the target accepts, and the copies."""
        texts = (record["data"] for record in generate(1_000, mix=SINGLE))
        other, text = next(texts), next(one for one in texts if len(one) >= LEAST)
        yield {"_id": 0, "data": other, "place": "taken", "is_right": True}
        for number in range(1, count + 1):
            data = f"{text} {number}" if self.copies == "near" else text
            place = "taken" if self.target == "unique index" else number
            yield {"_id": number, "data": data, "place": place, "n": number}

    def prepare(self, database: Database[Any]) -> None:
        """Create a target that refuses the copies, or an ordinary one."""
        if self.target == "validator":
            database.create_collection("unique", validator={"is_right": {"$exists": True}})
        if self.target == "unique index":
            database["unique"].create_index("place", unique=True)


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--copies", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=5_000, help="limits.batch_records")
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts")
    parser.add_argument("--quick", action="store_true", help="2,000 copies, one run")
    args = parser.parse_args()
    if args.quick:
        args.copies, args.runs = 2_000, 1
    table("copies", "target", "seconds", "against taken", "CPU s", "against taken", "refused")
    with (
        open_server() as server,
        MongoClient[dict[str, Any]](server.uri) as client,
        job_commands(server) as commands,
    ):
        with commands.settings.open("a") as settings:
            settings.write(f"[limits]\nbatch_records = {args.batch}\nmax_drop_share = 1.0\n")
        for copies in ("exact", "near"):
            taken: Usage | None = None
            for target in ("takes one", "validator", "unique index"):
                case = Case(copies, target)
                fill(case.records(args.copies), client)
                usage, refused = timed(case, commands, client, args.runs)
                taken = taken or usage
                seconds, cpu = usage.seconds, usage.cpu + usage.server_cpu
                own = taken.cpu + taken.server_cpu
                row(copies, target, seconds, seconds / taken.seconds, cpu, cpu / own, refused)


def timed(case: Case, commands: Commands, client: MongoClient[Any], runs: int) -> tuple[Usage, int]:
    """Return the median usage of some backfills, and the number of records that the target refused."""
    usages = []
    for _ in range(runs):
        forget(client)
        case.prepare(client[DATABASE])
        usage, report = commands.run("backfill", codes=(0, 3))
        usages.append(usage)
    return Usage.median(usages), sum(report["refused"].values())


if __name__ == "__main__":
    main()
