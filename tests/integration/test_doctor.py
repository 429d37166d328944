"""`doctor` finds before a run what would stop it, and ends with the exit code of that run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bson import ObjectId

from dedup_job.commands import doctor
from dedup_job.mongo.server import Server
from dedup_job.report.status_history_doctor_text import doctor_text
from dedup_job.report.terminal_text import WIDTH, display_width
from scripts.bench.corpus import generate
from tests.support.console import Console, Said
from tests.support.faulty_runs import install
from tests.support.job import Job

Change = Callable[[Job], object]
ELSEWHERE = {"host": "elsewhere", "boot": "b", "space": "s", "pid": 1, "began": 1, "token": "t"}


@pytest.fixture
def filled(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    install(monkeypatch)
    job.set("source", fields=["data"])
    job.source.insert_many(list(generate(1_200, seed=21)))
    return job


@pytest.fixture
def console(filled: Job, capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(capsys, filled.config_file())


def found(said: Said) -> dict[str, tuple[str, int]]:
    """The state and the exit code of each check."""
    return {one["about"]: (one["state"], one["exit_code"]) for one in said.json["checks"]}


def test_where_nothing_is_wrong_it_says_so_and_writes_nothing(filled: Job, console: Console) -> None:
    before = filled.hash()

    said = console("doctor", "--json")

    assert said.code == said.json["exit_code"] == 0
    assert set(found(said)) == {
        "source server", "target server", "rights", "source", "recipe", "collation", "write concern",
        "ledger", "fields", "workers", "memory", "disk",
    }  # fmt: skip
    assert set(found(said).values()) == {("ok", 0)}
    assert all(one["allowed"] for one in said.json["commands"])
    fields = said.json["fields"]
    assert sum(fields["of_settings"]["data"].values()) == fields["records"] == 1_000
    assert set(fields["of_settings"]["data"]) >= {"text", "number", "null"}
    assert fields["others"]["views"] == {"number": 1_000}
    assert fields["judged"] + sum(fields["unchecked"].values()) == 1_000
    room = said.json["room"]
    assert 0 < room["memory"]["needed"] < room["memory"]["available"]
    assert 0 < room["disk"]["needed"] < room["disk"]["free"]
    assert filled.hash() == before
    page = doctor_text(said.json).splitlines()
    assert max(map(display_width, page)) <= WIDTH
    assert page[-1] == "no problem was found: a run can start"


def dropped(job: Job) -> None:
    job.source.drop()


def decided_otherwise(job: Job) -> None:
    job.decide("backfill")
    job.set("match", radius=2)


def filled_by_others(job: Job) -> None:
    job.target.insert_one({"_id": ObjectId(), "data": "x"})


def at_work(job: Job) -> None:
    """Somebody on another machine, of whom nothing is known but his lease."""
    job.decide("backfill")
    job.ledger("head").update_one(
        {},
        [{"$set": {"lease": {**ELSEWHERE, "until": {"$add": ["$$NOW", 60_000]}}}}],
    )


def half_undone(job: Job) -> None:
    run = job.decide("backfill").run
    counts = {"unique": 0, "exact": 0, "near": 0, "unchecked": {}, "refused": {}}
    undo = {"run": run, "plans": 0, "counts": counts, "left": {}, "restored": 0}
    job.ledger("head").update_one({}, {"$set": {"undo": undo}})


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "code", "about"),
    [
        (dropped, 78, "collections"),
        (lambda job: job.set("target", collection="pages"), 78, "collections"),
        (lambda job: job.set("source", filter='{"$nonsense": 1}'), 78, "collections"),
        (lambda job: job.set("source", fields=["daat"]), 5, "first records"),
        (lambda job: job.set("match", prefer=[{"field": "n", "order": "newest"}]), 5, "first records"),
        (decided_otherwise, 78, "ledger"),
        (filled_by_others, 78, "ledger"),
        (at_work, 75, "ledger"),
        (half_undone, 65, "ledger"),
        (lambda job: job.set("engine", kind="spark"), 78, "workers"),
    ],
)
def test_it_ends_with_the_code_that_a_run_would_end_with(
    filled: Job, console: Console, change: Change, code: int, about: str
) -> None:
    change(filled)
    filled.config_file()

    said = console("doctor", "--json")

    assert (said.code, found(said)[about]) == (code, ("fault", code))
    assert doctor_text(said.json).splitlines()[-1] == f"a run would end with {code}: {about}, see above"
    assert console("backfill").code == code


def test_of_two_servers_the_one_that_is_silent_is_named_and_the_other_looked_at(
    filled: Job, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEDUP_TARGET_URI", "mongodb://user:geheim@127.0.0.1:1/")
    said = console("doctor", "--json")
    assert (said.code, found(said)["source server"][0]) == (69, "ok")
    assert found(said)["target server"] == ("fault", 69)
    assert said.json["commands"] == []
    assert "geheim" not in said.out + said.err


def test_an_empty_source_is_no_fault(filled: Job, console: Console) -> None:
    filled.source.delete_many({})
    said = console("doctor", "--json")
    assert (said.code, found(said)["fields"], found(said)["room"]) == (0, ("warning", 0), ("warning", 0))
    last = doctor_text(said.json).splitlines()[-1]
    assert last == "a run can start, but look at the warnings first: fields, room"
    assert console("backfill").code == 0


def test_the_disk_of_a_target_whose_database_is_to_be_made_is_that_of_the_source(
    filled: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    filled.set("target", database=f"{filled.database.name}_new")
    said = Console(capsys, filled.config_file())("doctor", "--json")
    assert (said.code, found(said)["disk"]) == (0, ("ok", 0))
    assert said.json["room"]["disk"]["free"] > 0


@pytest.mark.parametrize(("what", "about"), [("available_bytes", "memory"), ("free_bytes", "disk")])
@pytest.mark.parametrize(("there", "state", "code"), [(1000, "fault", 74), (None, "ok", 0)])
def test_what_does_not_fit_is_named(
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    about: str,
    there: Any,
    state: str,
    code: int,
) -> None:
    monkeypatch.setattr(doctor, what, lambda *_: there)
    said = console("doctor", "--json")
    assert (said.code, found(said)[about]) == (code, (state, code))


def test_a_majority_that_lags_more_than_a_run_waits_is_named(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "of", lambda *_: Server("6.0.5", "replica set x", 600.0))
    said = console("doctor", "--json")
    assert (said.code, found(said)["write concern"], found(said)["target server"]) == (
        69, ("fault", 69), ("ok", 0),
    )  # fmt: skip


def test_a_settings_file_that_cannot_be_meant_ends_as_for_every_command(
    filled: Job, console: Console
) -> None:
    filled.set("match", radius="three")
    filled.config_file()
    said = console("doctor")
    assert (said.code, said.out, said.err.count("\n")) == (78, "", 1)
    assert "[match] radius: expected a whole number" in said.err
