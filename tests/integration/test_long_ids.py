"""Ids of thousands of characters: no plan and no command exceeds the limits of the server."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from bson import ObjectId

from dedup_job.commands.backfill_and_run import adopt
from dedup_job.errors import ConfigError
from dedup_job.ledger import reader
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.kill_in_process import Died, Mortal, mortal
from tests.support.late_records import POOL
from tests.support.undo_cases import kinds, undo

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


@pytest.mark.long
def test_a_batch_is_cut_by_the_size_of_its_plan(job: Job) -> None:
    fill(job, job.source, 1_600)

    counts = job.decide("backfill").counts

    assert (counts.unique, counts.exact) == (20, 1_580)
    sizes = [len(plan["ids"]) + len(plan["keepers"]) for plan in job.ledger("plans").find()]
    assert max(sizes) <= 6 << 20
    assert job.decide("run").counts.read == 0
    assert kinds(job) == []


def test_plans_are_read_some_megabytes_at_a_time(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(job, job.source, 200)
    job.set("limits", batch_records=40)
    job.decide("backfill")
    with job.context() as context:
        head = context.ledger_reader().head()
    assert head is not None
    for nbytes, plans in ((1, 1), (1_000_000, 2), (3_000_000, 3), (1 << 30, 5)):
        monkeypatch.setattr(reader, "PAGE_BYTES", nbytes)
        with job.context() as context:
            ledger = context.ledger_reader()
            page, _ = ledger._page({"$lt": {"number": head.next}})
            assert (len(page), len(list(ledger.plans(head)))) == (plans, 5)
            columns = [list(stored.ids) for stored in ledger.plan_columns(head)]
            assert columns == [stored.plan.ids for stored in ledger.plans(head)]


@pytest.mark.long
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
    with job.context() as context:
        adopted = adopt(context, lambda plan: None)

    assert adopted is not None
    assert adopted.counts.unique == 1_200
    assert job.decide("backfill").counts.exact == 1
    assert kinds(job) == []


def id_of_kind(kind: str, number: int, size: int) -> Any:
    long = f"{number:05}" + "x" * (size - 5)
    return {"a": 1, "b": long} if kind == "document" else long


@pytest.mark.long
@pytest.mark.parametrize("kind", ["text", "document"])
def test_records_with_ids_of_megabytes_are_copied_unchecked_and_undone(job: Job, kind: str) -> None:
    ids = [id_of_kind(kind, n, 6_500_000) for n in range(3)]
    for n, one in enumerate(ids):
        job.source.insert_one({"_id": one, "text": POOL[1], "n": n})
    job.source.insert_many([{"_id": ObjectId(), "text": POOL[1]} for _ in range(2)])

    run = job.decide("backfill")

    assert (run.counts.unchecked, run.counts.unique, run.counts.exact) == ({"long_id": 3}, 1, 1)
    assert job.decide("run").counts.read == 0
    assert kinds(job) == []
    job.source.delete_one({"_id": ids[0]})
    assert undo(job, run.run).left == {"vanished": 1}
    assert [record["n"] for record in job.target.find()] == [0]
    assert job.decide("backfill").counts.unchecked == {"long_id": 2}
    assert kinds(job) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", ["text", "document"])
def test_a_run_that_is_killed_among_such_records_is_gone_on_with(job: Job, kind: str) -> None:
    for n in range(2):
        job.source.insert_one({"_id": id_of_kind(kind, n, 6_500_000), "text": POOL[1]})
    noting = Mortal(lambda _, event: event.command.get("insert") == "unique.dedup.exceptions")
    with mortal(noting), suppress(Died):
        job.decide("backfill")
    assert (job.ledger("head").find_one() or {})["next"] == 0

    assert job.decide("backfill").counts.read == 1

    assert job.target.count_documents({}) == 2
    assert kinds(job) == []


def test_an_id_that_no_ledger_can_hold_is_told_and_a_filter_leaves_it_out(job: Job) -> None:
    job.source.insert_one({"_id": "x" * (8 << 20), "text": POOL[1]})
    job.source.insert_one({"_id": "a", "text": POOL[2]})
    with pytest.raises(ConfigError, match=r"\[source\] filter: .* 8,388,\d\d\d bytes"):
        job.decide("backfill")

    job.set("source", filter='{"_id": {"$lt": "b"}}')
    assert job.decide("backfill").counts.unique == 1
