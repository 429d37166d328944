"""Count the functions and files that a record passes, from the batch that is read to the committed plan.

    python scripts/dev/local_mongod.py -- python -m scripts.dev.record_path [--list]

A backfill of some hundred records runs in one process, so that the profiler sees the work of workers, too.
Counted are functions of the package that are called inside `KeepFirst.decide_batches`, without lambdas and
comprehensions.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

from pymongo import MongoClient

import dedup_job
from dedup_job import config
from dedup_job.commands import backfill_and_run
from dedup_job.pipeline.command_context import Context
from dedup_job.pipeline.job import KeepFirst
from dedup_job.records import Counts
from tests.support.inline_engine import without_workers

PACKAGE = Path(dedup_job.__file__).parent
DATABASE, RECORDS, A_BATCH = "record_path", 300, 50


def main() -> None:
    """Run the backfill under a profiler, and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="list the functions of each file")
    shows_all = parser.parse_args().list
    functions: dict[str, set[str]] = defaultdict(set)
    is_running = threading.Event()

    def note_call(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<")
        if event == "call" and is_running.is_set() and is_ours:
            functions[str(Path(code.co_filename).relative_to(PACKAGE))].add(code.co_qualname)

    decide_batches = KeepFirst.decide_batches

    def decide_profiled(*arguments: Any) -> Counts:
        is_running.set()
        try:
            return decide_batches(*arguments)
        finally:
            is_running.clear()

    without_workers(setattr)
    setattr(KeepFirst, "decide_batches", decide_profiled)  # noqa: B010
    threading.setprofile(note_call)
    sys.setprofile(note_call)
    with MongoClient[dict[str, Any]](os.environ["DEDUP_SOURCE_URI"]) as client:
        client.drop_database(DATABASE)
        client[DATABASE].pages.insert_many(
            {"_id": number, "text": f"<p>第 {number % 200} 篇文章</p> article {number * 7919 % 200}"}
            for number in range(RECORDS)
        )
        place = {"database": DATABASE, "collection": "pages", "fields": ["text"]}
        settings = config.check_settings(
            {
                "source": place,
                "target": {"database": DATABASE, "collection": "unique"},
                "limits": {"batch_records": A_BATCH},
                "engine": {"workers": 1},
            },
            "record_path",
        )
        with Context(settings) as context:
            backfill_and_run.decide(context, "backfill", lambda plan: None)
        sys.setprofile(None)
        client.drop_database(DATABASE)
    print(f"{sum(map(len, functions.values()))} functions in {len(functions)} files")
    for file, names in sorted(functions.items()) if shows_all else ():
        print(f"{file}: {', '.join(sorted(names))}")


if __name__ == "__main__":
    main()
