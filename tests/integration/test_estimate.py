from __future__ import annotations

import json
from typing import Any

import pytest
from bson import MaxKey, MinKey, encode
from bson.objectid import ObjectId
from pymongo.database import Database

from dedup_job import config
from dedup_job.commands.estimate import estimate
from dedup_job.errors import ConfigError
from dedup_job.mongo.pages import Window
from dedup_job.mongo.source import Source
from dedup_job.pipeline.command_context import Context
from scripts.bench.corpus import generate
from tests.support.job import PROGRAM, Job, retrying

RECORDS = 800


@pytest.fixture
def filled(job: Job) -> Job:
    job.set("source", fields=["data"])
    job.source.insert_many(generate(RECORDS, seed=3))
    return job


def estimated(job: Job, records: int, docs_per_second: float | None = None) -> dict[str, Any]:
    settings = config.with_values(
        config.check_settings(job.tables, "test"), "limits", max_docs_per_second=docs_per_second
    )
    with Context(settings) as context:
        return estimate(context, records, lambda _: None).as_json()


@pytest.mark.long
def test_an_estimate_writes_nothing(filled: Job) -> None:
    before = filled.database.command("dbHash")["collections"]
    done = filled.command("estimate", "--json", "--sample", "200", "--workers", "1", program=PROGRAM)
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert filled.database.command("dbHash")["collections"] == before
    assert values["records"] == RECORDS
    assert 150 <= values["sampled"] <= 200
    assert 50 <= values["stretches"] <= 53
    assert values["workers"] == 1
    assert values["seconds"] > 0
    assert min(values["memory"].values()) > 0
    assert min(values["disk"].values()) > 0


def test_where_all_records_are_looked_at_the_share_is_that_of_a_run(filled: Job) -> None:
    values = estimated(filled, RECORDS // 2)
    counts = filled.decide("backfill").counts
    assert values["sampled"] == RECORDS
    assert values["dropped"]["low"] == pytest.approx(counts.duplicate / RECORDS, abs=1e-4)
    assert values["dropped"]["low"] == values["dropped"]["high"]


def test_a_filter_and_the_pace_are_counted_in(filled: Job) -> None:
    filled.set("source", filter='{"views": {"$lt": 30000}}')
    filled.set("limits", max_mb_per_second=0.5)
    there = filled.source.count_documents({"views": {"$lt": 30_000}})
    values = estimated(filled, 60, docs_per_second=200)
    assert values["records"] == pytest.approx(there, rel=0.1)
    assert values["bounds"]["max_docs_per_second"] == 200
    assert values["bounds"]["max_mb_per_second"] == pytest.approx(
        (1 << 19) / values["sizes"]["record"], rel=0.01
    )
    assert values["docs_per_second"] <= 200


@pytest.mark.parametrize(
    ("condition", "told"), [("{}", "to sample"), ('{"views": -1}', r"that match \[source\] filter")]
)
def test_an_estimate_of_nothing_says_so(job: Job, condition: str, told: str) -> None:
    job.database.create_collection("pages")
    if condition != "{}":
        job.source.insert_many(generate(100))
    job.set("source", fields=["data"], filter=condition)
    with pytest.raises(ConfigError, match=f"has no records {told}"):
        estimated(job, 60)


def test_stretches_begin_at_ids_of_every_type_in_the_servers_order(database: Database[Any]) -> None:
    ids = [None, 1, 2.5, "a", {"a": 1}, b"\0", ObjectId(), True, MinKey(), MaxKey()]
    database.pages.insert_many({"_id": one, "text": "x"} for one in ids)
    source = Source(retrying(database.pages), {})
    in_order = [encode({"_id": row["_id"]}) for row in database.pages.find().sort("_id", 1)]
    assert source.draw_ids(len(ids)) == in_order
    for place, raw_id in enumerate(in_order[:-1]):
        # A range ends before MaxKey.
        assert source.stretch(raw_id, 3).ids == in_order[place:-1][:3]
    assert source.stretch(in_order[-1], 3).ids == in_order[-1:]


def test_an_empty_range_of_ids_has_no_records(database: Database[Any]) -> None:
    database.pages.insert_many({"_id": number, "text": "x"} for number in range(3))
    one = encode({"_id": 1})
    assert list(Source(retrying(database.pages), {}).batches(Window(start=one, before=one))) == []


def test_the_storage_is_what_the_server_says(database: Database[Any]) -> None:
    database.pages.insert_many({"_id": number, "text": "x" * 100} for number in range(50))
    storage = Source(retrying(database.pages), {}).storage()
    assert storage.records == 50
    assert storage.nbytes == sum(len(encode({"_id": n, "text": "x" * 100})) for n in range(50))
    assert storage.stored > 0
    assert storage.ids > 0
