"""Loads the sample of the tutorial, or another file of JSON lines, into the collection `shop.pages`.

    python -m scripts.bench.load_sample docs/sample/pages.jsonl

The server is that of `DEDUP_SOURCE_URI`. A record whose `_id` is in the collection already is replaced.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from bson import json_util
from pymongo import MongoClient


def load(file: Path, uri: str, database: str = "shop", collection: str = "pages") -> int:
    """Load the records of a file, one extended JSON object per line, and return their number."""
    records = [json_util.loads(line) for line in file.read_text("utf-8").splitlines()]
    with MongoClient[dict[str, Any]](uri) as client:
        for record in records:
            client[database][collection].replace_one({"_id": record["_id"]}, record, upsert=True)
    return len(records)


def main() -> None:
    """Load the file that the command line names."""
    parser = argparse.ArgumentParser(description="Load a file of JSON lines into shop.pages.")
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    print(f"{load(file, os.environ['DEDUP_SOURCE_URI'])} records loaded into shop.pages")


if __name__ == "__main__":
    main()
