"""`status` shows the progress of a ledger, and only reads."""

from __future__ import annotations

import json
import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from dedup_job.commands import status
from dedup_job.commands.backfill_and_run import decide
from dedup_job.errors import NotPermitted, Stopped
from dedup_job.report.status_history_doctor_text import status_text
from scripts.dev.local_mongod import LocalMongod
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.restore_cases import restore
from tests.support.undo_cases import OTHERS, half_undone, stopped_before_the_insert, texts, undo


def status_of(job: Job) -> dict[str, Any]:
    with job.context() as context:
        return status.status(context)


def hold(job: Job, seconds: int, host: str = "elsewhere") -> None:
    until = {"$add": ["$$NOW", seconds * 1000]}
    lease = {"host": host, "boot": "b", "pid": 1, "until": until}
    job.ledger("head").update_one({}, [{"$set": {"lease": lease}}])


def test_without_a_ledger_one_line_says_so(job: Job) -> None:
    job.source.insert_one({"text": "x"})

    done = job.command("status")

    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    assert "no ledger yet" in done.stdout
    assert status_of(job)["ledger"] is False
    assert "unique.dedup.head" not in job.database.list_collection_names()


def test_the_head_the_lag_and_the_last_runs_are_shown(job: Job) -> None:
    job.source.insert_many([*texts(0, 4), {"_id": 4, "text": OTHERS[0]}, {"_id": 5}])
    first = job.decide("backfill")
    second = job.decide("run")
    job.source.insert_many(texts(6, 9))

    done = job.command("status", "--json")

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["read"], shown["unique"], shown["duplicate"]) == (6, 4, {"exact": 1, "near": 0})
    assert (shown["unchecked"], shown["watermark"], shown["lease"]) == ({"missing": 1}, 5, None)
    assert shown["lag"]["records"] == 3
    assert 0 <= shown["lag"]["seconds"] < 600
    assert [(run["run"], run["mode"], run["read"], run["exit_code"]) for run in shown["runs"]] == [
        (second.run, "run", 0, 0),
        (first.run, "backfill", 6, 0),
    ]
    text = status_text(shown)
    assert "undecided  about 3 or more\n" in text
    assert "at work    no process\n" in text
    table = text.partition("\n\n")[2].splitlines()
    assert len(table) == 4
    assert max(map(len, table)) == 80


