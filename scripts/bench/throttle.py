"""Compare the rates of `--max-docs-per-second` and `--max-mb-per-second` with the rates that runs keep.

    python -m scripts.bench.throttle [--docs 200,1000,3000] [--mb 0.25,1,4] [--seconds 20] [--quick]

Each row is a dry run over made-up records in a separate process. The kept rate is the number of records, or
their bytes, divided by the seconds in the report.
"""

from __future__ import annotations

import argparse
from typing import Any

from pymongo import MongoClient

from scripts.bench.corpus import Mix, generate
from scripts.bench.measure import DATABASE, MB, Commands, fill, job_commands, numbers, row, table
from scripts.dev.local_mongod import open_server

PLAIN = Mix(html=0.0, odd=0.0)


def held(commands: Commands, option: str, asked: float, limit: int) -> dict[str, Any]:
    """Report on `limit` records at a rate; return the report."""
    options = (f"--{option}", str(asked), "--limit", str(max(1, limit)), "--fresh")
    return commands.run("report", *options)[1]


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--docs", type=numbers, default=[200, 1_000, 3_000])
    parser.add_argument("--mb", type=lambda text: list(map(float, text.split(","))), default=[0.25, 1.0, 4.0])
    parser.add_argument("--seconds", type=int, default=20, help="that each run is to take")
    parser.add_argument("--quick", action="store_true", help="two rates, 5 seconds each")
    args = parser.parse_args()
    if args.quick:
        args.docs, args.mb, args.seconds = [200], [0.25], 5
    table("asked", "held", "off by", "records", "seconds")
    with open_server() as server, MongoClient[dict[str, Any]](server.uri) as client:
        most = max(max(args.docs), 1_000 * max(args.mb)) * args.seconds
        count = fill(generate(int(most), mix=PLAIN), client)
        mean = client[DATABASE].command("collStats", "pages")["size"] / count
        with job_commands(server) as commands:
            for rate in args.docs:
                said = held(commands, "max-docs-per-second", rate, rate * args.seconds)
                show(f"{rate:,} documents/s", rate, said["docs_per_second"], said)
            for rate in args.mb:
                said = held(commands, "max-mb-per-second", rate, int(rate * MB / mean * args.seconds))
                show(f"{rate} MB/s", rate, said["docs_per_second"] * mean / MB, said)


def show(name: str, asked: float, got: float, said: dict[str, Any]) -> None:
    """Print a row."""
    row(name, f"{got:,.2f}", f"{100 * (got / asked - 1):+.1f} %", said["read"], said["seconds"])


if __name__ == "__main__":
    main()
