"""Ids of thousands of characters: no plan, and no command, grows beyond what the server takes."""

from __future__ import annotations

from typing import Any

import pytest

from dedup_job import config
from dedup_job.commands.adopt import adopt
from dedup_job.commands.context import Context
from tests.integration.conftest import Job
from tests.integration.moments import install
from tests.integration.test_late import POOL
from tests.integration.test_undo import kinds, undo

LENGTH = 5_000


@pytest.fixture(autouse=True)
def _without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def long_id(number: int) -> str:
    return f"{number:05}" + "长" * (LENGTH - 5)


def fill(job: Job, place: Any, count: int) -> None:
    for start in range(0, count, 200):
        place.insert_many([{"_id": long_id(n), "text": POOL[n % 20]} for n in range(start, start + 200)])
    job.set("limits", batch_records=5_000, batch_mb=64)


def test_a_batch_is_cut_by_the_size_of_its_plan(job: Job) -> None:
    fill(job, job.source, 1_600)

    counts = job.decide("backfill").counts

    assert (counts.unique, counts.exact) == (20, 1_580)
    sizes = [len(plan["ids"]) + len(plan["keepers"]) for plan in job.ledger("plans").find()]
    assert max(sizes) <= 6 << 20
    assert job.decide("run").counts.read == 0
    assert kinds(job) == []


def test_short_ids_whose_keepers_are_long_are_cut_as_well_and_undone(job: Job) -> None:
    fill(job, job.source, 200)
    job.decide("backfill")
    job.source.insert_many([{"_id": f"x{n:04}", "text": POOL[n % 20]} for n in range(1_000)])

    run = job.decide("run")

    assert run.counts.exact == 1_000
    assert undo(job, run.run).left == {}
    assert job.decide("run").counts.exact == 1_000
    assert kinds(job) == []


def test_what_a_target_held_before_is_adopted_in_plans_that_fit(job: Job) -> None:
    fill(job, job.target, 1_200)
    job.source.insert_one({"_id": 1, "text": POOL[3]})
    with Context(config.check(job.tables, "test")) as context:
        adopted = adopt(context, lambda batch, plan: None)

    assert adopted is not None
    assert adopted.counts.unique == 1_200
    assert job.decide("backfill").counts.exact == 1
    assert kinds(job) == []
