"""Commands that only show something send no command that writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.database import Database

from dedup_job import run_and_exit
from scripts.bench.corpus import generate
from tests.support.command_recorder import Recorder
from tests.support.faulty_runs import install
from tests.support.job import Job


@pytest.fixture
def apart(job: Job) -> Iterator[Job]:
    """A job whose source and target are in different databases."""
    source: Database[Any] = job.database.client[f"{job.database.name}_source"]
    source["pages"].insert_many(list(generate(130, seed=3))[:100])
    job.set("source", database=source.name, fields=["data"])
    job.set("limits", batch_records=20)
    yield job
    source.client.drop_database(source)


def run(job: Job, monkeypatch: pytest.MonkeyPatch, *arguments: str, code: int = 0) -> Recorder:
    recorder = Recorder()
    install(monkeypatch, recorder)
    monkeypatch.setattr(sys, "argv", ["dedup-job", *arguments, "-c", str(job.config_file())])
    assert run_and_exit._run() == code
    return recorder


def hashes(job: Job) -> list[Any]:
    client = job.database.client
    names = (job.database.name, f"{job.database.name}_source")
    return [client[name].command("dbHash")["collections"] for name in names]


PREPARED = pytest.mark.parametrize("prepare", [None, "backfill", "unfinished backfill"])


def prepared(job: Job, monkeypatch: pytest.MonkeyPatch, prepare: str | None) -> None:
    if prepare is not None:
        run(job, monkeypatch, "backfill")
    if prepare == "unfinished backfill":
        plan = job.ledger("plans").find_one({"_id.number": 4})
        assert plan is not None
        back = {"pending": plan["_id"], "last": plan["previous"], "next": 4, "covered": None}
        job.ledger("head").update_one({}, {"$set": back})


@pytest.mark.long
@PREPARED
def test_a_report_sends_only_commands_that_read(
    apart: Job, monkeypatch: pytest.MonkeyPatch, prepare: str | None
) -> None:
    prepared(apart, monkeypatch, prepare)
    before = hashes(apart)

    for options in ((), ("--fresh",), ("--limit", "30"), ("--mode", "backfill"), ("--mode", "run")):
        recorder = run(apart, monkeypatch, "report", *options)
        assert recorder.writing() == []
        assert {"find", "listCollections"} <= {name for name, _ in recorder.commands}

    assert hashes(apart) == before


NO_LEDGER, PENDING = 78, 65  # exit codes of `verify`


LOOKING = (
    "estimate --sample 50",
    "find --text {folder}/pairs.tsv",
    "compare {first} {second}",
    "why {first}",
    "history",
    "changes --content",
    "status",
    "verify",
    "verify --sample 20",
    "evaluate --labels {folder}/pairs.tsv",
    "tune --sample 60",
    "fit-idf --output {folder}/idf.txt",
)


@PREPARED
def test_commands_that_only_look_send_only_commands_that_read(
    apart: Job, monkeypatch: pytest.MonkeyPatch, prepare: str | None
) -> None:
    prepared(apart, monkeypatch, prepare)
    source = apart.database.client[f"{apart.database.name}_source"]["pages"]
    first, second = (str(record["_id"]) for record in source.find().sort("_id").limit(2))
    (apart.folder / "pairs.tsv").write_text(f"{first}\t{second}\t0\n")
    before = hashes(apart)

    for arguments in LOOKING:
        given = arguments.format(first=first, second=second, folder=apart.folder).split()
        codes = {
            "verify": {None: NO_LEDGER, "unfinished backfill": PENDING},
            "find": {None: NO_LEDGER},
            "changes": {None: NO_LEDGER},
        }.get(given[0], {})
        recorder = run(apart, monkeypatch, *given, code=codes.get(prepare, 0))

        assert recorder.writing() == [], given
        assert "find" in {name for name, _ in recorder.commands}, given
        assert hashes(apart) == before, given


def test_a_backfill_is_seen_to_write(apart: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests above can fail."""
    assert {"insert", "update", "findAndModify"} <= set(run(apart, monkeypatch, "backfill").writing())