def test_the_last_read_agrees_with_the_number_of_undecided_records(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    job.decide("backfill")
    assert "ago: everything that was in the source then is decided\n" in status_text(status_of(job))
    job.source.insert_many(texts(4, 10))
    undo(job, job.decide("run").run)
    text = status_text(status_of(job))
    assert "undecided  about 6 or more\n" in text
    assert "ago: records from before are decided, later ones are not\n" in text


def test_after_an_undo_of_a_sync_records_from_before_may_be_undecided(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    job.decide("backfill")
    job.source.update_one({"_id": 3}, {"$set": {"text": OTHERS[5]}})
    assert job.command("sync", "--yes").returncode == 0
    undo(job, job.ledger("runs").find_one({"mode": "update"})["_id"])
    text = status_text(status_of(job))
    assert "undecided  about 1 or more\n" in text
    assert "ago: records from before may be undecided, too\n" in text
    assert "the next run compares all ids of the source\n" in text


def test_restored_records_are_a_part_of_the_duplicates_and_of_the_target(job: Job) -> None:
    job.source.insert_many([*texts(0, 4), {"_id": 4, "text": OTHERS[0]}, {"_id": 5}])
    job.decide("backfill")
    restore(job, "4")
    shown = status_of(job)
    assert (shown["duplicate"], shown["restored"]) == ({"exact": 1, "near": 0}, 1)
    assert shown["in_target"] == job.target.count_documents({}) == 6
    text = status_text(shown)
    assert "unique 4, duplicate 1 (1 of them restored)\n" in text
    assert "  in target  6 records: unique, unchecked and restored\n" in text


def test_runs_that_did_nothing_do_not_crowd_out_others(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    job.source.insert_many(texts(0, 4))
    first = job.decide("backfill")
    empty = [job.decide("run").run for _ in range(3)]
    failed = []
    for number, code in enumerate((69, 65)):
        started = job.ledger("runs").find_one({"_id": empty[-1]})["started"] + timedelta(seconds=number + 1)
        failed.append(f"failed-{number}")
        row = {"_id": failed[-1], "mode": "run", "started": started, "ended": started, "exit_code": code}
        row["fence"] = 100 + number
        job.ledger("runs").insert_one(row)

    with job.context() as context:
        shown, one = status.status(context), status.status(context, 1)

    assert [(run["run"], run["alike"]) for run in shown["runs"]] == [
        (failed[-1], 1),
        (empty[-1], 2),
        (first.run, 0),
    ]
    assert [run["run"] for run in one["runs"]] == [failed[-1]]
    text = status_text(shown)
    assert "    and 2 earlier runs found nothing new\n" in text
    assert "    and 1 earlier run decided nothing either\n" in text


def test_runs_are_listed_in_their_order_whatever_the_clocks_of_their_machines_say(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    job.source.insert_many(texts(0, 4))
    first = job.decide("backfill").run
    job.ledger("runs").update_one({"_id": first}, {"$set": {"started": datetime(2099, 1, 1, tzinfo=UTC)}})
    job.source.insert_many(texts(4, 8))
    second = job.decide("run").run

    with job.context() as context:
        assert [run["run"] for run in status.status(context)["runs"]] == [second, first]
        assert context.ledger_reader().interrupted_runs() == []


def test_a_run_that_was_stopped_shows_what_it_had_decided(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    job.set("limits", batch_records=2)
    job.source.insert_many([*texts(0, 4), {"_id": 4, "text": OTHERS[0]}, {"_id": 5}, *texts(6, 8)])

    plans = iter(range(3))

    def stop(*_: object) -> None:
        if next(plans) == 2:
            raise Stopped(signal.SIGTERM)

    with pytest.raises(Stopped), job.context() as context:
        decide(context, "backfill", stop)

    run = status_of(job)["runs"][0]
    assert (run["exit_code"], run["read"], run["duplicate"]) == (143, 6, {"exact": 1, "near": 0})
    assert run["seconds"] >= 0
    assert "    unchecked 1\n" in status_text(status_of(job)) + "\n"


def numbered(start: int, stop: int) -> list[dict[str, Any]]:
    """Records with different texts, and these ids."""
    return [
        {"_id": number, "text": f"第{number}篇，{number**5} 个字，和别的都不一样"}
        for number in range(start, stop)
    ]


def statuses_during(job: Job, mode: str, expected: int) -> list[dict[str, Any]]:
    """Run a job, and return what `status` says in another process after each batch."""
    shown: list[dict[str, Any]] = []

    def ask(*_: object) -> None:
        shown.append(json.loads(job.command("status", "--json").stdout))

    with job.context() as context:
        decide(context, mode, ask, expected=expected)
    return shown


def test_a_run_in_progress_is_shown_with_rate_and_rest(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    job.set("limits", batch_records=15)
    job.source.insert_many(numbered(0, 20))
    job.decide("backfill")
    job.source.insert_many(numbered(20, 60))

    shown = statuses_during(job, "run", expected=40)

    # The head may be written while the next batch is decided.
    running = [each["running"] for each in shown]
    reads = [each["read"] for each in running]
    assert all(number - 15 <= read <= number for read, number in zip(reads, (15, 30, 40), strict=True))
    names = {each["run"] for each in running}
    assert names == {row["_id"] for row in job.ledger("runs").find({"mode": "run"})}
    last = running[-1]
    assert (last["mode"], last["deciding"], last["total"]) == ("run", True, 40)
    assert last["records_per_second"] > 0
    left = (40 - last["read"]) / last["records_per_second"]
    assert last["seconds_left"] == pytest.approx(left, rel=0.1, abs=0.2)
    line = rf"\n  running    run: {last['read']} of about 40 records, [\d,.]+/s, about \d+ \w+ left\n"
    assert re.search(line, status_text(shown[-1]))
    assert status_of(job)["running"] is None


def test_a_run_that_does_not_decide_yet_is_shown_as_such(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    run = stopped_before_the_insert(job)
    hold(job, 60)

    shown = status_of(job)

    assert (shown["running"]["run"], shown["running"]["deciding"]) == (run, True)
    job.ledger("runs").update_one({"_id": run}, {"$unset": {"deciding": ""}})
    text = status_text(status_of(job))
    assert re.search(rf"\n  running    run {run}, for \d+ \w+; it has not begun to decide records\n", text)


def test_a_killed_run_is_not_shown_as_running(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    stopped_before_the_insert(job)

    shown = status_of(job)

    assert shown["running"] is None
    assert "running" not in status_text(shown)


def test_a_backfill_with_a_filter_expects_about_the_records_that_match(job: Job) -> None:
    records = [
        {**record, "lang": "zh" if number < 30 else "en"} for number, record in enumerate(numbered(0, 300))
    ]
    job.source.insert_many(records)
    job.set("source", filter='{"lang": "zh"}')

    with job.context() as context:
        expected = status.expected_records(context, "backfill")
        assert status.expected_records(context, "run") is None

    # Records are drawn at random, and some twice.
    assert expected is not None
    assert 3 <= expected <= 60


def test_a_resumed_backfill_expects_the_rest(job: Job) -> None:
    job.source.insert_many(numbered(0, 30))
    job.decide("backfill")
    job.source.insert_many(numbered(30, 40))

    with job.context() as context:
        assert status.expected_records(context, "backfill") == 10
        assert status.expected_records(context, "run") == 10
        assert status.expected_records(context, "backfill", is_fresh=True) == 40


def test_how_many_are_undecided_is_unknown_where_there_is_a_filter(job: Job) -> None:
    job.set("source", filter='{"lang": "zh"}')
    job.source.insert_one({"text": "x", "lang": "zh"})
    job.decide("backfill")

    assert status_of(job)["lag"]["records"] is None


@pytest.mark.parametrize(
    ("seconds", "is_held", "words"),
    [
        (60, True, "at work    process 1 on elsewhere; its lease ends in"),
        (-300, False, "at work    no process: the lease of process 1 on elsewhere"),
    ],
)
def test_the_lease_is_told_by_the_clock_of_the_server(
    job: Job, seconds: int, is_held: bool, words: str
) -> None:
    job.source.insert_one({"text": "x"})
    job.decide("backfill")
    hold(job, seconds)

    shown = status_of(job)

    assert shown["lease"]["held"] is is_held
    assert shown["lease"]["holder_alive"] is None
    assert abs(shown["lease"]["seconds_left"] - seconds) < 30
    assert words in status_text(shown)


def test_a_killed_run_and_what_becomes_of_it_are_shown(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    run = stopped_before_the_insert(job)

    shown = status_of(job)

    assert shown["pending"] == {"plan": 0, "run": run}
    assert (shown["lease"]["holder_alive"], shown["lease"]["held"]) == (False, False)
    assert (shown["runs"][0]["run"], shown["runs"][0]["exit_code"]) == (run, None)
    assert f"plan 0 of run {run}: a run was killed; the next run finishes it" in status_text(shown)


def test_a_half_done_undo_and_a_whole_one_are_shown(job: Job) -> None:
    run = half_undone(job)
    assert f"finish with: dedup-job undo {run}" in status_text(status_of(job))

    undone = undo(job, run)

    shown = status_of(job)
    assert shown["undoing"] is None
    assert [shown["runs"][0][key] for key in ("run", "mode", "undid", "read")] == [undone.run, "undo", run, 4]
    assert f"undid {run}\n" in status_text(shown)
    assert "undone 20" in status_text(shown)


def test_a_user_who_may_only_read_sees_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalMongod(auth=True) as server, MongoClient[dict[str, Any]](server.uri) as root:
        roles = [{"role": "read", "db": "shop"}]
        root.admin.command("createUser", "reader", pwd="secret", roles=roles)
        job = Job(root.shop, server.uri, tmp_path)
        job.source.insert_many(texts(0, 3))
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)
        run = job.decide("backfill").run

        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri_as("reader", "secret"))

        assert status_of(job)["runs"][0]["run"] == run
        with pytest.raises(NotPermitted):
            undo(job, run)
        assert root.shop.unique.count_documents({}) == 3


def test_history_lists_all_runs_and_shows_what_one_did(job: Job) -> None:
    job.source.insert_many([*texts(0, 3), {"_id": 3, "text": OTHERS[0]}, {"_id": 4, "text": OTHERS[0]}])
    assert job.command("history").stdout.endswith(".unique: no run yet\n")
    first = job.decide("backfill").run
    second = job.decide("run").run
    assert job.command("undo", second, "--yes").returncode == 64  # it decided nothing
    assert job.command("undo", first, "--yes").returncode == 0
    third = job.decide("backfill").run

    header, *lines = job.command("history").stdout.splitlines()
    listed = [json.loads(line) for line in job.command("history", "--json").stdout.splitlines()]

    assert header.split() == ["run", "mode", "seconds", "read", "unique", "duplicate", "exit"]
    modes = [(line.split()[0], line.split()[1]) for line in lines]
    assert modes == [(row["run"], row["mode"]) for row in listed]
    assert [name for name, mode in modes if mode != "undo"] == [third, second, first]
    assert f"undid {first}" in lines[1]
    assert "undone 20" in lines[-1]
    shown = json.loads(job.command("history", third, "--json").stdout)
    assert (shown["run"], shown["read"], shown["unique"]) == (third, 5, 3)
    assert [group["duplicates"] for group in shown["evidence"]["groups"]] == [2]
