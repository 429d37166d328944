"""After `undo`, target and ledger are as before the run."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bson import Timestamp, encode
from pymongo import MongoClient, monitoring

from dedup_job import config, run_and_exit
from dedup_job.commands import verify as verify_command
from dedup_job.commands.backfill_and_run import adopt
from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.commands.undo import preview_undo
from dedup_job.commands.undo import undo as undo_command
from dedup_job.commands.why import why
from dedup_job.errors import ConfigError, LeaseHeld, NotPermitted, StateError, UsageError
from dedup_job.ledger.plan_format import pack, unpack
from dedup_job.mongo.target import REMOVAL_SECONDS, Target
from dedup_job.pipeline.command_context import Context
from dedup_job.records import Counts
from scripts.bench.corpus import generate
from scripts.dev.local_mongod import LocalMongod
from tests.support.job import LEDGER, RAW, Job, retrying
from tests.support.kill_in_process import Died, commands_of, killed
from tests.support.stopped_process import stopped
from tests.support.undo_cases import (
    OTHERS,
    TEXT,
    half_undone,
    kinds,
    odd_run,
    state,
    stopped_before_the_insert,
    texts,
    undo,
)


def test_an_undone_nightly_run_leaves_target_and_ledger_as_before_it_and_can_be_done_again(job: Job) -> None:
    job.set("source", fields=["data"])
    records = list(generate(400, seed=8))
    job.source.insert_many(records[:300])
    job.decide("backfill")
    before = state(job)
    job.source.insert_many(records[300:])
    run = job.decide("run")
    after = state(job)
    assert after["target"] != before["target"]
    assert after["dropped"] != before["dropped"]

    done = job.command("undo", run.run, "--yes", "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {name: told[name] for name in ("undid", "plans", "read", "unique", "left")} == {
        "undid": run.run, "plans": 2, "read": 100, "unique": run.counts.unique, "left": {},
    }  # fmt: skip
    assert state(job) == before
    assert job.decide("run").counts == run.counts
    again = state(job)
    assert (again["target"], again["dropped"]) == (after["target"], after["dropped"])


def two_runs(job: Job) -> tuple[str, str]:
    """Decide seven records and one without text, then four and a copy; returns the runs."""
    job.source.insert_many([*texts(0, 7), {"_id": 7}])
    first = job.decide("backfill").run
    job.source.insert_many([*texts(8, 12), {"_id": 12, "text": OTHERS[0]}])
    return first, job.decide("run").run


@pytest.mark.long
def test_a_dry_run_of_an_undo_says_what_it_would_take_and_leaves_it(job: Job) -> None:
    first, second = two_runs(job)
    before = job.hash()

    done = job.command("undo", second, "--dry-run", "--json")

    told = json.loads(done.stdout)
    assert (done.returncode, told["undoes"], told["read"], told["most_removed"]) == (0, second, 5, 4)
    assert told["duplicate"] == {"exact": 1, "near": 0}
    refused = job.command("undo", first, "--dry-run")
    assert refused.returncode == 64
    assert f"later runs built on run {first}; undo them first: {second}" in refused.stderr
    assert job.hash() == before
    assert undo(job, second).counts.read == 5
    told = json.loads(job.command("undo", first, "--dry-run", "--json").stdout)
    assert (told["read"], told["most_removed"]) == (8, 8)  # the one without text was copied
    assert json.loads(job.command("undo", second, "--dry-run", "--json").stdout)["already"] is True


def test_without_a_terminal_an_undo_does_nothing_unless_it_is_told_to(job: Job) -> None:
    _, run = two_runs(job)
    before = job.hash()
    done = job.command("undo", run)
    assert done.returncode == 64
    assert "there is no terminal to ask on: add --yes, or --dry-run" in done.stderr
    assert job.hash() == before


@pytest.mark.parametrize(
    ("answer", "code", "left"), [("y\n", 0, 8), ("n\n", 64, 12), ("\n", 64, 12), ("", 64, 12)]
)
def test_on_a_terminal_an_undo_says_what_it_will_take_and_asks(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    code: int,
    left: int,
) -> None:
    _, run = two_runs(job)
    typed = io.StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", typed)
    monkeypatch.setattr(sys, "argv", ["dedup-job", "undo", run, "-c", str(job.config_file())])

    assert run_and_exit._run() == code

    said = capsys.readouterr().err
    assert f"would undo run {run} (run of " in said
    assert re.search(r"undecided again +5\n +removed from target +4 ", said)
    assert ("nothing was done" in said) == (code == 64)
    assert job.target.count_documents({}) == left


def test_a_half_done_undo_is_asked_about_by_what_is_left_to_do(job: Job) -> None:
    run = half_undone(job)
    told = json.loads(job.command("undo", run, "--dry-run", "--json").stdout)
    assert (told["has_begun"], told["read"]) == (True, 4)
    undo(job, run)
    assert json.loads(job.command("undo", run, "--dry-run", "--json").stdout)["already"] is True


def test_an_undo_is_the_same_on_a_standalone_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalMongod(replica_set=False) as server, MongoClient[Any](server.uri, tz_aware=True) as client:
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)
        job = Job(client.shop, server.uri, tmp_path)
        job.source.insert_many(texts(0, 4))
        job.decide("backfill")
        before = state(job)
        job.source.insert_many(texts(4, 8))

        undo(job, job.decide("run").run)

        assert state(job) == before


def test_two_runs_are_undone_in_turn_newest_first(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    states, runs = [], []
    for mode, start in (("backfill", 4), ("run", 8), ("run", 12)):
        runs.append(job.decide(mode).run)
        states.append(state(job))
        job.source.insert_many(texts(start, start + 4))
    idle = job.decide("backfill").run  # decides the last four

    with pytest.raises(UsageError, match=f"undo them first: {idle}, {runs[2]}$"):
        undo(job, runs[1])
    assert undo(job, idle).counts.read == 4
    assert state(job) == states[2]
    assert undo(job, runs[2]).counts.read == 4
    assert state(job) == states[1]
    assert undo(job, runs[1]).counts.read == 4
    assert state(job) == states[0]


def test_what_was_covered_goes_back_behind_runs_that_decided_nothing(job: Job) -> None:
    job.set("source", lookback_hours=0)
    job.source.insert_many([{"text": OTHERS[0]}, {"text": OTHERS[1]}])
    job.decide("backfill")
    before = state(job)
    job.source.insert_one({"text": OTHERS[2]})
    run = job.decide("run").run
    assert job.decide("run").counts.read == 0

    undo(job, run)

    assert state(job) == before


def test_an_undone_first_backfill_leaves_an_empty_target(job: Job) -> None:
    job.source.insert_many(texts(0, 8))
    run = job.decide("backfill").run

    undo(job, run)

    assert job.target.count_documents({}) == 0
    head = job.ledger("head").find_one() or {}
    assert [head[name] for name in ("last", "next", "watermark", "covered")] == [None, 0, None, None]
    assert job.decide("backfill").counts.unique == 8


def test_a_backfill_that_goes_on_behind_nightly_runs_is_undone_to_its_old_watermark(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    job.decide("backfill")
    job.source.insert_many(texts(4, 6))
    job.decide("run")
    job.source.insert_many(texts(6, 8))
    before = state(job)

    undo(job, job.decide("backfill").run)

    assert before["head"]["watermark"] is not None
    assert state(job) == before


def test_a_run_with_refused_passed_and_amended_records_is_undone(job: Job) -> None:
    before, run = odd_run(job)

    undo(job, run)

    assert state(job) == before


def test_a_record_that_changed_under_a_killed_run_is_undone_as_it_arrived(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    job.decide("backfill")
    before = state(job)
    job.source.insert_many([*texts(4, 7), {"_id": 8}])
    run = stopped_before_the_insert(job)
    job.source.update_one({"_id": 5}, {"$set": {"text": "another"}})
    job.source.update_one({"_id": 8}, {"$set": {"more": 1}})
    job.decide("run")
    assert job.rows("exceptions")["5"]["reason"] == "changed"

    assert undo(job, run).left == {}

    assert state(job) == before


def test_a_duplicate_that_changed_and_is_promoted_is_passed(job: Job) -> None:
    job.database.create_collection("unique", validator={"bad": {"$exists": False}})
    job.source.insert_many([{"_id": 1, "text": TEXT, "bad": 1}, {"_id": 2, "text": TEXT}])
    stopped_before_the_insert(job)
    job.source.update_one({"_id": 2}, {"$set": {"text": "another"}})

    job.decide("run")

    rows = {name: row["reason"] for name, row in job.rows("exceptions").items()}
    assert rows == {"1": "validator", "2": "changed"}
    assert (job.target.find_one() or {})["text"] == "another"


def test_what_a_killed_run_left_pending_is_finished_and_then_undone(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    job.decide("backfill")
    before = state(job)
    job.source.insert_many(texts(4, 8))
    run = stopped_before_the_insert(job)

    assert undo(job, run).counts.unique == 4

    assert state(job) == before


@pytest.mark.longest
def test_an_undo_that_is_killed_at_any_moment_is_ended_by_doing_it_again(
    job: Job, twin: Callable[[], Job]
) -> None:
    before, run = odd_run(job)
    whole = twin()
    commands = commands_of(lambda: undo(whole, run))
    assert state(whole) == before

    for number in range(1, commands + 1):
        half = twin()
        killed(partial(undo, half, run), number)
        last = undo(half, run)
        assert state(half) == before, f"killed after command {number} of {commands}"
        assert last.already or (last.plans, last.counts.read, last.left) == (2, 9, {})
        assert (half.ledger("runs").find_one({"_id": run}) or {})["undone"]


def rehearse(job: Job) -> Counts:
    with job.context() as context:
        return dry_run(context, DryRun(), lambda plan: None).counts


def verify(job: Job) -> None:
    with job.context() as context:
        verify_command.verify(context, None, lambda number: None)


def test_nothing_is_decided_on_a_ledger_that_is_half_undone(job: Job) -> None:
    run = half_undone(job)
    first = (job.ledger("runs").find_one(sort=[("started", 1)]) or {})["_id"]

    for work in (
        lambda: job.decide("run"),
        lambda: job.decide("backfill"),
        lambda: undo(job, first),
        lambda: rehearse(job),
        lambda: verify(job),
    ):
        with pytest.raises(StateError, match=f"half undone; finish the undo first: dedup-job undo {run}"):
            work()

    undo(job, run)
    assert job.decide("run").counts.unique == 4


def test_a_half_done_undo_whose_row_is_gone_is_ended_and_all_is_looked_at_again(job: Job) -> None:
    run = half_undone(job)
    job.ledger("runs").delete_one({"_id": run})

    undo(job, run)

    head = job.ledger("head").find_one() or {}
    assert (head["undo"], head["covered"], head["next"]) == (None, None, 1)


def test_a_run_whose_row_is_lost_is_undone_by_its_plans_and_all_is_looked_at_again(job: Job) -> None:
    job.source.insert_many([{"_id": number, "text": OTHERS[number % 3]} for number in range(5)])
    job.decide("backfill")
    before = state(job)
    job.source.insert_one({"_id": 5, "text": OTHERS[4]})
    job.decide("run")
    run = (job.ledger("runs").find_one_and_delete({}, sort=[("started", -1)]) or {})["_id"]

    assert run in job.command("undo", run, "--dry-run").stdout
    undone = job.command("undo", run, "--yes")

    assert undone.returncode == 0, undone.stderr
    assert state(job)["target"] == before["target"]
    assert job.decide("run").counts.read == 1


def test_records_that_were_altered_or_have_vanished_from_the_source_stay_and_are_listed(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    job.decide("backfill")
    job.source.insert_many(texts(4, 8))
    run = job.decide("run").run
    job.target.update_one({"_id": 5}, {"$set": {"mine": 1}})
    job.source.delete_one({"_id": 6})
    job.target.delete_one({"_id": 7})

    undone = undo(job, run)

    assert (undone.exit_code, undone.left) == (3, {"altered": 1, "vanished": 1})
    assert [record["_id"] for record in job.target.find().sort("_id", 1)] == [0, 1, 2, 3, 5, 6]
    rows = {row["_id"]: (row["reason"], row["run"]) for row in job.ledger("left").find()}
    assert rows == {5: ("altered", run), 6: ("vanished", run)}
    with job.context() as context:
        answer = why(context, "5")
    assert (answer["verdict"], answer["undone_but_left"]) == ("undecided", "altered")


def test_a_record_that_changed_in_the_source_stays_since_only_the_target_has_what_it_said(job: Job) -> None:
    job.source.insert_many([*texts(0, 8), {"_id": 8}, {"_id": 9, "text": OTHERS[4]}])
    run = job.decide("backfill").run
    job.source.update_one({"_id": 4}, {"$set": {"text": OTHERS[12]}})
    job.source.update_one({"_id": 8}, {"$set": {"more": 1}})
    job.source.update_one({"_id": 9}, {"$set": {"text": OTHERS[13]}})

    undone = undo(job, run)

    assert (undone.exit_code, undone.left) == (3, {"changed": 2})
    assert list(job.target.find().sort("_id", 1)) == [*texts(4, 5), {"_id": 8}]
    assert {row["_id"]: row["reason"] for row in job.ledger("left").find()} == {4: "changed", 8: "changed"}


def test_a_restored_record_that_changed_in_the_source_stays_when_its_run_is_undone(job: Job) -> None:
    job.source.insert_many([*texts(0, 3), {"_id": 9, "text": OTHERS[0], "mine": 1}])
    run = job.decide("backfill").run
    assert job.command("restore", "9").returncode == 0
    job.source.update_one({"_id": 9}, {"$set": {"text": OTHERS[13]}})

    assert undo(job, run).left == {"changed": 1}

    assert list(job.target.find()) == [{"_id": 9, "text": OTHERS[0], "mine": 1}]


def test_restored_records_count_as_removed_with_their_run(job: Job) -> None:
    job.source.insert_many([*texts(0, 3), {"_id": 9, "text": OTHERS[0]}])
    run = job.decide("backfill").run
    assert job.command("restore", "9").returncode == 0

    with job.context() as context:
        assert preview_undo(context, run).most_removed == 4
    undone = undo(job, run)

    assert (undone.restored, job.target.count_documents({})) == (1, 0)
    assert "removed from target             4" in undone.as_text()


def test_what_an_undo_left_is_known_and_decided_again(job: Job) -> None:
    job.source.insert_many([*texts(0, 4), {"_id": 9, "text": OTHERS[1]}])
    run = job.decide("backfill").run
    job.target.update_one({"_id": 0}, {"$set": {"mine": 1}})
    job.source.update_one({"_id": 1}, {"$set": {"text": OTHERS[8]}})
    job.source.update_one({"_id": 2}, {"$set": {"more": 1}})
    gone = job.source.find_one_and_delete({"_id": 3})
    assert undo(job, run).left == {"altered": 1, "changed": 2, "vanished": 1}
    left = list(job.target.find().sort("_id", 1))
    assert kinds(job) == []

    job.source.update_one({"_id": 2}, {"$unset": {"more": ""}})
    rehearsed = rehearse(job)
    again = job.decide("backfill")

    assert rehearsed.read == again.counts.read == 4
    assert (again.counts.unique, again.counts.refused) == (2, {"conflict": 2})
    assert list(job.target.find().sort("_id", 1)) == [*left, {"_id": 9, "text": OTHERS[1]}]
    assert kinds(job) == []
    assert {row["_id"]: row.get("decided") for row in job.ledger("left").find()} == {
        **dict.fromkeys(range(3), again.run), 3: None,
    }  # fmt: skip

    assert undo(job, again.run).left == {}
    assert [record["_id"] for record in job.target.find().sort("_id", 1)] == [0, 1, 3]
    assert [row["_id"] for row in job.ledger("left").find({"decided": None}).sort("_id", 1)] == [0, 1, 3]
    assert kinds(job) == []
    job.source.insert_one(gone)
    assert job.decide("run").counts.refused == {"conflict": 2}
    assert kinds(job) == []


def test_what_an_undo_left_is_not_dropped_for_another(job: Job) -> None:
    job.source.insert_many([*texts(4, 5), {"_id": 9, "text": OTHERS[0]}])
    run = job.decide("backfill").run
    job.target.update_one({"_id": 9}, {"$set": {"mine": 1}})
    undo(job, run)
    job.source.insert_one({"_id": 1, "text": OTHERS[0]})

    assert job.decide("backfill").counts.refused == {"conflict": 1}
    assert kinds(job) == []


def test_others_beside_what_an_undo_left_are_foreign_all_the_same(job: Job) -> None:
    job.source.insert_many(texts(0, 4))
    run = job.decide("backfill").run
    job.target.update_one({"_id": 0}, {"$set": {"mine": 1}})
    undo(job, run)
    job.target.insert_one({"_id": "stranger"})
    assert kinds(job) == ["foreign", "numbers"]
    with pytest.raises(ConfigError, match="no run put there"):
        job.decide("backfill")


def test_an_undone_backfill_leaves_the_rows_of_the_adoption_before_it(job: Job) -> None:
    job.target.insert_many([{"_id": 1}, *texts(2, 3), {"_id": 3, "text": ""}])
    job.source.insert_many([{"_id": 1}, *texts(2, 4)])
    with job.context() as context:
        adopt(context, lambda plan: None)
    before = state(job)
    assert kinds(job) == []
    run = job.decide("backfill")
    assert run.counts.unchecked == {"missing": 1}
    assert kinds(job) == []
    with job.context() as context:
        assert why(context, "1")["run"] == run.run

    undo(job, run.run)

    assert kinds(job) == []
    assert state(job)["exceptions"] == before["exceptions"]
    with job.context() as context:
        assert why(context, "1")["reason"] == "missing"


def test_an_adoption_is_undone_like_a_run_and_takes_nothing_out_of_the_target(job: Job) -> None:
    job.set("limits", batch_records=2)
    job.target.insert_many([*texts(1, 4), {"_id": 4}])
    job.source.insert_many([*texts(1, 2), {"_id": 9, "text": OTHERS[2]}])
    with job.context() as context:
        adoption = adopt(context, lambda plan: None)
    assert adoption is not None
    run = job.decide("backfill").run
    job.target.delete_one({"_id": 3})
    with pytest.raises(UsageError, match=f"undo them first: {run}"):
        undo(job, adoption.run)
    undo(job, run)
    assert "missing" in kinds(job)

    told = json.loads(job.command("undo", adoption.run, "--dry-run", "--json").stdout)
    undone = undo(job, adoption.run)

    assert (told["read"], told["most_removed"]) == (undone.counts.read, 0)

    assert (undone.plans, undone.counts.read, undone.left) == (2, 0, {})
    assert [record["_id"] for record in job.target.find().sort("_id", 1)] == [1, 2, 4]
    assert job.rows("exceptions") == {}
    assert "missing" not in kinds(job)
    with pytest.raises(ConfigError, match="--adopt"):
        job.decide("backfill")
    with job.context() as context:
        adopt(context, lambda plan: None)
    assert job.decide("backfill").counts.exact == 1
    assert kinds(job) == []


def test_a_record_whose_empty_time_the_server_set_is_undone_like_any_other(job: Job) -> None:
    job.source.insert_many(texts(0, 2))
    job.source.update_many({}, {"$set": {"at": Timestamp(0, 0)}})
    run = job.decide("backfill").run
    assert job.target.find_one({"_id": 0})["at"] != Timestamp(0, 0)

    assert undo(job, run).left == {}
    assert job.target.count_documents({}) == 0


def test_records_that_a_plan_found_in_the_target_are_never_removed(job: Job) -> None:
    job.set("limits", batch_records=4)
    job.source.insert_many(texts(0, 8))
    run = job.decide("backfill").run
    first, second = map(unpack, job.ledger("plans").find().sort("_id", 1))
    adopted = replace(first, mode="adopt", plan=second.plan)
    job.ledger("plans").replace_one({"_id": first.id.key}, pack(adopted))

    assert undo(job, run).counts.read == 4

    assert [record["_id"] for record in job.target.find().sort("_id", 1)] == list(range(8))
    assert (job.ledger("head").find_one() or {})["next"] == 1


def test_an_undone_run_is_undone_once_and_others_that_cannot_be_are_named(job: Job) -> None:
    with pytest.raises(ConfigError, match="nothing was decided for"):
        undo(job_with_records(job), "nothing")
    run = job.decide("backfill").run
    idle = job.decide("run").run
    with pytest.raises(UsageError, match="knows no run 'nothing'"):
        undo(job, "nothing")
    with pytest.raises(UsageError, match=f"run {idle} decided nothing"):
        undo(job, idle)

    undo(job, run)

    assert undo(job, run).already


def job_with_records(job: Job) -> Job:
    job.source.insert_many(texts(0, 3))
    return job


def test_an_undo_takes_the_lease(job: Job) -> None:
    run = job_with_records(job).decide("backfill").run
    lease = {"host": "elsewhere", "boot": "b", "pid": 1}
    job.ledger("head").update_one({}, [{"$set": {"lease": {**lease, "until": {"$add": ["$$NOW", 60000]}}}}])

    with pytest.raises(LeaseHeld):
        undo(job, run)


def test_an_undo_that_lost_its_lease_removes_nothing_more(job: Job) -> None:
    job.set("limits", batch_records=4)
    job.source.insert_many(texts(0, 8))
    run = job.decide("backfill").run

    def taken_over(*_: Any) -> None:
        job.ledger("head").update_one({}, {"$inc": {"fence": 1}})

    with job.context() as context, pytest.raises(LeaseHeld):
        undo_command(context, run, taken_over)

    assert [record["_id"] for record in job.target.find().sort("_id", 1)] == [0, 1, 2, 3]
    assert undo(job, run).counts.read == 8


def test_a_removal_that_comes_late_removes_nothing(job: Job) -> None:
    """A later run may have put the same records back."""
    job.target.insert_many(texts(0, 3))
    ids = [encode({"_id": n}) for n in range(3)]
    target = Target(retrying(job.target))
    with Context(config.check_settings(job_with_records(job).tables, "test")) as context:
        now = context.ledger_reader().now()

    target.remove(ids, now - timedelta(milliseconds=1))
    assert job.target.count_documents({}) == 3

    target.remove(ids[:2], now + timedelta(seconds=30))
    assert [record["_id"] for record in job.target.find()] == [2]


def in_both(job: Job) -> tuple[set[Any], set[Any]]:
    """Return the ids in the source, and those in the target."""
    return {one["_id"] for one in job.source.find()}, {one["_id"] for one in job.target.find()}


def before_the_removal(job: Job, meanwhile: Callable[[], object], run: str) -> None:
    """Undo a run, and let something happen just before its records are removed."""

    def is_time(_: int, event: monitoring.CommandStartedEvent) -> bool:
        return event.command.get("delete") == "unique" and bool(
            event.command["deletes"][0]["q"]["$and"][0]["_id"]["$in"]
        )

    stopped(lambda: undo(job, run), is_time, lambda _: meanwhile())


def test_records_that_leave_the_source_just_before_they_are_removed_are_put_back(job: Job) -> None:
    job.source.insert_many(texts(0, 8))
    run = job.decide("backfill").run
    before = {one["_id"]: one.raw for one in job.target.with_options(RAW).find()}

    def meanwhile() -> None:
        job.source.delete_many({"_id": {"$in": [1, 2]}})
        job.source.update_one({"_id": 3}, {"$set": {"text": OTHERS[9]}})

    before_the_removal(job, meanwhile, run)

    assert {one["_id"]: one.raw for one in job.target.with_options(RAW).find()} == {
        n: before[n] for n in (1, 2, 3)
    }
    assert {row["_id"]: row["reason"] for row in job.ledger("left").find()} == {
        1: "vanished", 2: "vanished", 3: "changed",
    }  # fmt: skip
    assert (job.ledger("runs").find_one({"mode": "undo"}) or {})["left"] == {"vanished": 2, "changed": 1}
    assert job.ledger("aside").count_documents({}) == 0
    assert kinds(job) == []


def test_an_undo_that_is_killed_behind_its_removal_still_puts_back_what_left_the_source(job: Job) -> None:
    job.source.insert_many(texts(0, 8))
    run = job.decide("backfill").run

    def is_time(_: int, event: monitoring.CommandStartedEvent) -> bool:
        return event.command.get("find") == "unique.dedup.aside" and job.target.count_documents({}) == 0

    def dies(_: object) -> None:
        job.source.delete_many({"_id": {"$lt": 4}})
        raise Died

    with pytest.raises(Died):
        stopped(lambda: undo(job, run), is_time, dies)
    assert in_both(job) == ({4, 5, 6, 7}, set())

    assert undo(job, run).left == {"vanished": 4}

    assert in_both(job) == ({4, 5, 6, 7}, {0, 1, 2, 3})
    assert kinds(job) == []


@pytest.mark.longest
def test_whenever_an_undo_is_killed_what_has_left_the_source_by_then_is_in_the_target_in_the_end(
    job: Job, twin: Callable[[], Job]
) -> None:
    job.source.insert_many(texts(0, 8))
    run = job.decide("backfill").run
    records = list(job.source.find())
    whole = twin()
    commands = commands_of(lambda: undo(whole, run))

    for number in range(1, commands + 1):
        half = twin()
        killed(partial(undo, half, run), number)
        held = {one["_id"] for name in ("", ".dedup.aside") for one in half.database["unique" + name].find()}
        job.source.delete_many({"_id": {"$lt": 4}})
        undo(half, run)
        assert in_both(half)[1] == held & {0, 1, 2, 3}, f"killed after command {number} of {commands}"
        assert half.ledger("aside").count_documents({}) == 0
        job.source.insert_many(records[:4])


def test_what_the_target_does_not_take_back_stays_aside(job: Job) -> None:
    job.source.insert_many(texts(0, 3))
    run = job.decide("backfill").run

    def meanwhile() -> None:
        job.source.delete_many({})
        job.database.command("collMod", "unique", validator={"mine": {"$exists": True}})

    with pytest.raises(StateError, match=r"3 records left the source .*\(validator\); .*unique.dedup.aside"):
        before_the_removal(job, meanwhile, run)

    assert {one["_id"] for one in job.ledger("aside").find()} == {0, 1, 2}
    job.database.command("collMod", "unique", validator={})
    assert undo(job, run).left == {"vanished": 3}
    assert in_both(job)[1] == {0, 1, 2}


def test_every_removal_is_told_a_time_well_before_the_lease_ends(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job_with_records(job).decide("backfill").run
    told = []

    def remove(self: Target, ids: Sequence[bytes], before: datetime) -> None:
        lease = (job.ledger("head").find_one() or {})["lease"]
        told.append((lease["until"] - before).total_seconds())
        really(self, ids, before)

    really = Target.remove
    monkeypatch.setattr(Target, "remove", remove)
    undo(job, run)

    assert told == [30.0] * 4  # two ask whether removing is allowed at all
    assert told[0] > REMOVAL_SECONDS


def test_who_may_not_remove_records_learns_it_before_anything_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalMongod(auth=True) as server, MongoClient[Any](server.uri, tz_aware=True) as root:
        job = Job(root.shop, server.uri, tmp_path)
        job.source.insert_many(texts(0, 3))
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)
        run = job.decide("backfill").run
        before = state(job)
        everywhere = {"resource": {"db": "shop", "collection": ""}, "actions": ["find", "insert", "update"]}
        of_ledger = [
            {"resource": {"db": "shop", "collection": f"unique.dedup.{name}"}, "actions": ["remove"]}
            for name in LEDGER
        ]
        listing = {"resource": {"db": "shop", "collection": ""}, "actions": ["listCollections"]}
        root.admin.command("createRole", "nightly", privileges=[everywhere, listing, *of_ledger], roles=[])
        root.admin.command("createUser", "nightly", pwd="secret", roles=["nightly"])
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri_as("nightly", "secret"))
        assert job.decide("run").counts.read == 0

        with pytest.raises(NotPermitted):
            undo(job, run)

        after = state(job)
        for time in ("covered", "seen", "looked"):
            assert after["head"].pop(time) >= before["head"].pop(time)
        assert after == before


def test_an_undo_does_not_need_the_recipe_of_the_ledger_but_its_source(job: Job) -> None:
    run = job_with_records(job).decide("backfill").run
    job.set("match", radius=2)
    job.database["others"].insert_one({"text": OTHERS[9]})
    job.set("source", collection="others")
    with pytest.raises(ConfigError, match="was filled from"):
        undo(job, run)
    job.set("source", collection="pages")

    undo(job, run)

    assert job.target.count_documents({}) == 0


def test_when_all_is_undone_another_recipe_may_be_set(job: Job) -> None:
    run = job_with_records(job).decide("backfill").run
    job.set("match", radius=2)
    with pytest.raises(ConfigError, match="radius"):
        job.decide("backfill")
    undo(job, run)

    assert job.decide("backfill").counts.unique == 3
    assert (job.ledger("head").find_one() or {})["recipe"]["matching.radius"] == 2
