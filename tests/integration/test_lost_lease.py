"""Runs that lost their lease without knowing it, or were killed while the source changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from dedup_job.commands.backfill_and_run import decide as decide_command
from dedup_job.errors import LeaseHeld, Unreachable
from dedup_job.ledger.apply_plan import EarlierPlans
from dedup_job.ledger.head import HeadDocument
from dedup_job.ledger.plan_format import PlanId, pack, unpack
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows_on_records import RowWriter
from dedup_job.ledger.run_row import RunId
from dedup_job.mongo import connect_and_retry
from dedup_job.mongo.connect_and_retry import RetryPolicy
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.target import Target
from dedup_job.pipeline.command_context import Context
from tests.support.job import RAW, Job, retrying

TEXTS = (
    "雨后的竹林里升起一层薄雾，采笋的人早早出了门。",
    "The old ferry crossed the river twice a day, even in winter.",
)


class Crash(Exception):
    """The process ends here."""


@pytest.fixture
def context(job: Job) -> Iterator[Context]:
    """A job with a refused keeper; a second run in this process takes the lease of the first at once."""
    job.database.create_collection("unique", validator={"bad": {"$exists": False}})
    records: list[dict[str, Any]] = [{"_id": 2 + n, "text": TEXTS[n % 2]} for n in range(6)]
    job.source.insert_many([{"_id": 1, "text": TEXTS[0], "bad": 1}, *records])
    with job.context() as opened:
        yield opened


def decide(context: Context) -> None:
    decide_command(context, "backfill", lambda plan: None)


def crash(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a plan that is accepted and not carried out."""

    def crashed(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(Target, "insert", crashed)
        with pytest.raises(Crash):
            decide(context)


def test_a_write_that_always_comes_too_late_ends_the_run_and_says_why(job: Job) -> None:
    rows = RetryingCollection(job.ledger("dropped"), "the target", RetryPolicy(0.5))
    now = datetime.now(UTC)

    with pytest.raises(Unreachable, match="the target: it answers too slowly, or was paused"):
        rows.write_in_time(lambda: now, lambda rows, is_in_time: rows.delete_many(is_in_time))


def is_whole(job: Job) -> bool:
    reader = LedgerReader(job.database, "unique")
    head = reader.head()
    assert head is not None
    decided = [raw_id for stored in reader.plans(head) for raw_id in stored.plan.ids]
    return len(decided) == len(set(decided)) == job.source.count_documents({})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_plans_that_it_stored_after_its_own_were_undone_are_in_nobodys_way(job: Job, number: int) -> None:
    """It may have decided several, of which each follows the one before; the right ones follow others."""
    job.set("limits", batch_records=1)
    job.source.insert_many([{"_id": n, "text": TEXTS[n % 2]} for n in range(4)])
    job.decide("backfill")
    for late in range(1, number + 1):
        (stored,) = map(unpack, job.ledger("plans").find({"_id.number": late, "_id.fence": {"$gt": 0}}))
        wrong = replace(stored, id=PlanId(late, 0), previous=PlanId(late - 1, 0))
        job.ledger("plans").insert_one(pack(wrong))

    assert is_whole(job)
    assert job.differences() == {}
    assert job.decide("run").counts.read == 0


def test_it_deletes_no_plan_of_its_successor(job: Job, context: Context) -> None:
    with context.ledger(RunId.new("backfill")) as overtaken:
        decide(context)
        overtaken.recover(context.source, context.target)
        assert is_whole(job)
        with pytest.raises(LeaseHeld):
            overtaken.store_scan(datetime.now(UTC))


def test_it_finds_the_pending_plan_amended_and_says_who_works(
    job: Job, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(context, monkeypatch)
    with context.ledger(RunId.new("backfill")) as overtaken:
        decide(context)
        with pytest.raises(LeaseHeld, match="another run took over"):
            overtaken.recover(context.source, context.target)
    assert is_whole(job)


def test_it_overwrites_no_plan_that_its_successor_amended(
    job: Job, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(context, monkeypatch)
    inserted = Target.insert

    def overtaken(target: Target, *arguments: Any) -> dict[int, str]:
        """See the refusal, and be overtaken before anything comes of it."""
        refused = inserted(target, *arguments)
        monkeypatch.setattr(Target, "insert", inserted)
        job.source.delete_one({"_id": 1})  # the successor finds another reason to refuse it
        decide(context)
        return refused

    monkeypatch.setattr(Target, "insert", overtaken)
    with pytest.raises(LeaseHeld):
        decide(context)

    reader = LedgerReader(job.database, "unique")
    head = reader.head()
    assert head is not None
    (stored,) = reader.plans(head)
    assert stored.plan.counts.refused == head.counts.refused == {"vanished": 1}


def test_it_takes_no_row_back_that_its_successor_wrote(
    job: Job, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = RowWriter.write_plan

    def overtaken(writer: RowWriter, stored: Any, left: IdSet) -> None:
        """Be overtaken just before the rows are written, and killed at the first that is written."""
        monkeypatch.setattr(RowWriter, "write_plan", write)
        decide(context)
        monkeypatch.setattr(RowWriter, "put", killed)
        write(writer, stored, left)

    def killed(*_: object) -> None:
        raise Crash

    monkeypatch.setattr(RowWriter, "write_plan", overtaken)
    with pytest.raises(Crash):
        decide(context)

    assert job.ledger("dropped").count_documents({}) == 4
    assert job.ledger("exceptions").count_documents({}) == 1


def test_a_late_renewal_does_not_bring_back_a_lease_that_was_given_back(job: Job, context: Context) -> None:
    decide(context)
    document = HeadDocument(retrying(job.ledger("head")))
    head = document.read()
    assert head is not None

    assert not document.renew_lease(head)

    assert job.ledger("head").find_one({"lease": None})


def test_what_has_landed_is_not_refused_when_the_target_grows_stricter(database: Database[Any]) -> None:
    database["pages"].insert_many([{"_id": 1, "text": "x"}, {"_id": 2, "text": "y", "bad": 1}])
    raws = [bytes(document.raw) for document in database["pages"].with_options(RAW).find().sort("_id", 1)]
    target = Target(retrying(database["unique"]))
    assert target.insert(raws[1:]) == {}
    database.command("collMod", "unique", validator={"bad": {"$exists": False}, "text": "y"})

    assert target.insert(raws) == {0: "validator"}


def test_a_keeper_that_vanished_before_it_landed_is_refused_and_a_duplicate_takes_its_place(
    job: Job, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(context, monkeypatch)
    job.source.delete_one({"_id": 3})
    decide(context)

    reasons = {row["_id"]: row["reason"] for row in job.ledger("exceptions").find()}
    assert reasons == {1: "validator", 3: "vanished"}
    assert {row["_id"] for row in job.target.find()} == {2, 5}


def test_a_keeper_that_changed_before_it_landed_is_copied_and_stands_for_nothing(
    job: Job, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(context, monkeypatch)
    job.source.update_one({"_id": 3}, {"$set": {"text": "another text"}})
    decide(context)

    rows = {row["_id"]: (row["action"], row["reason"]) for row in job.ledger("exceptions").find()}
    assert rows == {1: ("refused", "validator"), 3: ("unchecked", "changed")}
    assert {row["_id"]: row["text"] for row in job.target.find()} == {
        2: TEXTS[0], 3: "another text", 5: TEXTS[1],
    }  # fmt: skip


def test_a_plan_that_another_process_keeps_changing_is_written_again_after_pauses_and_then_given_up(
    job: Job, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(context)
    tries, pauses = list[int](), list[str]()
    monkeypatch.setattr(EarlierPlans, "_swap_plan", lambda *_: bool(tries.append(1)))
    monkeypatch.setattr(
        connect_and_retry.log, "warning", lambda *_, extra: pauses.append(extra["fields"]["fault"])
    )
    retry = RetryPolicy(1.0)
    earlier = EarlierPlans(
        lambda name: RetryingCollection(job.ledger(name), "the ledger", retry), lambda: None
    )

    with pytest.raises(Unreachable, match="another process kept changing it"):
        earlier._rewrite(0, lambda stored: stored)

    assert set(pauses) == {"Disturbed"}
    assert len(tries) == len(pauses) + 1
    assert len(tries) < 20  # without a pause there would be thousands
