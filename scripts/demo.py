"""The demonstration: fills `shop.pages` with a made-up sample once, then runs the backfill on it.

Run by `make run`, beside a MongoDB server of its own; a second time it finds nothing new.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from scripts.corpus import generate, load

RECORDS = 5_000
SETTINGS = Path(__file__).parents[1] / "config" / "backfill.toml"


def main() -> int:
    """Return the exit code of the backfill."""
    uri = os.environ["DEDUP_SOURCE_URI"]
    with MongoClient[dict[str, Any]](uri) as client:
        there = client.shop.pages.estimated_document_count()
    if there < RECORDS:
        print(f"filling shop.pages with {RECORDS:,} made-up records", flush=True)
        load(generate(RECORDS), uri, "shop", "pages")
    else:
        print(f"shop.pages holds {there:,} records from an earlier run", flush=True)
    return subprocess.run(
        [sys.executable, "-m", "dedup_job", "backfill", "-c", str(SETTINGS)], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
