"""Each command to the server says who asks, so that an administrator sees it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from scripts.bench.corpus import generate
from tests.support.command_recorder import Recorder
from tests.support.console import Console
from tests.support.faulty_runs import install
from tests.support.job import Job

# Commands of the driver itself.
OF_DRIVER = {"endSessions", "saslStart", "saslContinue", "killCursors"}


@pytest.fixture
def recorder(job: Job, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    install(monkeypatch, recorder)
    job.set("source", fields=["data"])
    job.set("limits", batch_records=20)
    # The texts repeat, so that records are dropped, too.
    records = list(generate(40, seed=6))
    copies = ({**record, "_id": number} for number, record in enumerate([*records, *records[:20]]))
    job.source.insert_many(copies)
    return recorder


def comments(recorder: Recorder) -> dict[str, set[Any]]:
    """The comments of the commands, by name."""
    found: dict[str, set[Any]] = {}
    for name, command in recorder.commands:
        if name not in OF_DRIVER:
            found.setdefault(name, set()).add(command.get("comment"))
    recorder.commands.clear()
    return found


def test_each_command_of_a_run_has_its_name_from_the_lease_on(
    job: Job, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(capsys, job.config_file())

    assert console("backfill").code == 0

    run = job.ledger("runs").find_one({}, sort=[("started", -1)])
    assert run is not None
    by_name = f"dedup-job backfill {run['_id']}"
    found = comments(recorder)
    assert found.keys() >= {
        "find",
        "insert",
        "update",
        "delete",
        "findAndModify",
        "listCollections",
    }
    assert set(itertools.chain(*found.values())) == {"dedup-job backfill", by_name}
    assert found["insert"] == found["findAndModify"] == found["update"] == {by_name}


def test_each_command_of_other_commands_has_the_name_of_the_command(
    job: Job, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(capsys, job.config_file())
    job.decide("backfill")
    recorder.commands.clear()
    for command in ("report", "status", "verify", "doctor", "changes", "estimate"):
        assert console(command).code == 0
        assert set(itertools.chain(*comments(recorder).values())) == {f"dedup-job {command}"}, command


def test_the_server_shows_the_comment(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    job.set("source", fields=["data"])
    job.source.insert_many(list(generate(40, seed=6)))
    job.database.command("profile", 2)

    run = job.decide("backfill").run

    job.database.command("profile", 0)
    seen = job.database["system.profile"].find({"appName": "dedup-job"})
    shown = [(row["op"], row["command"].get("comment")) for row in seen if "command" in row]
    assert {op for op, comment in shown if comment == f"dedup-job backfill {run}"} >= {
        "query",
        "insert",
        "command",
    }
    assert all(str(comment).startswith("dedup-job") for _, comment in shown), shown
