"""`backfill --copy-indexes`: the source's indexes, built on the target when everything is decided."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bson import SON
from pymongo import IndexModel

from dedup_job.mongo.copy_indexes import Copied
from dedup_job.report.run_summary import index_lines
from tests.support import kill_in_process
from tests.support.job import Job
from tests.support.kill_in_process import commands_of, killed

TEXTS = [
    f"第{number}号灯塔的看守人在日记里写下{number * 7919}艘船的名字，其中有渔船、货轮和邮船。"
    for number in range(9)
]
EVERY_KIND = [
    IndexModel([("url", 1)], unique=True, name="by url"),
    IndexModel([("site", 1), ("at", -1)]),
    IndexModel([("at", -1), ("site", 1)]),
    IndexModel([("text", "text"), ("title", "text")], weights={"title": 5}, default_language="none"),
    IndexModel([("place", "2dsphere")]),
    IndexModel([("site", "hashed")]),
    IndexModel([("$**", 1)], name="anything", wildcardProjection={"meta": 1}),
    IndexModel([("meta.$**", 1)]),
    IndexModel([("views", 1)], partialFilterExpression={"views": {"$gt": 5}, "lang": "zh"}),
    IndexModel([("title", 1)], collation={"locale": "zh", "strength": 1}, hidden=True),
    IndexModel([("views", -1)], sparse=True),
]


def copied(job: Job) -> Copied:
    with job.context() as context:
        return context.indexes.copy()


def indexes(collection: Any) -> dict[str, Any]:
    """What the server says of the indexes, by name, their fields in order."""
    return {one["name"]: (list(one["key"].items()), dict(one)) for one in collection.list_indexes()}


@pytest.fixture
def filled(job: Job) -> Job:
    job.source.insert_many(
        {"_id": number, "text": text, "url": f"u{number}", "site": "a", "views": number}
        for number, text in enumerate(TEXTS)
    )
    return job


def test_an_index_of_every_kind_arrives_with_all_its_options(filled: Job) -> None:
    filled.source.create_indexes(EVERY_KIND)

    done = filled.command("backfill", "--copy-indexes", "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["indexes"]
    assert told["built"] == list(indexes(filled.source))[1:]
    assert (told["there"], told["refused"], told["expiry_held_back"]) == ([], {}, {})
    assert indexes(filled.target) == indexes(filled.source)
    assert len(told["built"]) == len(EVERY_KIND)


def test_where_the_source_has_a_collation_an_index_without_one_has_none_in_the_target_either(
    job: Job,
) -> None:
    job.database.create_collection("pages", collation={"locale": "zh"})
    job.source.insert_one({"_id": 1, "text": TEXTS[0]})
    job.source.create_indexes(
        [IndexModel([("a", 1)], collation={"locale": "simple"}), IndexModel([("b", 1)])]
    )
    job.decide("backfill")

    assert copied(job).built == ["a_1", "b_1"]
    assert indexes(job.target) == indexes(job.source)


def test_what_the_target_has_already_is_left_and_a_second_time_all_is_there(filled: Job) -> None:
    filled.source.create_indexes(EVERY_KIND[:4])
    filled.decide("backfill")
    filled.target.create_index([("site", 1), ("at", -1)], name="mine")
    filled.target.create_index("of the target alone")

    first, second = copied(filled), copied(filled)

    assert (first.there, len(first.built)) == (["site_1_at_-1"], 3)
    assert (second.built, second.refused) == ([], {})
    assert set(second.there) == {*first.there, *first.built}
    assert {"mine", "of the target alone_1"} < set(indexes(filled.target))
    assert "site_1_at_-1" not in indexes(filled.target)


def test_a_unique_index_that_cannot_be_built_is_named_and_the_others_are_built(filled: Job) -> None:
    """Its record took the value of one that was decided before and then changed."""
    filled.source.create_indexes(EVERY_KIND[:3])
    filled.decide("backfill")
    filled.source.update_one({"_id": 0}, {"$set": {"url": "geheim"}})
    filled.source.insert_one({"_id": 100, "text": "另一篇文章说的是山谷里的小学和十二名学生。", "url": "u0"})

    done = filled.command("backfill", "--copy-indexes", "--log", "json")

    assert done.returncode == 3
    assert "  index NOT built: by url: unique, and several records have the same value\n" in done.stdout
    assert "  indexes of the source: 2 built, 0 already there\n" in done.stdout
    assert list(indexes(filled.target)) == ["_id_", "site_1_at_-1", "at_-1_site_1"]
    last = json.loads(done.stderr.splitlines()[-1])
    assert (last["exit_code"], list(last["indexes"]["refused"])) == (3, ["by url"])
    assert "u0" not in done.stdout + done.stderr


def test_an_index_whose_name_or_fields_another_has_is_named(filled: Job) -> None:
    filled.source.create_indexes([IndexModel([("a", 1)], sparse=True), IndexModel([("b", 1)])])
    filled.decide("backfill")
    filled.target.create_index("a")
    filled.target.create_index("c", name="b_1")

    assert copied(filled).refused == {
        "a_1": "there is another index of this name",
        "b_1": "there is another index of this name",
    }
    filled.target.drop_index("a_1")
    filled.target.create_index("a", name="other", hidden=True)
    filled.source.drop_index("a_1")
    filled.source.create_index("a")
    assert copied(filled).refused["a_1"] == "there is another index on the same fields"


def test_nothing_expires_in_the_target_until_somebody_says_so(filled: Job) -> None:
    filled.source.create_index("at", expireAfterSeconds=3600)
    filled.decide("backfill")

    done = copied(filled)

    assert (done.built, done.expiries) == (["at_1"], {"at_1": 3600})
    assert "expireAfterSeconds" not in indexes(filled.target)["at_1"][1]
    assert copied(filled).expiries == {"at_1": 3600}
    *_, line = index_lines(done)
    assert line.strip() == (
        'db.runCommand({collMod: "unique", index: {"name": "at_1", "expireAfterSeconds": 3600}})'
    )
    filled.database.command(SON(collMod="unique", index={"name": "at_1", "expireAfterSeconds": 3600}))
    assert indexes(filled.target) == indexes(filled.source)
    assert (copied(filled).there, copied(filled).expiries) == (["at_1"], {})
    checks = json.loads(filled.command("doctor", "--json").stdout)["checks"]
    (expiry,) = [check for check in checks if check["about"] == "expiry"]
    assert expiry["state"] == "warning"
    assert "by the index at_1" in expiry["message"]


def test_killed_anywhere_and_run_again_it_goes_on(filled: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_in_process, "COUNTED", {"listIndexes", "createIndexes"})
    filled.source.create_indexes(EVERY_KIND[:3])
    filled.decide("backfill")
    sent = commands_of(lambda: copied(filled))
    assert sent == 3
    for number in range(1, sent + 1):
        filled.target.drop_indexes()
        killed(lambda: copied(filled), number)
        copied(filled)
        assert indexes(filled.target) == indexes(filled.source)
