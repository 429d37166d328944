"""A report sends commands that read, and no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pymongo import monitoring
from pymongo.database import Database

from dedup_job import cli
from scripts.corpus import generate
from tests.integration.conftest import Job
from tests.integration.moments import install

READING = {
    "aggregate", "buildInfo", "collStats", "count", "endSessions", "find", "getMore", "hello", "killCursors",
    "listCollections", "ping", "saslContinue", "saslStart",
}  # fmt: skip


class Recorder(monitoring.CommandListener):
    """Keeps the commands that are sent."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, Mapping[str, Any]]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.commands.append((event.command_name, event.command))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass

    def writing(self) -> list[str]:
        """Return the names of the commands that may write."""
        return [
            name
            for name, command in self.commands
            if name not in READING
            or any({"$out", "$merge"} & stage.keys() for stage in command.get("pipeline", ()))
        ]


@pytest.fixture
def apart(job: Job) -> Iterator[Job]:
    """A job whose source and target are in different databases."""
    source: Database[Any] = job.database.client[f"{job.database.name}_source"]
    source["pages"].insert_many(list(generate(130, seed=3))[:100])
    job.set("source", database=source.name, fields=["data"])
    job.set("limits", batch_records=20)
    yield job
    source.client.drop_database(source)


def run(job: Job, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Recorder:
    recorder = Recorder()
    install(monkeypatch, recorder)
    monkeypatch.setattr(sys, "argv", ["dedup-job", *arguments, "-c", str(job.config_file())])
    assert cli._run() == 0
    return recorder


def hashes(job: Job) -> list[Any]:
    client = job.database.client
    names = (job.database.name, f"{job.database.name}_source")
    return [client[name].command("dbHash")["collections"] for name in names]


@pytest.mark.parametrize("prepare", [None, "backfill", "unfinished backfill"])
def test_a_report_sends_only_commands_that_read(
    apart: Job, monkeypatch: pytest.MonkeyPatch, prepare: str | None
) -> None:
    if prepare is not None:
        run(apart, monkeypatch, "backfill")
    if prepare == "unfinished backfill":
        plan = apart.ledger("plans").find_one({"_id.number": 4})
        assert plan is not None
        back = {"pending": plan["_id"], "last": plan["previous"], "next": 4, "covered": None}
        apart.ledger("head").update_one({}, {"$set": back})
    before = hashes(apart)

    for options in ((), ("--fresh",), ("--limit", "30"), ("--mode", "backfill"), ("--mode", "run")):
        recorder = run(apart, monkeypatch, "report", *options)
        assert recorder.writing() == []
        assert {"find", "listCollections"} <= {name for name, _ in recorder.commands}

    assert hashes(apart) == before


def test_a_backfill_is_seen_to_write(apart: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    assert {"insert", "update", "findAndModify"} <= set(run(apart, monkeypatch, "backfill").writing())
