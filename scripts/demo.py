"""The demonstration: fill `shop.pages` with a sample, run the backfill, write a page, show two pairs, mark.

`make run` runs it with its own MongoDB server; a second time it finds nothing new. All its files are in one
folder, which it prints.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bson import encode
from pymongo import MongoClient
from pymongo.database import Database

from dedup_job import config
from dedup_job.commands.record_lookup import fetch_beginnings
from dedup_job.pipeline.command_context import Context
from scripts.bench.corpus import generate, load

RECORDS = 5_000
HOUSE = Path(__file__).parents[1]
SETTINGS = HOUSE / "config" / "backfill.toml"
# `make run` keeps the server's data in the same folder.
FOLDER = HOUSE / ".demo"
PAGE = "page.html"
# Fields that the page shows of each record.
SHOWN = ("--set", 'report.show=["title", "url"]')

NEXT = """
Pairs side by side, with charts: open {page} in a browser.

What to do next (the server of the demonstration has stopped when you read this; `on` starts it again):
  on=".venv/bin/python scripts/dev/local_mongod.py --dbpath .demo/db --"
  $on .venv/bin/dedup-job compare {keeper} {dropped} -c {settings}
  $on .venv/bin/dedup-job status -c {settings}
  $on .venv/bin/dedup-job mark --clear --yes -c {settings}
  a collection of yours: README.md, "A first report on your collection"
"""


def main(folder: Path = FOLDER) -> int:
    """Run the demonstration; returns the exit code of the command that failed, or 0."""
    uri = os.environ["DEDUP_SOURCE_URI"]
    folder.mkdir(exist_ok=True)
    # A copy, because reports are written beside the settings file.
    settings = Path(shutil.copy(SETTINGS, folder))
    with MongoClient[dict[str, Any]](uri) as client:
        _fill(client, uri)
        code = _run("backfill", "-c", str(settings))
        if code == 0:
            code = _write_page(folder / PAGE, settings)
            pairs = list(_pairs(client.shop))
            _show(pairs, settings)
            code = code or _mark(client.shop, pairs, settings)
        if code == 0:
            print(
                NEXT.format(
                    keeper=pairs[-1]["keeper"],
                    dropped=pairs[-1]["_id"],
                    settings=os.path.relpath(settings),
                    page=os.path.relpath(folder / PAGE),
                )
            )
    print(
        f"left on disk: {folder} ({_size(folder) >> 20:,} MB: data, settings, reports, page); "
        "make clean removes it"
    )
    return code


def _fill(client: MongoClient[dict[str, Any]], uri: str) -> None:
    there = client.shop.pages.estimated_document_count()
    if there < RECORDS:
        print(f"filling shop.pages with {RECORDS:,} made-up records", flush=True)
        load(generate(RECORDS), uri, "shop", "pages")
    else:
        print(f"shop.pages holds {there:,} records from an earlier run", flush=True)


def _pairs(shop: Database[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the ledger's rows about an exact duplicate and about a near duplicate."""
    for reason, order in (("exact", "_id"), ("near", "similarity")):
        yield from shop["pages_unique.dedup.dropped"].find({"reason": reason}).sort(order, 1).limit(1)


def _write_page(page: Path, settings: Path) -> int:
    """Write the page of a dry run over all records; return its exit code."""
    report = ["report", "-c", str(settings), "--fresh", "--html", str(page), *SHOWN]
    command = [sys.executable, "-m", "dedup_job", *report]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


def _show(pairs: list[dict[str, Any]], settings: Path) -> None:
    """Print the beginnings of the pairs' texts."""
    ids = {one: encode({"_id": one}) for row in pairs for one in (row["keeper"], row["_id"])}
    with Context(config.load_settings(settings)) as context:
        beginnings = fetch_beginnings(context, ids.values())
    print(f"\n{len(pairs)} of the pairs, each by the beginnings of its texts:")
    for row in pairs:
        near = f", similarity {row['similarity']:.3f}" if row["reason"] == "near" else ""
        print(f"  {row['reason']}{near}")
        for name, one in (("kept", row["keeper"]), ("dropped", row["_id"])):
            print(f"    {name:<8} {one}  {beginnings[ids[one]][:60]}")


def _mark(shop: Database[dict[str, Any]], pairs: list[dict[str, Any]], settings: Path) -> int:
    """Mark the dropped records in the source, and print the marks of the pairs."""
    print(f"\ndedup-job mark -c {os.path.relpath(settings)} --yes", flush=True)
    code = _run("mark", "-c", str(settings), "--yes")
    for row in pairs if code == 0 else ():
        marked = shop.pages.find_one({"_id": row["_id"]}, {"dedup": 1})
        print(f"  {marked}")
    return code


def _run(*arguments: str) -> int:
    """Run a command, and return its exit code."""
    return subprocess.run([sys.executable, "-m", "dedup_job", *arguments], check=False).returncode


def _size(folder: Path) -> int:
    """Return the size of all files in a folder, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main())
