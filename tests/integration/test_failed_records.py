"""Records that the job fails on are counted, retried by `sync`, and stop a run if there are many."""

from __future__ import annotations

import json

import pytest

from dedup_job.errors import GuardStop
from dedup_job.pipeline import worker_tasks
from dedup_job.pipeline.fingerprint_workers import POISON
from dedup_job.records import is_failure
from tests.support import worker_faults
from tests.support.job import Job
from tests.support.sync_cases import A, B, C, dropped, due, exceptions, in_target, up_to_date

CRASH = f"CRASH {C}"  # a text over which a worker crashes while `fragile.work` is what it does


@pytest.fixture
def poisoned(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose workers die over two records of one text; they do not any more once this is set up."""
    job.set("limits", batch_records=4)
    job.source.insert_many([{"_id": n, "text": text} for n, text in enumerate([A, CRASH, B, A, CRASH, B])])
    with monkeypatch.context() as patch:
        patch.setattr(worker_tasks, "work", worker_faults.work)
        job.decide("backfill")
    assert exceptions(job) == {1: ("unchecked", "poison"), 4: ("unchecked", "poison")}
    return job


def test_the_reason_of_a_record_that_crashes_its_worker_is_a_failure() -> None:
    assert is_failure(POISON)


def test_what_the_job_failed_on_is_decided_by_an_apply(poisoned: Job) -> None:
    assert due(poisoned)["decide_again"] == {"changed": 0, "handed_on": 0, "refused": 0, "failed": 2}

    done = up_to_date(poisoned)

    assert done.updated is not None
    assert (done.exit_code, done.updated.removed) == (0, 1)
    assert (done.updated.counts.unique, done.updated.counts.exact) == (1, 1)
    assert in_target(poisoned) == {0: A, 1: CRASH, 2: B}
    assert (dropped(poisoned), exceptions(poisoned)) == ({3: 0, 4: 1, 5: 2}, {})
    assert poisoned.differences() == {}
    assert due(poisoned)["decide_again"]["failed"] == 0


def test_what_the_job_fails_on_again_stays_a_copy_and_stops_nothing(
    poisoned: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_tasks, "work", worker_faults.work)
    poisoned.set("limits", max_failed_share=0)
    before = poisoned.outcome()

    done = up_to_date(poisoned)

    assert done.updated is not None
    assert (done.exit_code, done.updated.counts.unchecked) == (0, {"poison": 2})
    assert poisoned.outcome() == before
    assert poisoned.differences() == {}


def test_an_apply_stops_where_it_fails_on_records_that_were_judged_before(
    poisoned: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_tasks, "work", worker_faults.work)
    poisoned.set("limits", max_failed_share=0)
    poisoned.source.update_one({"_id": 0}, {"$set": {"text": f"CRASH {A}"}})
    with pytest.raises(GuardStop, match=r"the job failed on 1 of 4 records \(poison 1\)"):
        up_to_date(poisoned)
    assert in_target(poisoned)[0] == A


def test_status_counts_what_the_job_failed_on(poisoned: Job) -> None:
    assert json.loads(poisoned.command("status", "--json").stdout)["failed"] == 2
    assert "failed 2 of the unchecked; to try them again: sync" in (poisoned.command("status").stdout)
    up_to_date(poisoned)
    assert json.loads(poisoned.command("status", "--json").stdout)["failed"] == 0
    assert "failed" not in poisoned.command("status").stdout


def test_a_run_that_fails_on_too_many_records_stops_before_it_copies_them(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_tasks, "work", worker_faults.work)
    job.set("limits", batch_records=2, max_failed_share=0.0001)  # one of 10,000
    job.source.insert_many([{"_id": n, "text": text} for n, text in enumerate([A, CRASH, B, A, CRASH, B])])
    for _ in range(2):
        with pytest.raises(GuardStop, match=r"the job failed on 2 of 6 records \(poison 2\)"):
            job.decide("backfill")
        assert in_target(job) == {0: A, 1: CRASH, 2: B}, "the first failure was allowed, and counts on"
