"""Targets that others filled or emptied, adoption, and a source that is its own target."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from bson import Int64, Timestamp, encode
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from dedup_job.commands import verify
from dedup_job.commands.backfill_and_run import adopt as adopt_command
from dedup_job.commands.changes import changes
from dedup_job.errors import ConfigError, StateError
from dedup_job.mongo.target import Target
from dedup_job.records import Counts
from dedup_job.report.run_summary import RunSummary
from tests.support.foreign_targets import rehearsed
from tests.support.job import RAW, Job, retrying
from tests.support.kill_in_process import free_lease, killed_after_inserting_into, killed_after_setting
from tests.support.refusals import told

TEXTS = [
    "清晨的港口停着三艘货船，工人们把茶叶和丝绸搬到岸上，等待下一班列车。",
    "山谷里的磨坊在昨夜的大雨中进了水，几位旅人帮着主人把面粉抬到阁楼。",
    "图书馆的旧书库存着两万册地方志，今年夏天开始逐页扫描并对外开放。",
    "市中心的钟楼因为修缮停摆了三个月，居民说没有钟声的早晨很不习惯。",
    "渔民在浅滩发现一块刻有文字的石碑，专家认为它来自明代的一座码头。",
    "今年的第一场雪比往年早了十天，果园里的苹果还没有来得及全部采摘。",
]


def records(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    return [{"_id": n, "text": TEXTS[n % len(TEXTS)], **more} for n in numbers]


def refusal(job: Job, mode: str = "backfill") -> str:
    """Return what a run says that cannot begin."""
    with pytest.raises(ConfigError) as caught:
        job.decide(mode)
    assert caught.value.exit_code == 78
    assert "\n" not in str(caught.value)
    return str(caught.value)


def adopt(job: Job) -> RunSummary | None:
    with job.context() as context:
        return adopt_command(context, lambda plan: None)


def test_a_target_that_others_filled_is_refused_and_left_alone(job: Job) -> None:
    job.source.insert_many(records(1, 2))
    job.target.insert_many(records(3))

    code, line = told(job.command("backfill"))
    assert (code, line.count("run backfill --adopt")) == (78, 1)
    assert refusal(job, "run") in line
    with pytest.raises(ConfigError, match="run backfill --adopt"):
        rehearsed(job)
    assert rehearsed(job, fresh=True).read == 2
    assert [name for name in job.database.list_collection_names() if ".dedup." in name] == []


def test_adopted_records_stand_for_their_copies_and_are_never_touched(job: Job) -> None:
    mine = [*records(3, 4), {"_id": "a", "text": TEXTS[1]}, {"_id": "b", "text": TEXTS[1]}, {"_id": "c"}]
    job.target.insert_many(mine)
    job.source.insert_many(
        [*records(1, 2, 3, 5), {"_id": 9, "text": f"<p>{TEXTS[4]}</p>"}, {"_id": "b", "text": TEXTS[1]}]
    )

    done = job.command("backfill", "--adopt")

    assert done.returncode == 0, done.stderr
    assert "adopted records=5" in done.stderr
    assert list(job.target.find({"_id": {"$in": [3, 4, "a", "b", "c"]}}).sort("_id", 1)) == mine
    assert {record["_id"] for record in job.target.find()} == {2, 3, 4, 5, "a", "b", "c"}
    assert {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()} == {1: "a", 9: 4}
    assert [row["mode"] for row in job.ledger("runs").find().sort("started", 1)] == ["adopt", "backfill"]
    head = job.ledger("head").find_one()
    assert head is not None
    assert (head["counts"]["unique"], head["counts"]["exact"]) == (4, 2), "counts are of the source alone"
    assert job.decide("run").counts.read == 0
    assert adopt(job) is None, "once is enough"


def test_a_nightly_run_drops_copies_of_adopted_records_and_no_record_for_itself(job: Job) -> None:
    job.target.insert_many(records(3, 4, 5))
    job.source.insert_many(records(1))
    adopt(job)
    job.decide("backfill")
    job.source.insert_many(
        [*records(3), {"_id": 8, "text": TEXTS[4]}, {"_id": 5, "text": TEXTS[5], "new": 1}]
    )

    counts = job.decide("run").counts

    assert (counts.unique, counts.exact, counts.refused) == (1, 1, {"conflict": 1})
    assert job.target.find_one({"_id": 5}) == records(5)[0]
    assert [(row["_id"], row["keeper"]) for row in job.ledger("dropped").find()] == [(8, 4)]


@pytest.mark.parametrize("batch_records", [1, 2, 100])
def test_an_adopted_record_that_came_again_with_another_text_stands_for_that_one(
    job: Job, batch_records: int
) -> None:
    job.set("limits", batch_records=batch_records)
    job.target.insert_many(records(3, 4))
    job.source.insert_many([{"_id": 4, "text": TEXTS[1]}, {"_id": 5, "text": TEXTS[4]}])
    adopt(job)
    job.target.delete_one({"_id": 4})

    counts = job.decide("backfill").counts

    assert (counts.unique, counts.exact) == (2, 0)
    assert job.target.count_documents({"text": TEXTS[4]}) == 1
    job.source.insert_many([{"_id": 6, "text": TEXTS[4]}, {"_id": 7, "text": TEXTS[1]}])
    job.decide("run")
    assert {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()} == {6: 5, 7: 4}


@pytest.mark.parametrize("batch_records", [1, 2, 3, 100])
def test_an_adopted_record_stands_for_its_copies_whatever_the_source_has_of_its_id(
    job: Job, batch_records: int
) -> None:
    job.set("limits", batch_records=batch_records)
    job.target.insert_many(records(3, 4))
    job.source.insert_many([{"_id": 3, "text": TEXTS[1]}, {"_id": 4, "text": TEXTS[4], "new": 1}])
    job.source.insert_many([{"_id": 5, "text": TEXTS[3]}, {"_id": 6, "text": TEXTS[4]}, records(7)[0]])
    adopt(job)

    forecast, counts = rehearsed(job), job.decide("backfill").counts

    assert counts == forecast == Counts(unique=1, exact=2, refused={"conflict": 2})
    assert {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()} == {5: 3, 6: 4}
    assert [row["_id"] for row in job.ledger("exceptions").find()] == [3, 4]
    assert list(job.target.find().sort("_id", 1)) == records(3, 4, 7)
    assert job.differences() == {}


def test_a_dry_run_knows_the_adopted_records(job: Job) -> None:
    job.target.insert_many(records(3, 4))
    job.source.insert_many(records(1))
    adopt(job)
    job.decide("backfill")
    job.source.insert_many([*records(3), {"_id": 8, "text": TEXTS[4]}])
    counts = rehearsed(job)
    assert (counts.unique, counts.exact) == (1, 1)


@pytest.mark.parametrize(("field", "lost"), [("pending", 0), ("last", 2)])
def test_an_adoption_that_was_killed_is_finished_before_anything_is_decided(
    job: Job, field: str, lost: int
) -> None:
    """The target may change in between: only what is there is adopted, as it is."""
    job.set("limits", batch_records=2)
    job.target.insert_many(records(*range(5)))
    job.source.insert_many([{"_id": 10 + n, "text": TEXTS[n]} for n in range(6)])
    killed_after_setting(field, lambda: adopt(job))

    assert "adopt" in refusal(job, "run")
    job.target.delete_one({"_id": lost})
    job.target.update_one({"_id": lost + 1}, {"$set": {"touched": True}})
    adopt(job)
    counts = job.decide("backfill").counts

    assert (counts.unique, counts.exact) == (2, 4)
    keepers = {10 + n: n for n in range(5) if n != lost}
    assert {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()} == keepers
    assert sum(plan["count"] for plan in job.ledger("plans").find({"mode": "adopt"})) == 4
    assert job.ledger("exceptions").count_documents({}) == 0


def test_a_target_that_was_dropped_or_restored_from_an_older_backup_ends_a_run(job: Job) -> None:
    job.source.insert_many(records(0, 1, 2, 3))
    job.decide("backfill")
    job.source.insert_many(records(4, 5))
    job.target.delete_many({"_id": {"$in": [0, 1, 2]}})
    code, line = told(job.command("run"))
    assert (code, line.count("lacks 3 of 4 records"), line.count("run backfill again")) == (65, 1, 1)
    for again in (lambda: job.decide("backfill"), lambda: rehearsed(job)):
        with pytest.raises(StateError, match="lacks 3 of 4"):
            again()

    job.target.drop()
    with pytest.raises(StateError, match=r"target is not the collection that was filled.*run backfill again"):
        job.decide("run")
    for name in ("head", "plans", "dropped", "exceptions", "runs"):
        job.ledger(name).drop()
    assert job.decide("backfill").counts.unique == 6, "the message says what helps"


def test_a_backup_that_lacks_only_the_newest_records_is_noticed(job: Job) -> None:
    numbers = range(300)
    job.source.insert_many([{"_id": n, "text": f"{chr(0x4E00 + n * 13) * 9}{n}"} for n in numbers])
    assert job.decide("backfill").counts.unique == 300
    job.target.delete_many({"_id": {"$gte": 230}})
    with pytest.raises(StateError, match="lacks 70 of 100"):
        job.decide("run")


def test_the_source_is_recognised_under_every_name_of_its_server(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.source.insert_many(records(1))
    job.set("target", collection="pages")
    port = urlsplit(job.uri).port
    uris = [f"mongodb://localhost:{port}/?directConnection=true", job.uri]
    hello = job.database.client.admin.command("hello")
    if "setName" in hello:
        uris.append(f"mongodb://{hello['me']}/?replicaSet={hello['setName']}")
    for uri in uris:
        monkeypatch.setenv("DEDUP_TARGET_URI", uri)
        assert "is the source itself" in refusal(job)


@pytest.mark.parametrize(
    ("section", "name"), [("source", "unique.dedup.dropped"), ("target", "unique.dedup.head")]
)
def test_a_collection_of_a_ledger_is_neither_source_nor_target(job: Job, section: str, name: str) -> None:
    job.source.insert_many(records(1))
    job.decide("backfill")
    job.set(section, collection=name)
    assert "belongs to a ledger" in refusal(job)


KINDS = {
    "view": {"viewOn": "others", "pipeline": []},
    "timeseries": {"timeseries": {"timeField": "at"}},
    "capped": {"capped": True, "size": 1 << 20},
    "clustered": {"clusteredIndex": {"key": {"_id": 1}, "unique": True}},
}


def created(job: Job, name: str, kind: str) -> None:
    try:
        job.database.create_collection(name, check_exists=False, **KINDS[kind])
    except OperationFailure as error:
        pytest.skip(f"the server has no such collections: {error.code}")


@pytest.mark.parametrize(
    ("kind", "word"),
    [("view", "is a view"), ("timeseries", "is a timeseries"), ("clustered", "is a clustered")],
)
def test_a_source_without_an_id_index_is_refused(job: Job, kind: str, word: str) -> None:
    created(job, "pages", kind)
    message = refusal(job)
    assert word in message
    # Only a view has a collection behind it that could be named in its place.
    assert ("name the collection behind it" in message) == (kind == "view")


@pytest.mark.parametrize("kind", ["view", "timeseries", "capped"])
def test_a_target_that_does_not_keep_every_record_is_refused(job: Job, kind: str) -> None:
    job.source.insert_many(records(1))
    created(job, "unique", kind)
    assert kind in refusal(job)


def test_a_capped_source_and_a_clustered_target_are_fine(job: Job) -> None:
    created(job, "pages", "capped")
    created(job, "unique", "clustered")
    job.source.insert_many(records(1, 2, 7))
    counts = job.decide("backfill").counts
    assert (counts.unique, counts.exact) == (2, 1)
    assert job.decide("run").counts.read == 0


FOLDING = {"locale": "en", "strength": 2}


@pytest.mark.parametrize("page", [1, 2, 100])
def test_a_source_with_a_collation_is_read_whole_and_its_target_made_alike(job: Job, page: int) -> None:
    job.set("limits", batch_records=page)
    job.database.create_collection("pages", collation=FOLDING)
    ids = ["b", "A", "c", "Ä", "B1", "a1", "é", "E", "", "_", "Z", 5, None]
    job.source.insert_many(
        [{"_id": name, "text": TEXTS[n % 6] + "又" * (n // 6)} for n, name in enumerate(ids)]
    )

    counts = job.decide("backfill").counts

    assert counts.read == len(ids)
    options = job.target.options()
    assert options["collation"]["strength"] == 2
    assert options["collation"] == job.source.options()["collation"]
    job.source.insert_many([{"_id": "aa", "text": TEXTS[0]}, {"_id": "ZZ", "text": TEXTS[1]}])
    assert job.decide("run").counts.duplicate == 2
    decided = [*job.target.find(), *job.ledger("dropped").find()]
    assert len(decided) == len(ids) + 2


def test_a_target_with_another_collation_is_refused(job: Job) -> None:
    job.database.create_collection("pages", collation=FOLDING)
    job.source.insert_many(records(1))
    job.database.create_collection("unique")
    assert "another default collation" in refusal(job)


def test_a_source_without_a_collation_does_not_make_the_target(job: Job) -> None:
    job.source.insert_one({"_id": 1, "text": TEXTS[0]})
    job.decide("backfill")
    assert "collation" not in job.target.options()


def test_an_equal_id_of_another_type_is_a_conflict(job: Job) -> None:
    job.target.insert_many([{"_id": Int64(7), "text": "x"}, {"_id": 8, "slug": "taken"}])
    job.target.create_index("slug", unique=True, sparse=True)
    refused = Target(retrying(job.target)).insert(
        [encode({"_id": 7, "text": "x"}), encode({"_id": 9, "slug": "taken"})]
    )
    assert refused == {0: "conflict", 1: "unique_index"}


def test_a_timestamp_that_the_server_sets_is_told_once_and_counts_as_landed(job: Job) -> None:
    job.set("limits", batch_records=2)
    job.source.insert_many(records(*range(5)))
    job.source.update_many({}, {"$set": {"at": Timestamp(0, 0), "inner": {"at": Timestamp(0, 0)}}})
    killed_after_inserting_into("unique", lambda: job.decide("backfill"))
    free_lease(job)

    done = job.command("backfill")

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Timestamp(0, 0)") == 1
    assert job.ledger("exceptions").count_documents({}) == 0
    landed = list(job.target.find())
    assert len(landed) == 5
    assert all(record["at"] != Timestamp(0, 0) == record["inner"]["at"] for record in landed)
    assert job.differences() == {}
    job.target.update_one({}, {"$set": {"inner": 1}})
    assert job.differences().keys() == {"altered"}


def test_records_that_others_put_into_a_target_with_a_ledger_do_not_break_a_run(job: Job) -> None:
    job.source.insert_many(records(0, 1))
    job.decide("backfill")
    job.target.insert_many([{"_id": 2, "text": "别人写的"}, {"_id": "x", "text": TEXTS[3]}])
    job.source.insert_many(records(2, 3))

    counts = job.decide("run").counts

    assert (counts.unique, counts.refused) == (1, {"conflict": 1})
    raw = {bytes(record.raw) for record in job.target.with_options(RAW).find()}
    assert RawBSONDocument(encode({"_id": 2, "text": "别人写的"})).raw in raw


def test_what_does_not_decide_may_change_from_run_to_run_and_what_does_may_not(job: Job) -> None:
    job.source.insert_many(records(0, 1))
    job.decide("backfill")
    job.source.insert_many(records(2))
    job.set("source", lookback_hours=1)
    job.set("limits", batch_records=7, record_seconds=9)
    job.set("match", cache_mb=1)
    assert job.decide("run").counts.unique == 1
    job.set("clean", drop_after=["分享"])
    with pytest.raises(ConfigError, match="drop_after"):
        job.decide("run")


def test_an_audit_knows_that_a_record_of_the_source_took_the_place_of_an_adopted_one(job: Job) -> None:
    job.target.insert_many(records(0, 2, 3, 4))
    job.source.insert_many([{"_id": -1, "text": TEXTS[3]}, {"_id": 4, "text": TEXTS[1]}, {"_id": 5}])
    adopt(job)
    job.target.delete_one({"_id": 4})
    job.source.insert_many([{"_id": 6, "text": TEXTS[1]}, {"_id": 2}])
    job.target.delete_one({"_id": 2})
    counts = job.decide("backfill").counts
    assert (counts.unique, counts.exact, counts.unchecked) == (1, 2, {"missing": 2})
    assert job.differences() == {}
    job.target.update_one({"_id": 4}, {"$set": {"text": TEXTS[4]}})
    assert job.differences().keys() == {"altered", "keeper_altered"}, (
        "what was adopted is not what it shall be"
    )


def test_an_audit_knows_what_was_adopted(job: Job) -> None:
    """Some of the adopted are in the source as well: alike, changed, or with nothing to judge."""
    job.target.insert_many([*records(3, 4, 5), {"_id": "b", "text": TEXTS[1]}, {"_id": "c"}])
    job.source.insert_many([*records(1, 2, 3), {"_id": 5, "text": TEXTS[5], "new": 1}, {"_id": "c"}])
    job.source.insert_one({"_id": -1, "text": TEXTS[3]})
    adopt(job)
    counts = job.decide("backfill").counts
    assert (counts.exact, counts.refused) == (2, {"conflict": 1})

    with job.context() as context:
        assert verify.verify(context, None, lambda _: None).differences == []
        assert verify.verify_sample(context, 4, lambda _: None).differences == []
        found = changes(context, True, lambda _: None)
    assert (found.decided, found.new, found.missed) == (6, 0, 0)
    assert found.vanished.counts.total() == found.changed.counts.total() == 0
    job.target.delete_one({"_id": 4})
    job.target.update_one({"_id": 3}, {"$set": {"touched": True}})
    assert job.differences().keys() == {"missing", "altered", "keeper_altered"}


LONG = "".join(TEXTS)
NEAR_LONG = LONG.replace("茶叶", "咖啡").replace("两万", "三万")
NEAR_BOTH = NEAR_LONG.replace("明代", "清代").replace("十天", "九天")


@pytest.mark.parametrize("is_head_lost", [False, True])
def test_nothing_is_dropped_for_an_adopted_record_that_was_restored_before(
    job: Job, is_head_lost: bool
) -> None:
    job.set("match", min_similarity=0.5)
    restored, copy = {"_id": 2, "text": NEAR_LONG}, {"_id": 3, "text": NEAR_BOTH}
    job.source.insert_many([{"_id": 1, "text": LONG}, restored])
    assert job.decide("backfill").counts.near == 1
    assert job.command("restore", "2").returncode == 0
    if is_head_lost:
        for name in ("head", "plans", "dropped", "exceptions", "runs"):
            job.ledger(name).drop()
    else:
        run = job.ledger("runs").find_one({"mode": "backfill"})
        assert run is not None
        assert job.command("undo", run["_id"], "--yes").returncode == 0
    job.target.delete_many({})
    job.target.insert_one(restored)
    job.source.delete_one({"_id": 1})
    job.source.insert_one(copy)

    done = job.command("backfill", "--adopt")

    assert done.returncode == 0, done.stderr
    assert list(job.target.find().sort("_id", 1)) == [restored, copy], "nothing is dropped for record 2"
    assert job.differences() == {}
    # The job did not insert record 2, so it never removes it.
    job.source.delete_one({"_id": 2})
    assert job.command("sync", "--yes").returncode == 0
    assert list(job.target.find().sort("_id", 1)) == [restored, copy]
    assert job.differences() == {}


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_dry_run_of_an_adoption_writes_nothing_and_counts_what_the_adoption_then_does(
    job: Job, is_interrupted: bool
) -> None:
    job.set("limits", batch_records=2)
    mine = [*records(3, 4, 6), {"_id": "a", "text": TEXTS[1]}, {"_id": "b", "text": TEXTS[1]}, {"_id": "c"}]
    job.target.insert_many(mine)
    job.source.insert_many([*records(1, 2, 3, 5), {"_id": 9, "text": f"<p>{TEXTS[4]}</p>"}])
    job.source.insert_many([{"_id": 6, "text": TEXTS[2]}, {"_id": "b", "text": TEXTS[1]}])
    if is_interrupted:
        killed_after_setting("last", lambda: adopt(job))
        free_lease(job)
    before = job.hash()
    assert job.command("report").returncode == 78

    done = job.command("report", "--adopt", "--json")

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert 0 < shown["adopted"] == (4 if is_interrupted else 6)
    assert "of the target would be adopted" in job.command("report", "--adopt").stdout
    assert job.hash() == before
    backfilled = json.loads(job.command("backfill", "--adopt", "--json").stdout)
    names = ("read", "unique", "duplicate", "unchecked", "refused")
    assert {name: shown[name] for name in names} == {name: backfilled[name] for name in names}
    assert (shown["duplicate"]["exact"], shown["refused"]) == (2, {"conflict": 1})


def test_an_adoption_is_previewed_as_a_backfill_that_knows_the_ledger(job: Job) -> None:
    for others in (["--fresh"], ["--mode", "run"]):
        done = job.command("report", "--adopt", *others)
        assert (done.returncode, "leave out --fresh and --mode run" in done.stderr) == (64, True)
