"""Targets that get a unique index or a validator after the backfill."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.support.job import Job
from tests.support.kill_in_process import killed_after_setting
from tests.support.restore_cases import restore
from tests.support.strict_targets import refused
from tests.support.undo_cases import OTHERS, state, undo

FOLDING = {"locale": "en", "strength": 2}


def fill(job: Job) -> None:
    """Keep three records and drop a copy, and add four: two of a place that is taken, and copies of them."""
    job.source.insert_many([{"_id": n, "text": OTHERS[n], "place": f"place {n}"} for n in range(3)])
    job.source.insert_one({"_id": 3, "text": OTHERS[0], "place": "place 0"})
    job.decide("backfill")
    places = {10: "place 0", 11: "elsewhere", 12: "PLACE 1", 13: "beyond"}
    texts = {10: 5, 11: 5, 12: 6, 13: 7}
    job.source.insert_many([{"_id": n, "text": OTHERS[texts[n]], "place": places[n]} for n in texts])


@pytest.mark.parametrize(
    ("collation", "reasons", "kept"),
    [
        (None, {10: "unique_index"}, [0, 1, 2, 11, 12, 13]),
        (FOLDING, {10: "unique_index", 12: "unique_index"}, [0, 1, 2, 11, 13]),
    ],
)
def test_a_unique_index_that_comes_after_the_backfill_refuses_only_what_comes_then(
    job: Job, collation: Any, reasons: dict[int, str], kept: list[int]
) -> None:
    fill(job)
    before = state(job)
    job.target.create_index("place", unique=True, **({"collation": collation} if collation else {}))

    report = job.decide("run")

    assert (report.exit_code, refused(job)) == (3, reasons)
    assert [record["_id"] for record in job.target.find().sort("_id", 1)] == kept  # 11 in the place of 10
    assert job.decide("run").counts.read == 0
    assert job.differences() == {}
    undo(job, report.run)
    assert state(job) == before


def grow_stricter(job: Job) -> None:
    """Let the target take no record any more whose place has a number."""
    job.database.command("collMod", "unique", validator={"place": {"$not": {"$regex": "place [0-9]"}}})


def test_a_validator_that_comes_after_the_backfill_refuses_only_what_comes_then(job: Job) -> None:
    fill(job)
    before = state(job)
    grow_stricter(job)

    report = job.decide("run")

    assert (report.exit_code, refused(job)) == (3, {10: "validator"})
    assert [record["_id"] for record in job.target.find().sort("_id", 1)] == [0, 1, 2, 11, 12, 13]
    assert job.differences() == {}
    assert restore(job, "3").not_restored == [(3, "target", "validator")]
    assert job.differences() == {}
    undo(job, report.run)
    assert state(job) == before


@pytest.mark.parametrize("name", ["pending", "last"])
def test_a_target_that_grows_stricter_under_a_killed_run_refuses_only_what_is_not_there(
    job: Job, name: str
) -> None:
    fill(job)
    killed_after_setting(name, partial(job.decide, "run"))
    is_there = job.target.count_documents({"_id": 10})
    grow_stricter(job)
    job.target.create_index("place", unique=True, partialFilterExpression={"_id": {"$gt": 9}})

    job.decide("run")

    assert (is_there, refused(job)) in ((0, {10: "validator"}), (1, {}))
    assert job.target.count_documents({"_id": {"$in": [10, 11]}}) == 1
    assert job.differences() == {}


def test_a_target_that_is_made_anew_with_a_collation_is_refused(job: Job) -> None:
    fill(job)
    job.target.drop()
    job.database.create_collection("unique", collation=FOLDING)

    done = job.command("run")

    assert done.returncode == 78, done.stderr
    assert "another default collation" in done.stderr
    assert done.stderr.count("\n") == 1
