"""A sweep, and each way back, may be killed at any command while records change: nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pymongo import monitoring

from dedup_job.errors import LeaseHeld
from dedup_job.ledger import move_between_source_and_archive
from dedup_job.mongo.archive import Archive
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.kill_in_process import (
    Mortal,
    commands_of,
    killed,
    killed_after_setting,
    mortal,
)
from tests.support.made_up_records import made_up_records, number_records
from tests.support.snapshot import Snapshot
from tests.support.stopped_process import stopped
from tests.support.sweep_cases import ARCHIVE, archived, records, restore, sweep
from tests.support.undo_cases import undo

OTHER = "完全不同的另一段文字，谁也没有见过它。"


@pytest.fixture
def bare(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    # Several pieces, so that a sweep may be killed between two.
    monkeypatch.setattr("dedup_job.commands.sweep.DUE_AT_ONCE", 1)
    job.set("source", fields=["data"])
    job.set("limits", batch_records=30)
    job.source.insert_many(number_records(made_up_records()[:70]))
    bare = job.without_copies()
    bare.decide("backfill")
    return bare


def each_kill(job: Job, work: Callable[[], object]) -> Iterator[str]:
    """Kill a command at each of its MongoDB commands; let it finish when the caller has looked."""
    before = Snapshot(job)
    commands = commands_of(work)
    for number in range(1, commands + 1):
        before.restore()
        killed(work, number)
        let_removals_end(job)
        yield f"killed after command {number} of {commands}"


def text(job: Job, one: int) -> Any:
    return (job.source.find_one({"_id": one}) or {}).get("data")


def let_removals_end(job: Job) -> None:
    """Let the time pass in which a removal of a killed command may arrive."""
    past = datetime(2020, 1, 1, tzinfo=UTC)
    job.ledger("head").update_one({"sweep.until": {"$type": "date"}}, {"$set": {"sweep.until": past}})


@pytest.mark.long
def test_a_sweep_that_is_killed_anywhere_is_finished_by_the_next(bare: Job) -> None:
    before = records(bare)
    due = {row["_id"] for row in bare.ledger("dropped").find()}
    assert len(due) > 20

    for about in each_kill(bare, partial(sweep, bare)):
        assert records(bare) | archived(bare) == before, about
        sweep(bare)
        assert archived(bare) == {key: before[key] for key in due}, about
        assert records(bare) == {key: before[key] for key in before.keys() - due}, about


@pytest.mark.parametrize("collection", ["pages", ARCHIVE])
def test_a_command_that_wakes_before_a_removal_says_that_others_work(
    bare: Job, monkeypatch: pytest.MonkeyPatch, collection: str
) -> None:
    install(monkeypatch)
    for seconds in ("BEGIN_SECONDS", "REMOVAL_SECONDS"):
        monkeypatch.setattr(move_between_source_and_archive, seconds, 1.0)
    (run,) = bare.ledger("runs").distinct("_id")
    if collection == ARCHIVE:
        sweep(bare)
    after = list[Any]()

    def is_removal(_: int, event: monitoring.CommandStartedEvent) -> bool:
        return bool(event.command.get("delete") == collection)

    def others(_: object) -> None:
        time.sleep(1.1)
        undo(bare, run)
        if collection == ARCHIVE:
            bare.decide("backfill")
            sweep(bare)
        after.append((records(bare), archived(bare)))

    work = partial(undo, bare, run) if collection == ARCHIVE else partial(sweep, bare)
    with pytest.raises(LeaseHeld, match="another run took over"):
        stopped(work, is_removal, others)
    assert [(records(bare), archived(bare))] == after


@pytest.mark.long
def test_ways_back_that_are_killed_anywhere_are_finished_by_the_next(bare: Job) -> None:
    before = records(bare)
    one, *_ = [row["_id"] for row in bare.ledger("dropped").find()]
    run = bare.ledger("runs").find_one({"mode": "backfill"})
    assert run is not None
    sweep(bare)

    for about in each_kill(bare, partial(restore, bare, one)):
        assert records(bare) | archived(bare) == before, about
        restore(bare, one)
        assert (records(bare)[one], one in archived(bare)) == (before[one], False), about
    for about in each_kill(bare, partial(undo, bare, run["_id"])):
        assert records(bare) | archived(bare) == before, about
        undo(bare, run["_id"])
        assert (records(bare), archived(bare)) == (before, {}), about


@pytest.mark.long
def test_a_killed_sweep_is_undone_as_a_finished_one(bare: Job) -> None:
    before = records(bare)
    run = bare.ledger("runs").find_one({"mode": "backfill"})
    assert run is not None

    for about in each_kill(bare, partial(sweep, bare)):
        undo(bare, run["_id"])
        assert (records(bare), archived(bare)) == (before, {}), about


@pytest.mark.long
def test_edits_deletions_and_inserts_at_any_command_lose_nothing(bare: Job) -> None:
    first = records(bare)
    keepers = {row["_id"]: row["keeper"] for row in bare.ledger("dropped").find()}
    edited, deleted, replaced, *rest = keepers
    lost = next(keepers[one] for one in reversed(rest))
    before = Snapshot(bare)
    commands = commands_of(partial(sweep, bare))

    for number in range(1, commands + 1):
        before.restore()
        found: dict[str, int] = {}

        def change(sent: int, _: Any, number: int = number, found: dict[str, int] = found) -> bool:
            if sent == number:
                source = bare.source
                found["edited"] = source.update_one({"_id": edited}, {"$set": {"data": OTHER}}).matched_count
                found["deleted"] = source.delete_one({"_id": deleted}).deleted_count
                source.delete_one({"_id": lost})
                source.delete_one({"_id": replaced})
                source.insert_one({"_id": replaced, "data": OTHER})
                source.insert_one({"_id": 5000, "data": OTHER})
            return False

        with mortal(Mortal(change)):
            sweep(bare)
        sweep(bare)

        there, moved = records(bare), archived(bare)
        about = f"at command {number} of {commands}: {found}"
        assert found, about
        # An edit and a deletion that found the record are the last word on it.
        if found["edited"]:
            assert text(bare, edited) == OTHER, about
        else:
            assert moved[edited] == first[edited], about
        assert found["deleted"] or moved[deleted] == first[deleted], about
        for new in (replaced, 5000):
            assert text(bare, new) == OTHER, about
        others = first.keys() - {edited, deleted, replaced, lost}
        assert {key: (moved | there)[key] for key in others} == {key: first[key] for key in others}, about
        # A copy in the archive may be left of a record whose keeper was deleted while it was moved.
        orphans = {key for key, keeper in keepers.items() if keeper == lost}
        assert not moved.keys() & there.keys() - orphans - {edited, replaced}, about


def test_a_way_back_waits_until_a_removal_of_a_killed_sweep_has_ended(
    bare: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, *_ = [row["_id"] for row in bare.ledger("dropped").find()]
    killed_after_setting("sweep", partial(sweep, bare), times=2)
    head = bare.ledger("head").find_one() or {}
    until = head["sweep"]["until"]
    assert until is not None
    slept = list[float]()
    sleep = time.sleep

    def pass_time(seconds: float) -> None:
        # Threads of the driver sleep, too.
        if seconds != move_between_source_and_archive.POLL_SECONDS:
            sleep(seconds)
            return
        assert one in archived(bare)
        slept.append(seconds)
        monkeypatch.setattr(Archive, "now", lambda archive: until + timedelta(seconds=1))

    monkeypatch.setattr(move_between_source_and_archive, "POLL_SECONDS", 0.123)
    monkeypatch.setattr("dedup_job.ledger.move_between_source_and_archive.time.sleep", pass_time)

    restore(bare, one)

    assert slept == [move_between_source_and_archive.POLL_SECONDS]
