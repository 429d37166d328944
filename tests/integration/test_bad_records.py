"""A backfill over records of every bad kind: each gets its verdict, and the others keep theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bson import encode
from bson.raw_bson import RawBSONDocument

from dedup_job.pipeline import worker_tasks
from scripts.bench.corpus import generate
from tests.support import worker_faults
from tests.support.job import RAW, ROOT, Job
from tests.support.poison_records import TAIL, kinds

KINDS = {poison.name: poison for poison in kinds()}
MEMORY_MB = 512
ORDINARY = 150


def ordinary() -> Iterator[RawBSONDocument]:
    """Yield generated records, some of them copies of others, with ids that sort between the bad ones'."""
    for number, record in enumerate(generate(ORDINARY, seed=11)):
        name = f"{chr(ord('a') + number * 5 % 26)}{number:04}"
        yield RawBSONDocument(encode({"_id": name, "text": record["data"]}))


def mixed() -> Iterator[RawBSONDocument]:
    yield from ordinary()
    for poison in KINDS.values():
        yield RawBSONDocument(poison.raw)


def noted(job: Job, name: str) -> dict[Any, Any]:
    """Return the rows of a ledger collection on records whose id is a text, by id."""
    rows = job.ledger(name).find({"_id": {"$type": "string"}}, {"run": 0, "at": 0})
    return {row.pop("_id"): row for row in rows}


@pytest.mark.longest
def test_every_kind_of_bad_record_gets_its_verdict_and_its_neighbours_keep_theirs(
    job: Job, another_job: Callable[[], Job]
) -> None:
    alone = another_job()
    alone.source.insert_many(ordinary())
    alone.decide("backfill")
    job.source.insert_many(mixed())

    counts = job.decide("backfill").counts

    assert counts.read == ORDINARY + len(KINDS)
    unchecked = {name: row["reason"] for name, row in noted(job, "exceptions").items()}
    expected = {name: poison.reason for name, poison in KINDS.items() if poison.reason}
    expected |= {name: row["reason"] for name, row in noted(alone, "exceptions").items()}
    assert unchecked == expected
    dropped = noted(job, "dropped")
    assert dropped
    assert dropped == noted(alone, "dropped")
    assert counts.duplicate == len(dropped), "no bad record was dropped, whatever its id"
    kept = {bytes(record.raw) for record in job.target.with_options(RAW).find()}
    assert [name for name, poison in KINDS.items() if poison.raw not in kept] == []
    assert len(kept) == counts.read - counts.duplicate


@pytest.mark.longest
def test_no_kind_of_bad_record_takes_much_memory_or_loses_the_end_of_its_text() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.poison_records"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trials = {trial["name"]: trial for trial in map(json.loads, done.stdout.splitlines())}

    assert trials.keys() == KINDS.keys()
    assert {name: trial["reason"] for name, trial in trials.items()} == {
        name: poison.reason for name, poison in KINDS.items()
    }
    assert [name for name, trial in trials.items() if trial["memory_mb"] > MEMORY_MB] == []
    assert [name for name, poison in KINDS.items() if poison.tail and not trials[name]["saw_tail"]] == []


@pytest.mark.parametrize("order", ["CRASH ME", "SPIN ME"])
def test_a_record_that_takes_its_worker_down_is_copied_as_poison(
    job: Job, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(worker_tasks, "work", worker_faults.work)
    job.set("limits", record_seconds=0.5, batch_records=8)
    job.source.insert_many([{"_id": n, "text": f"第{n}段文字{TAIL}{chr(0x4E00 + n) * 20}"} for n in range(8)])
    job.source.insert_one({"_id": 3.5, "text": order})

    counts = job.decide("backfill").counts

    assert (counts.unique, counts.unchecked) == (8, {"poison": 1})
    assert job.target.find_one({"_id": 3.5}) == {"_id": 3.5, "text": order}
