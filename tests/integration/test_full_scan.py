"""Full scans find undecided records with old ids, and `status` says when the next one is due."""

from __future__ import annotations

from typing import Any

import pytest

from dedup_job.commands import status
from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.mongo.source import Source
from dedup_job.report.status_history_doctor_text import status_text
from tests.support.aged_ledger import aged, head
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.late_records import POOL
from tests.support.sync_cases import up_to_date
from tests.support.undo_cases import undo


@pytest.fixture(autouse=True)
def _without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def status_of(job: Job) -> dict[str, Any]:
    with job.context() as context:
        return status.status(context)


def looked(job: Job, days: float) -> None:
    """Let the last full scan be so long ago."""
    then = {"$subtract": ["$$NOW", int(days * 86_400_000)]}
    job.ledger("head").update_one({}, [{"$set": {"looked": then}}])


def test_old_ids_are_found_where_decided_records_were_deleted(job: Job) -> None:
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide("backfill")
    job.source.delete_many({"_id": {"$in": [record["_id"] for record in aged(range(3), 60)]}})
    job.source.insert_many(aged(range(20, 22), 20))

    assert job.decide("run").counts.read == 2


@pytest.mark.parametrize("order", [1, -1], ids=["before the window", "in the window"])
def test_old_ids_are_found_though_as_many_records_are_noted_as_vanished(job: Job, order: int) -> None:
    """What an apply has noted as vanished is decided, and is not in the source: it does not count there."""
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide("backfill")
    gone = [record["_id"] for record in job.source.find().sort("_id", order).limit(3)]
    job.source.delete_many({"_id": {"$in": gone}})
    up_to_date(job)
    assert status_of(job)["lag"]["records"] is None
    job.source.insert_many(aged(range(20, 23), 20))
    assert status_of(job)["lag"]["records"] == 3

    assert job.decide("run").counts.read == 3
    assert job.differences() == {}


def test_all_ids_are_not_compared_again_because_records_are_noted_as_vanished(job: Job) -> None:
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide("backfill")
    job.source.delete_many({"_id": {"$in": [record["_id"] for record in job.source.find().limit(3)]}})
    up_to_date(job)
    job.decide("run")
    before = head(job)["looked"]

    job.decide("run")

    assert head(job)["looked"] == before


def test_a_number_that_is_as_it_should_be_is_no_proof_for_longer_than_a_week(job: Job) -> None:
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide("backfill")
    job.source.delete_many({"_id": {"$in": [record["_id"] for record in job.source.find().limit(4)]}})
    job.source.insert_many(aged(range(20, 24), 20))

    looked(job, 6.9)
    assert job.decide("run").counts.read == 0
    looked(job, 7.1)
    assert job.decide("run").counts.read == 4
    assert job.differences() == {}


def test_how_long_a_number_is_believed_is_a_setting(job: Job) -> None:
    job.set("source", full_scan_days=0)
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide("backfill")
    job.source.delete_many({"_id": {"$in": [record["_id"] for record in job.source.find().limit(4)]}})
    job.source.insert_many(aged(range(20, 24), 20))

    assert job.decide("run").counts.read == 4


@pytest.mark.parametrize("mode", ["run", "backfill"])
def test_ids_that_hold_no_time_are_found_wherever_they_come(job: Job, mode: str) -> None:
    job.source.insert_many([{"_id": number, "text": POOL[number]} for number in (1, 3, 5)])
    job.decide("backfill")
    job.source.insert_one({"_id": 2, "text": POOL[2]})
    assert job.decide(mode).counts.read == 1
    assert job.differences() == {}


@pytest.mark.parametrize("mode", ["run", "backfill"])
def test_old_ids_are_found_behind_a_filter(job: Job, mode: str) -> None:
    job.set("source", filter='{"lang": "zh"}')
    job.source.insert_many([*aged(range(10), 60, lang="zh"), *aged(range(10, 20), 0, lang="zh")])
    job.decide("backfill")
    job.source.insert_many([*aged(range(20, 24), 20, lang="zh"), *aged(range(24, 28), 20, lang="en")])

    assert job.decide(mode).counts.read == 4
    assert job.decide(mode).counts.read == 0


