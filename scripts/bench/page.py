"""Measure the size and the load time of a report's page, in Chromium with the network off.

    python -m scripts.bench.page [--generated 1000000] [SET ...]

For each SET, a file of JSON lines, and for the given number of made-up records: runs the dry run with `report
--html`, then opens the page from disk. First paint and load are the browser's own times, medians of five.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pymongo import MongoClient

from scripts.bench.made_up import Collection, Pages, refill
from scripts.bench.measure import MB, Commands, documents, fill, job_commands, row, table
from scripts.dev.chromium import NONE, chromium, started
from scripts.dev.local_mongod import open_server

TIMES = 5
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
LOAD = "performance.getEntriesByType('navigation')[0].loadEventEnd"


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit to a page: milliseconds to first paint and load, messages of the browser, and requests."""

    paint: float
    load: float
    console: int
    requests: int


def visit(browser: Any, file: Path) -> Visit:
    """Open a page from disk in a new context, with the network off."""
    context = browser.new_context(offline=True)
    tab = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(file.as_uri())
    tab.wait_for_timeout(500)
    paint, load = tab.evaluate(PAINT), tab.evaluate(LOAD)
    context.close()
    # The page itself is one of the requests.
    return Visit(paint, load, len(said), len(asked) - 1)


def measure(name: str, records: int, commands: Commands, browser: Any) -> None:
    """Write a report on the source, open the page, and print a row."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        usage, _ = commands.run("report", "--html", str(file))
        visits = [visit(browser, file) for _ in range(TIMES)]
        row(
            name,
            records,
            usage.seconds,
            usage.peak / MB,
            file.stat().st_size / 1000,
            median(one.paint for one in visits),
            median(one.load for one in visits),
            sum(one.console for one in visits),
            sum(one.requests for one in visits),
        )


def main() -> int:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", type=Path, help="files of JSON lines, gzipped or not")
    parser.add_argument("--generated", type=int, default=1_000_000, help="made-up records; 0 for none")
    args = parser.parse_args()
    path = chromium()
    if path is None:
        print(f"bench.page: {NONE}", file=sys.stderr)
        return 69
    table(
        *("collection", "records", "dry run, seconds", "peak MB", "page, kB"),
        *("first paint, ms", "loaded, ms", "console lines", "requests"),
    )
    with open_server() as server, job_commands(server) as commands, started(path) as browser:
        os.environ["DEDUP_SOURCE_URI"] = server.uri
        with MongoClient[dict[str, Any]](server.uri) as client:
            for file in args.sets:
                measure(file.parent.name, fill(documents(file), client), commands, browser)
        if args.generated:
            refill(server.uri, Collection(Pages()), args.generated)
            measure("made up", args.generated, commands, browser)
    return 0


if __name__ == "__main__":
    sys.exit(main())
