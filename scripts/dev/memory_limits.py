"""Run a small backfill under many limits on the address space (`ulimit -v`), and check the outcome of each.

    python -m scripts.dev.memory_limits [--from-mb 800] [--to-mb 1400] [--step-mb 10] [--records 400]
        [--workers 2]

With each limit, the job must give the same result as an unlimited run; or exit with code 74 and one line on
stderr, and the next run, without a limit, must complete the ledger to the same result. Prints a row for each
limit. Exits with 1 if a limit had another outcome: another code, a crash, a hang or a wrong record.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database

from scripts.bench.corpus import generate
from scripts.bench.measure import numbers, row, table
from scripts.dev.local_mongod import open_server
from tests.support.settings_toml import settings_toml

DATABASE = "memory_limits"
HANG_SECONDS = 90.0
NO_MEMORY = 74


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run; the code is None if it hung, and -n if signal n ended it."""

    code: int | None
    said: Sequence[str]
    seconds: float


def main() -> int:
    """Try all limits; return 1 if one of them had a wrong outcome."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from-mb", type=int, default=800)
    parser.add_argument("--to-mb", type=int, default=1400)
    parser.add_argument("--step-mb", type=int, default=10)
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--workers", type=numbers, default=[2], help="numbers of workers, with commas")
    args = parser.parse_args()
    limits = range(args.from_mb, args.to_mb + 1, args.step_mb)
    table("workers", "limit, MB", "exit code", "seconds", "verdict", "last line")
    broken = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        open_server() as server,
        MongoClient[dict[str, Any]](server.uri) as client,
    ):
        client.drop_database(DATABASE)
        trial = Trial(client[DATABASE], server.uri, Path(folder))
        trial.source.insert_many(list(generate(args.records, seed=31)))
        for workers, limit in product(args.workers, limits):
            ended, verdict = trial.under(limit, workers)
            broken += verdict != "right"
            last = ended.said[-1][:150] if ended.said else ""
            row(workers, limit, str(ended.code), ended.seconds, verdict, last)
        client.drop_database(DATABASE)
    return min(broken, 1)


class Trial:
    """One source, and a fresh target for each limit."""

    def __init__(self, database: Database[Any], uri: str, folder: Path) -> None:
        self._database, self._uri, self._folder = database, uri, folder
        self._answer: object = None

    @property
    def source(self) -> Any:
        """The source collection."""
        return self._database.pages

    def under(self, limit_mb: int, workers: int) -> tuple[Ended, str]:
        """Run a backfill under a limit; return how it ended, and "right" or what is wrong."""
        if self._answer is None:
            self._backfill("calm", None, workers)
            self._answer = self._outcome("calm")
        name = f"limit_{workers}_{limit_mb}"
        ended = self._backfill(name, limit_mb << 20, workers)
        return ended, self._verdict(name, ended, workers)

    def _verdict(self, name: str, ended: Ended, workers: int) -> str:
        if ended.code is None:
            return "hangs"
        if ended.code not in (0, NO_MEMORY):
            return "another code"
        if ended.code == NO_MEMORY:
            if len(ended.said) != 1:
                return f"{len(ended.said)} lines"
            self._backfill(name, None, workers)
        return "right" if self._outcome(name) == self._answer else "another answer"

    def _backfill(self, target: str, limit: int | None, workers: int) -> Ended:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "dedup_job", "backfill", "-c", str(self._settings(target, workers))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "DEDUP_SOURCE_URI": self._uri},
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))) if limit else None,
        )
        try:
            _, said = process.communicate(timeout=HANG_SECONDS)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            code = None
        lines = [line for line in said.splitlines() if " warning " not in line and " info " not in line]
        return Ended(code, lines, time.monotonic() - began)

    def _settings(self, target: str, workers: int) -> Path:
        tables: dict[str, dict[str, Any]] = {
            "source": {"database": DATABASE, "collection": "pages", "fields": ["data"]},
            "target": {"database": DATABASE, "collection": target},
            "limits": {"batch_records": 50, "allow_plaintext": "DEDUP_TEST_URI" in os.environ},
            "engine": {"workers": workers},
        }
        path = self._folder / f"{target}.toml"
        path.write_text(settings_toml(tables), "utf-8")
        return path

    def _outcome(self, target: str) -> object:
        """Return the result of a run: the target, and the reason of each dropped or unchecked record."""
        kept = list(self._database[target].find().sort("_id"))
        hidden = {"run": 0, "at": 0}
        rows = [
            list(self._database[f"{target}.dedup.{name}"].find({}, hidden).sort("_id"))
            for name in ("dropped", "exceptions")
        ]
        return kept, rows


if __name__ == "__main__":
    sys.exit(main())