def test_old_ids_are_found_where_the_number_of_records_cannot_be_had(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide("backfill")
    job.source.delete_many({"_id": {"$in": [record["_id"] for record in job.source.find().limit(4)]}})
    job.source.insert_many(aged(range(20, 24), 20))
    monkeypatch.setattr(Source, "is_sharded", lambda self: True)

    assert job.decide("run").counts.read == 4


@pytest.mark.parametrize("mode", ["run", "backfill"])
def test_a_rehearsal_looks_where_the_run_will(job: Job, mode: str) -> None:
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide("backfill")
    job.source.insert_many(aged(range(20, 24), 20))
    looked(job, 8)
    with job.context() as context:
        counts = dry_run(context, DryRun(mode), lambda plan: None).counts

    assert counts.read == job.decide(mode).counts.read == 4


def test_a_backfill_that_finds_old_ids_keeps_its_watermark_and_is_undone_like_any_other(job: Job) -> None:
    job.set("limits", batch_records=3)
    job.source.insert_many(aged(range(10), 60))
    job.decide("backfill")
    watermark = head(job)["watermark"]
    job.source.insert_many([*aged(range(10, 14), 70), *aged(range(14, 16), 50)])
    before = {record["_id"] for record in job.target.find()}
    looked(job, 8)

    run = job.decide("backfill")

    assert run.counts.read == 6
    assert head(job)["watermark"] > watermark
    assert job.differences() == {}
    assert job.decide("run").counts.read == 0
    assert job.command("undo", run.run, "--yes").returncode == 0
    assert {record["_id"] for record in job.target.find()} == before
    assert head(job)["watermark"] == watermark
    assert job.decide("run").counts.read == 6


def test_the_last_full_scan_is_in_the_head_and_goes_back_with_an_undo(job: Job) -> None:
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide("backfill")
    first = head(job)["looked"]
    job.source.insert_many(aged(range(20, 22), 0))
    assert job.decide("run").counts.read == 2
    assert head(job)["looked"] == first, "the number of records was as it should be"

    job.source.insert_many(aged(range(22, 24), 30))
    run = job.decide("run")
    assert head(job)["looked"] > first
    assert job.command("undo", run.run, "--yes").returncode == 0
    assert head(job)["looked"] == first


@pytest.mark.parametrize("mode", ["backfill", "run"])
def test_verify_names_old_ids_whatever_made_the_ledger(job: Job, mode: str) -> None:
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide(mode)
    assert job.differences() == {}
    job.source.insert_many(aged(range(20, 24), 20))

    assert job.differences() == {"undecided": 4}


def test_verify_tells_what_the_next_run_will_decide_and_does_not_call_it_a_difference(job: Job) -> None:
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 1)])
    job.decide("backfill")
    job.source.insert_many(aged(range(20, 24), 0))

    found = job.verified()

    assert (found.differences, found.waiting) == ([], 4)
    assert "4 records of the source are not decided yet: the next run decides them" in found.as_text()
    assert found.as_json()["waiting"] == 4


@pytest.mark.parametrize("mode", ["backfill", "run"])
def test_records_whose_ids_hold_no_time_wait_for_the_next_run(job: Job, mode: str) -> None:
    job.source.insert_many([{"_id": n, "text": POOL[n]} for n in range(10)])
    job.decide(mode)
    job.source.insert_one({"_id": 4.5, "text": POOL[11]})
    first = job.decide("run").run
    job.source.insert_one({"_id": 3.5, "text": POOL[12]})
    undo(job, first)

    found = job.verified()

    assert (found.differences, found.waiting) == ([], 2)
    assert job.decide("run").counts.read == 2
    assert (job.verified().differences, job.verified().waiting) == ([], 0)


def test_status_tells_of_the_last_full_scan_and_no_number_that_nobody_counted(job: Job) -> None:
    job.source.insert_many([*aged(range(10), 60), *aged(range(10, 20), 0)])
    job.decide("backfill")
    shown = status_of(job)
    assert shown["lag"]["records"] is None
    assert shown["looked"] is not None
    assert "undecided  none known; the next full scan makes sure" in status_text(shown)
    assert "full scan  20" in status_text(shown)

    job.source.insert_many(aged(range(20, 24), 20))
    shown = status_of(job)
    assert shown["lag"]["records"] == 4
    assert "undecided  about 4 or more" in status_text(shown)


def test_status_says_where_there_was_no_full_scan(job: Job) -> None:
    job.source.insert_many(aged(range(10), 60))
    job.decide("backfill")
    job.ledger("head").update_one({}, {"$set": {"looked": None}})

    assert "full scan  the next run compares all ids" in status_text(status_of(job))
