"""Reasons for which the target refuses records."""

from __future__ import annotations

from typing import Any

from bson import encode
from pymongo.database import Database

from dedup_job.mongo.target import Target
from tests.support.job import RAW, Job, retrying

TEXT = "这一段文字在两条记录里完全相同，后一条是前一条的重复。"


def test_a_record_that_is_there_already_is_no_refusal(database: Database[Any]) -> None:
    target = Target(retrying(database["unique"]))
    database["pages"].insert_many([{"_id": n, "text": "x"} for n in range(5)])
    raws = [bytes(document.raw) for document in database["pages"].with_options(RAW).find()]

    assert target.insert(raws[:3]) == {}
    assert target.insert(raws) == {}
    assert database["unique"].count_documents({}) == 5


def test_each_refusal_has_its_own_reason_and_its_neighbours_land(database: Database[Any]) -> None:
    unique = database.create_collection("unique", validator={"bad": {"$exists": False}})
    unique.create_index("slug", unique=True, sparse=True)
    unique.insert_many([{"_id": 1, "text": "other"}, {"_id": 100, "slug": "taken"}])
    records = [
        {"_id": 1, "text": "mine"},
        {"_id": 2},
        {"_id": 3, "slug": "taken"},
        {"_id": 4, "bad": 1},
        {"_id": 5},
    ]
    database["pages"].insert_many(records)
    raws = [bytes(document.raw) for document in database["pages"].with_options(RAW).find().sort("_id", 1)]

    refused = Target(retrying(unique)).insert(raws)

    assert refused == {0: "conflict", 2: "unique_index", 3: "validator"}
    assert {document["_id"] for document in unique.find()} == {1, 2, 5, 100}


def test_an_id_that_only_an_equal_one_of_another_type_has_is_absent(database: Database[Any]) -> None:
    database["unique"].insert_many([{"_id": 7}, {"_id": 8}])
    asked = [encode({"_id": value}) for value in (7, 8.0, 9)]
    assert Target(retrying(database["unique"])).absent(asked) == {asked[1], asked[2]}


def test_the_first_duplicate_of_a_refused_keeper_is_promoted(job: Job) -> None:
    job.database.create_collection("unique", validator={"bad": {"$exists": False}})
    job.source.insert_many(
        [{"_id": 1, "text": TEXT, "bad": 1}, {"_id": 2, "text": TEXT}, {"_id": 3, "text": TEXT}]
    )

    counts = job.decide("backfill").counts

    assert (counts.unique, counts.exact, counts.refused) == (1, 1, {"validator": 1})
    assert [document["_id"] for document in job.target.find()] == [2]
    assert [(row["_id"], row["keeper"]) for row in job.ledger("dropped").find()] == [(3, 2)]
    exception = job.ledger("exceptions").find_one()
    assert exception is not None
    assert (exception["_id"], exception["action"], exception["reason"]) == (1, "refused", "validator")


def test_a_run_with_refusals_exits_with_3_and_later_records_do_not_point_to_them(job: Job) -> None:
    job.database.create_collection("unique", validator={"bad": {"$exists": False}})
    job.source.insert_many([{"_id": 1, "text": TEXT, "bad": 1}])
    assert job.command("backfill").returncode == 3
    job.source.insert_one({"_id": 2, "text": TEXT})

    assert job.decide("run").counts.unique == 1
    assert job.command("run").returncode == 0


def test_a_keeper_that_was_deleted_from_the_target_stands_for_nothing(job: Job) -> None:
    near = TEXT + "末尾略有不同。"
    job.source.insert_many(
        [{"_id": 1, "text": TEXT * 3}, {"_id": 2, "text": "另一段完全不同的文字，与前面的无关。"}]
    )
    job.decide("backfill")
    job.target.delete_one({"_id": 1})
    job.source.insert_many(
        [{"_id": n, "text": text} for n, text in enumerate((TEXT * 3, TEXT * 3, TEXT * 3 + near), 3)]
    )

    counts = job.decide("run").counts

    assert (counts.unique, counts.exact, counts.near) == (1, 1, 1)
    assert {row["keeper"] for row in job.ledger("dropped").find()} == {3}
    assert job.target.find_one({"_id": 3})
