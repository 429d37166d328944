"""A document of the ledger that lacks a field is named (65), whichever command reads it."""

from __future__ import annotations

from typing import Any

import pytest

from dedup_job.errors import StateError
from tests.support.job import Job
from tests.support.restore_cases import restore, with_two_copies


@pytest.mark.parametrize("name", ["keeper", "reason", "distance", "similarity", "run", "at"])
def test_a_row_of_a_dropped_record_without_a_field_is_named(job: Job, name: str) -> None:
    with_two_copies(job)
    job.ledger("dropped").update_many({}, {"$unset": {name: 1}})

    for command in (["verify"], ["list"], ["why", "3"]):
        check_named(job, command, "a row of `dropped`")


@pytest.mark.parametrize("name", ["action", "why", "at", "hash", "dropped"])
def test_a_row_of_a_restored_record_without_a_field_is_named(job: Job, name: str) -> None:
    with_two_copies(job)
    restore(job, "2")
    job.ledger("overrides").update_one({}, {"$unset": {name: 1}})

    for command in (["verify"], ["why", "2"]):
        check_named(job, command, "a row of `overrides`")


@pytest.mark.parametrize("name", ["counts", "recipe", "fence", "next"])
def test_a_head_without_a_field_is_named(job: Job, name: str) -> None:
    with_two_copies(job)
    job.ledger("head").update_one({}, {"$unset": {name: 1}})

    for command in (["verify"], ["status"], ["run"]):
        check_named(job, command, "the head")


@pytest.mark.parametrize("name", ["mode", "started"])
def test_a_row_of_a_run_without_a_field_is_named(job: Job, name: str) -> None:
    run = with_two_copies(job)
    job.ledger("runs").update_one({}, {"$unset": {name: 1}})

    for command in (["status"], ["history"], ["history", run]):
        check_named(job, command, "a row of `runs`")


def test_a_plan_without_the_plan_before_it_is_named(job: Job) -> None:
    run = with_two_copies(job)
    job.ledger("plans").update_many({}, {"$unset": {"previous": 1}})

    for command in (["why", "1"], ["changes"], ["run"], ["undo", run, "--dry-run"]):
        check_named(job, command, "a plan")


@pytest.mark.parametrize("change", [{"run": "20200101T000000-0000"}, {"mode": "sync"}, {"until": 5}])
def test_a_plan_that_says_something_else_is_damaged(job: Job, change: dict[str, Any]) -> None:
    job.source.insert_one({"_id": 1, "text": "one text alone"})
    job.decide("backfill")
    job.ledger("plans").update_one({}, {"$set": change})

    assert job.differences().keys() == {"plan_damaged"}
    check_named(job, ["run"], "plan 0 of the ledger")


def check_named(job: Job, command: list[str], what: str) -> None:
    """Check that a command ends with 65, and that its last line names a document."""
    done = job.command(*command)
    assert done.returncode == StateError.exit_code, (command, done.stdout, done.stderr)
    last = done.stderr.splitlines()[-1]
    assert (what in last, "is damaged" in last) == (True, True), last
