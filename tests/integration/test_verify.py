"""`verify` finds nothing in an undisturbed ledger, and names each kind of difference that is planted."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId, encode
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from dedup_job import config, wiring
from dedup_job.audit import verification
from dedup_job.audit.book import Book
from dedup_job.audit.questions import HEAD, LEDGER, NUMBERS, RECORDS
from dedup_job.document import UNIQUE, Action, Match, Verdict
from dedup_job.errors import LeaseHeld, UsageError
from dedup_job.mongo.plans import pack, unpack
from dedup_job.plan import Plan
from dedup_job.report.verified import Verification
from scripts.corpus import generate
from tests.integration.conftest import RAW, Job

KILLED = ("-m", "tests.integration.killed")
DECODED: CodecOptions[Any] = CodecOptions(tz_aware=True)
EVERYTHING = 1_000_000


Copies = dict[str, list[RawBSONDocument]]


@pytest.fixture(scope="module")
def prepared(mongo_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """What a backfill of four plans and a nightly run behind it leave: the records of each collection."""
    with MongoClient[dict[str, Any]](mongo_uri, tz_aware=True) as client:
        job = Job(client[f"test_{uuid.uuid4().hex}"], mongo_uri, tmp_path_factory.mktemp("prepared"))
        job.set("source", fields=["data"])
        records = list(generate(230, seed=8))
        records[17]["data"] = records[150]["data"] = None
        job.source.insert_many(records[:200])
        assert job.command("backfill").returncode == 0
        job.source.insert_many(records[200:])
        assert job.command("run").returncode == 0
        copies = {
            name: list(job.database[name].with_options(RAW).find())
            for name in job.database.list_collection_names()
        }
        client.drop_database(job.database)
    return copies


@pytest.fixture
def decided(job: Job, prepared: Copies) -> Job:
    """A job whose ledger and target are those of the prepared one."""
    job.set("source", fields=["data"])
    for name, records in prepared.items():
        job.database[name].with_options(RAW).insert_many(records)
    job.ledger("head").update_one({}, {"$set": {"source": job.source.full_name}})
    return job


def verified(job: Job, state: Path | None = None) -> Verification:
    with wiring.Parts(config.check(job.tables, "test")) as parts:
        return verification.verify(parts, state, lambda number: None)


def sampled(job: Job, records: int) -> Verification:
    with wiring.Parts(config.check(job.tables, "test")) as parts:
        return verification.verify_sample(parts, records, lambda number: None)


def kinds(found: Verification) -> dict[str, int]:
    return {one.kind: one.count for one in found.differences}


def head(job: Job) -> dict[str, Any]:
    found = job.ledger("head").find_one()
    assert found is not None
    return found


def forged(job: Job, number: int, change: Callable[[Plan], Plan]) -> None:
    """Put a plan with other content in the place of one, with a right checksum."""
    plans = job.ledger("plans").with_options(DECODED)
    stored = plans.find_one({"_id.number": number})
    assert stored is not None
    before = unpack(stored)
    plans.replace_one({"_id": stored["_id"]}, pack(replace(before, plan=change(before.plan))))


def with_verdict(plan: Plan, row: int, verdict: Verdict) -> Plan:
    return replace(plan, verdicts=[*plan.verdicts[:row], verdict, *plan.verdicts[row + 1 :]])


def row_of(plan: Plan, action: Action, reason: str = "", *, last: bool = False) -> int:
    found = [
        row for row, one in enumerate(plan.verdicts) if one.action == action and reason in ("", one.reason)
    ]
    return found[-1 if last else 0]


def plan_of(job: Job, number: int) -> Plan:
    stored = job.ledger("plans").with_options(DECODED).find_one({"_id.number": number})
    assert stored is not None
    return unpack(stored).plan


def unused(job: Job) -> Any:
    """A kept record that stands for nothing."""
    keepers = job.ledger("dropped").distinct("keeper")
    found = job.target.find_one({"_id": {"$nin": keepers}, "data": {"$type": "string"}})
    assert found is not None
    return found["_id"]


# Each of these plants one difference.


def a_kept_record_leaves_the_target(job: Job) -> None:
    job.target.delete_one({"_id": unused(job)})


def a_keeper_leaves_the_target(job: Job) -> None:
    keeper = job.ledger("dropped").find_one()
    assert keeper is not None
    job.target.delete_one({"_id": keeper["keeper"]})


def a_record_of_the_target_is_changed(job: Job) -> None:
    job.target.update_one({"_id": unused(job)}, {"$inc": {"views": 1}})


def a_stranger_is_put_into_the_target(job: Job) -> None:
    job.target.insert_one({"_id": "stranger"})


def a_refused_record_is_put_into_the_target(job: Job) -> None:
    raw_id = unused(job)

    def refuse(plan: Plan) -> Plan:
        row = list(plan.ids).index(encode({"_id": raw_id}))
        return with_verdict(plan, row, Verdict(Action.REFUSED, "validator"))

    number = next(n for n in range(5) if encode({"_id": raw_id}) in plan_of(job, n).ids)
    forged(job, number, refuse)
    stored = job.ledger("plans").with_options(DECODED).find_one({"_id.number": number})
    assert stored is not None
    row = {"_id": raw_id, "action": "refused", "reason": "validator", "stage": "target"}
    job.ledger("exceptions").insert_one({**row, "run": stored["run"], "at": stored["at"]})
    job.ledger("head").update_one({}, {"$inc": {"counts.unique": -1, "counts.refused.validator": 1}})


def a_dropped_record_is_put_into_the_target(job: Job) -> None:
    row = job.ledger("dropped").find_one()
    assert row is not None
    record = job.source.find_one({"_id": row["_id"]})
    assert record is not None
    job.target.insert_one(record)


def renamed_keeper(job: Job, keeper: Callable[[Plan], bytes]) -> None:
    """Let the first near duplicate of the second plan, and its row, name another keeper."""
    plan = plan_of(job, 1)
    row = row_of(plan, Action.DUPLICATE, "near")
    other, verdict = keeper(plan), plan.verdicts[row]
    assert verdict.match is not None
    match = replace(verdict.match, keeper=other)
    forged(job, 1, lambda plan: with_verdict(plan, row, replace(verdict, match=match)))
    shown = wiring_value(other)
    job.ledger("dropped").update_one({"_id": wiring_value(plan.ids[row])}, {"$set": {"keeper": shown}})


def wiring_value(raw_id: bytes) -> Any:
    from dedup_job.mongo.ids import value

    return value(raw_id)


def a_keeper_was_never_decided(job: Job) -> None:
    job.source.insert_one({"_id": ObjectId("f" * 24)})
    renamed_keeper(job, lambda plan: encode({"_id": ObjectId("f" * 24)}))


def a_keeper_is_a_duplicate_itself(job: Job) -> None:
    before = plan_of(job, 0)
    renamed_keeper(job, lambda _: before.ids[row_of(before, Action.DUPLICATE)])


def a_keeper_is_decided_later(job: Job) -> None:
    later = plan_of(job, 3)
    renamed_keeper(job, lambda _: later.ids[row_of(later, Action.UNIQUE)])


def an_exact_duplicate_has_another_text(job: Job) -> None:
    def change(plan: Plan) -> Plan:
        digests = plan.digests.copy()
        digests[row_of(plan, Action.DUPLICATE, "exact")] ^= 1
        return replace(plan, digests=digests)

    forged(job, 1, change)


def a_row_of_dropped_is_lost(job: Job) -> None:
    job.ledger("dropped").delete_one({})


def a_row_of_exceptions_is_lost(job: Job) -> None:
    job.ledger("exceptions").delete_one({})


def a_row_of_dropped_is_added(job: Job) -> None:
    job.ledger("dropped").insert_one({"_id": "nobody"})


def a_row_of_exceptions_is_on_a_kept_record(job: Job) -> None:
    job.ledger("exceptions").insert_one({"_id": unused(job)})


def a_row_of_dropped_says_another_distance(job: Job) -> None:
    job.ledger("dropped").update_one({"reason": "exact"}, {"$set": {"distance": 63}})


def a_row_of_exceptions_says_another_reason(job: Job) -> None:
    job.ledger("exceptions").update_one({}, {"$set": {"reason": "another"}})


def a_record_is_decided_twice(job: Job) -> None:
    """The last plan decides the first record of the first plan once more, as before."""
    first = plan_of(job, 0)
    row = row_of(first, Action.UNIQUE)
    last = head(job)["last"]["number"]

    def change(plan: Plan) -> Plan:
        ids, verdicts = list(plan.ids), list(plan.verdicts)
        place = row_of(plan, Action.UNIQUE)
        ids[place], verdicts[place] = first.ids[row], UNIQUE
        return replace(plan, ids=ids, verdicts=verdicts)

    gone = plan_of(job, last)
    # The record whose place it takes was never there.
    job.target.delete_one({"_id": wiring_value(gone.ids[row_of(gone, Action.UNIQUE)])})
    forged(job, last, change)


def a_record_is_inserted_behind_the_watermark(job: Job) -> None:
    job.source.insert_one({"_id": ObjectId("0" * 24), "data": "来得太早的标识，由一台停在过去的时钟写下。"})


def the_counters_are_wrong(job: Job) -> None:
    job.ledger("head").update_one({}, {"$inc": {"counts.near": 1}})


def the_watermark_is_wrong(job: Job) -> None:
    ids = plan_of(job, 0).ids
    job.ledger("head").update_one({}, {"$set": {"watermark": ids[-1]}})


def a_plan_is_lost(job: Job) -> None:
    job.ledger("plans").delete_one({"_id.number": 1})


def the_last_plan_is_lost(job: Job) -> None:
    job.ledger("plans").delete_one({"_id.number": head(job)["last"]["number"]})


def a_plan_is_damaged(job: Job) -> None:
    stored = job.ledger("plans").find_one({"_id.number": 1})
    assert stored is not None
    job.ledger("plans").update_one(
        {"_id": stored["_id"]}, {"$set": {"hashes": bytes(len(stored["hashes"]))}}
    )


def a_plan_is_shorter_than_it_says(job: Job) -> None:
    job.ledger("plans").update_one({"_id.number": 1}, {"$inc": {"count": 1}})


def a_plan_follows_another_one(job: Job) -> None:
    job.ledger("plans").update_one({"_id.number": 2}, {"$set": {"previous.fence": 99}})


def the_head_names_another_plan(job: Job) -> None:
    job.ledger("head").update_one({}, {"$set": {"last.fence": 99}})


def a_plan_is_pending(job: Job) -> None:
    job.ledger("head").update_one({}, {"$set": {"pending": {"number": 5, "fence": 2, "version": 0}}})


DIFFERENCES = [
    (a_kept_record_leaves_the_target, {"missing"}),
    (a_keeper_leaves_the_target, {"missing", "keeper_missing"}),
    (a_record_of_the_target_is_changed, {"altered"}),
    (a_stranger_is_put_into_the_target, {"foreign"}),
    (a_refused_record_is_put_into_the_target, {"foreign"}),
    (a_dropped_record_is_put_into_the_target, {"duplicate_in_target"}),
    (a_keeper_was_never_decided, {"keeper_unknown", "keeper_missing"}),
    (a_keeper_is_a_duplicate_itself, {"keeper_not_kept", "keeper_missing"}),
    (a_keeper_is_decided_later, {"keeper_later"}),
    (an_exact_duplicate_has_another_text, {"text_differs"}),
    (a_row_of_dropped_is_lost, {"row_missing"}),
    (a_row_of_exceptions_is_lost, {"row_missing"}),
    (a_row_of_dropped_is_added, {"row_superfluous"}),
    (a_row_of_exceptions_is_on_a_kept_record, {"row_superfluous"}),
    (a_row_of_dropped_says_another_distance, {"row_differs"}),
    (a_row_of_exceptions_says_another_reason, {"row_differs"}),
    (a_record_is_decided_twice, {"decided_twice"}),
    (a_record_is_inserted_behind_the_watermark, {"undecided"}),
    (the_counters_are_wrong, {"counters"}),
    (the_watermark_is_wrong, {"watermark"}),
    (a_plan_is_lost, {"plan_missing"}),
    (the_last_plan_is_lost, {"plan_missing"}),
    (a_plan_is_damaged, {"plan_damaged"}),
    (a_plan_is_shorter_than_it_says, {"plan_damaged"}),
    (a_plan_follows_another_one, {"chain_broken"}),
    (the_head_names_another_plan, {"chain_broken"}),
    (a_plan_is_pending, {"pending"}),
]


@pytest.mark.parametrize(
    ("plant", "expected"), DIFFERENCES, ids=[plant.__name__ for plant, _ in DIFFERENCES]
)
def test_a_planted_difference_is_named_and_nothing_else_is(
    decided: Job, plant: Callable[[Job], None], expected: set[str]
) -> None:
    assert kinds(verified(decided)) == {}

    plant(decided)

    found = verified(decided)
    assert kinds(found).keys() == expected
    for difference in found.differences:
        assert 0 < len(difference.samples) <= difference.count
    # A sample of everything sees the same, except what only the whole can tell.
    whole_alone = {kind.name for kind in (*HEAD, *RECORDS) if not kind.of_sample}
    sample = sampled(decided, EVERYTHING)
    assert kinds(sample).keys() - {NUMBERS.name} == expected - whole_alone
    assert set(sample.left_out) == whole_alone


def test_every_kind_of_difference_is_planted_by_a_test() -> None:
    planted = set().union(*(expected for _, expected in DIFFERENCES))
    assert planted == {kind.name for kind in (*LEDGER, *HEAD, *RECORDS)}
