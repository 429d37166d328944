"""Rows and head of a plan are written while the next plan is decided, and before it is stored."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dedup_job.commands.backfill_and_run import decide as decide_command
from dedup_job.errors import StateError, Unreachable
from dedup_job.ledger import leased_ledger
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows_on_records import RowWriter
from dedup_job.ledger.run_row import RunId
from dedup_job.mongo.ids import IdSet
from dedup_job.pipeline.job import Observe
from dedup_job.records import Plan
from tests.support.command_recorder import Recorder
from tests.support.job import Job
from tests.support.kill_in_process import mortal
from tests.support.waiting import HANG_SECONDS

TEXT = "雨后的竹林里升起一层薄雾，采笋的人早早出了门。"


@pytest.fixture(autouse=True)
def two_plans(job: Job) -> None:
    job.set("limits", batch_records=2)
    job.source.insert_many([{"_id": n, "text": TEXT} for n in range(4)])


def decide(job: Job, observe: Observe = lambda plan: None) -> None:
    with job.context() as context:
        decide_command(context, "backfill", observe)


def test_it_is_done_while_the_next_plan_is_decided(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    write, is_next = RowWriter.write_plan, threading.Event()

    def waiting(writer: RowWriter, stored: Any, left: IdSet) -> None:
        assert is_next.wait(HANG_SECONDS) or stored.id.number
        write(writer, stored, left)

    def observe(plan: Plan) -> None:
        is_next.set()  # told once a plan is in the index, before the next one is decided

    monkeypatch.setattr(RowWriter, "write_plan", waiting)
    decide(job, observe)
    assert job.ledger("dropped").count_documents({}) == 3


def test_it_is_done_before_the_next_plan_is_stored(job: Job) -> None:
    recorder = Recorder()
    with mortal(recorder):
        decide(job)
    steps = {
        ("update", "unique.dedup.plans"): "plan stored",
        ("insert", "unique.dedup.dropped"): "rows written",
        ("update", "unique.dedup.dropped"): "rows written",
    }
    did = []
    for name, command in recorder.commands:
        if name == "findAndModify" and command["update"][0]["$set"].get("last", {}).get("$literal"):
            did.append("head advanced")
        elif step := steps.get((name, str(command.get(name)))):
            did.append(step)
    assert did == ["plan stored", "rows written", "head advanced"] * 2


@pytest.mark.parametrize("number", [0, 1])
def test_its_error_ends_the_run_and_the_next_one_finishes_it(
    job: Job, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write = RowWriter.write_plan

    def failing(writer: RowWriter, stored: Any, left: IdSet) -> None:
        if stored.id.number == number:
            raise Unreachable("the ledger does not answer")
        write(writer, stored, left)

    with monkeypatch.context() as patched:
        patched.setattr(RowWriter, "write_plan", failing)
        with pytest.raises(Unreachable, match="the ledger does not answer"):
            decide(job)
    head = LedgerReader(job.database, "unique").head()
    assert head is not None
    assert head.pending is not None
    assert head.lease is None
    decide(job)
    assert job.target.count_documents({}) == 1
    assert job.ledger("dropped").count_documents({}) == 3


def test_a_run_that_breaks_off_while_it_is_done_keeps_the_lease(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    def observe(plan: Plan) -> None:
        raise Unreachable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(leased_ledger, "LEAVING_SECONDS", 0.2)
        patched.setattr(RowWriter, "write_plan", lambda *_: may_end.wait(HANG_SECONDS))
        with pytest.raises(Unreachable):
            decide(job, observe)
        head = LedgerReader(job.database, "unique").head()
        may_end.set()
    assert head is not None
    assert head.lease is not None


def test_a_lease_that_was_given_back_does_not_come_back(job: Job) -> None:
    with (
        job.context() as context,
        context.ledger(RunId.new("backfill")) as ledger,
    ):
        ledger.close({})
        with pytest.raises(StateError):
            ledger.store_adoption(True)
        head = context.ledger_reader().head()
    assert head is not None
    assert (head.lease, head.adopting) == (None, False)
