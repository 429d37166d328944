"""A backfill on Spark leaves the same target and ledger as on one machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bson import ObjectId

from dedup_job.commands import spark_backfill
from dedup_job.config import EngineSettings
from dedup_job.errors import ConfigError, GuardStop, LeaseHeld, StorageFull, Unreachable
from dedup_job.ledger.settings_fit_ledger import Consent
from dedup_job.pipeline.guards import FIRST_RECORDS
from dedup_job.report.run_summary import RunSummary
from dedup_job.spark.session import session
from scripts.bench.corpus import Mix, generate
from scripts.bench.made_up import Collection, Forms
from tests.support.colliding_texts import ONE, OTHER
from tests.support.job import PROGRAM, ROOT, Job
from tests.support.sweep_cases import restore
from tests.support.undo_cases import undo
from tests.support.waiting import HANG_SECONDS, becomes

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17, and there is none on PATH"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),  # of py4j
]

STAGES = ("records", "texts", "pairs", "matches", "dropped", "verdicts")
FORM = Collection(Forms(forms=1, words_each=60, fields=3, least=0.3, most=1.0), copies=0.2)


def odd() -> list[dict[str, Any]]:
    """Pages with copies, and records that cannot be judged."""
    return list(generate(200, mix=Mix(length=200, odd=0.1)))


def crowded(count: int = 200) -> list[dict[str, Any]]:
    """Records of one form, which share more keys than a key remembers texts."""
    return [
        {"_id": ObjectId((1 << 90 | number).to_bytes(12, "big")), "data": text.decode()}
        for number, text in enumerate(FORM.texts(np.arange(count)))
    ]


def chained() -> list[dict[str, Any]]:
    """Texts that change step by step, each with a copy that comes late; ids of other types."""
    words = [f"word{number}" for number in range(90)]
    texts = [" ".join(words[step : step + 40]) for step in range(50)]
    return [{"_id": number, "data": text} for number, text in enumerate(texts + texts[::-1])]


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[Any]:
    """Spark on two cores, for all tests: each of its Python workers takes a while to begin."""
    # Java runs for seconds here, so code that it compiles at once pays, not code that it compiles well.
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    engine = EngineSettings(master="local[2]", conf={"spark.sql.shuffle.partitions": "2", **java})
    with session(engine, "tests") as running:
        yield running


@pytest.fixture
def filled(job: Job) -> Job:
    job.set("source", fields=["data"])
    job.source.insert_many([*odd(), *crowded(), *chained()])
    return job


def on_spark(
    job: Job,
    partitions: int = 2,
    observe: Callable[[Any], None] = lambda plan: None,
    work: Path | None = None,
    consent: Consent = Consent(),
) -> RunSummary:
    """Let a backfill be decided on two cores of this machine."""
    folder = str(work or job.folder / f"work-{job.database.name}")
    job.set("engine", kind="spark", master="local[2]", work=folder, partitions=partitions)
    with job.context() as context:
        return spark_backfill.decide(context, observe, consent)


def test_spark_decides_as_one_machine_does_and_a_nightly_run_goes_on(
    filled: Job, another_job: Callable[[], Job]
) -> None:
    other = another_job()
    here = filled.decide("backfill").counts
    assert min(here.near, here.exact, len(here.unchecked)) > 0
    assert on_spark(other).counts == here
    assert other.outcome() == filled.outcome()
    assert other.plans() == filled.plans()
    late = [{"data": record["data"]} for record in generate(60, seed=3)] + [
        {"data": text["data"]} for text in odd()
    ]
    for job in (filled, other):
        job.source.insert_many(
            [{"_id": ObjectId((1 << 95 | n).to_bytes(12, "big")), **one} for n, one in enumerate(late)]
        )
    assert other.decide("run").counts == filled.decide("run").counts
    assert other.outcome() == filled.outcome()


@pytest.mark.long
def test_without_copies_spark_decides_as_one_machine_with_copies_does(filled: Job) -> None:
    filled.decide("backfill")
    bare = filled.without_copies()

    on_spark(bare)

    assert bare.rows("dropped") == filled.rows("dropped")
    assert bare.rows("exceptions") == filled.rows("exceptions")
    bare.tables["engine"] = {"workers": 2}
    assert bare.decide("run").counts.read == 0


@pytest.mark.long
def test_spark_separates_groups_as_one_machine_does(filled: Job, another_job: Callable[[], Job]) -> None:
    filled.source.update_many({}, [{"$set": {"site": {"$cond": [{"$lt": [{"$rand": {}}, 0.5]}, "a", "b"]}}}])
    other = another_job()
    for job in (filled, other):
        job.set("match", within=["site"])
    here = filled.decide("backfill").counts
    assert min(here.near, here.exact) > 0
    assert on_spark(other).counts == here
    assert other.outcome() == filled.outcome()
    assert other.plans() == filled.plans()


@pytest.mark.long
@pytest.mark.parametrize("prefer", [[], ["longest"]])
def test_spark_counts_records_that_lack_a_field_as_one_machine_does(
    job: Job, another_job: Callable[[], Job], prefer: list[Any]
) -> None:
    job.set("source", fields=["title", "data"])
    job.set("match", prefer=prefer)
    texts = [{"_id": n, "title": f"title {n % 20}", "data": f"text number {n % 40}"} for n in range(100)]
    for number in range(0, 100, 7):
        texts[number]["title"] = [None, ""][number % 2]
    for number in range(0, 100, 10):
        del texts[number]["data"]
    job.source.insert_many(texts)
    other = another_job()

    here = job.decide("backfill")
    there = on_spark(other)

    assert here.counts.partial > 10
    assert there.counts == here.counts
    told = f"{here.counts.partial} judged by some of their fields"
    assert told in here.as_text()
    assert told in there.as_text()


def decisions(job: Job) -> Any:
    """The result of a run, without the numbers of plans: on Spark, duplicates are in later plans."""
    target, rows, exceptions = job.outcome()
    return target, {key: {**row, "plan": None} for key, row in rows.items()}, exceptions


def prefer_and_split(job: Job, prefer: list[Any], **match: Any) -> None:
    """Set rules, and give each record a score and a site that do not follow the order of the ids."""
    job.set("match", prefer=prefer, **match)
    for number, record in enumerate(job.source.find({}, {"_id": 1}).sort("_id", 1)):
        values = {"score": number * 7 % 5, "site": "ab"[number * 5 % 11 < 7]}
        job.source.update_one(record, {"$set": values if number % 9 else {"site": "a"}})


def refer_to_some(job: Job) -> None:
    """Move every third record of the source to a reference, and copy every ninth."""
    records = list(job.source.find())
    job.database["tests"].insert_many(records[::3])
    job.source.delete_many({"_id": {"$in": [one["_id"] for one in records[::3]] + [records[0]["_id"]]}})
    job.source.insert_many(records[::9])
    job.tables["reference"] = [{"database": job.database.name, "collection": "tests"}]


PREFER = {
    "longest": ["longest"],
    "newest": ["newest"],
    "score": [{"field": "score", "order": "ascending"}, "longest"],
}


@pytest.mark.long
@pytest.mark.parametrize("prefer", PREFER.values(), ids=PREFER)
def test_spark_keeps_the_best_record_as_one_machine_does(
    filled: Job, another_job: Callable[[], Job], prefer: list[Any]
) -> None:
    # In one batch: a record that is decided before its nearest keeper came keeps another one.
    filled.set("limits", batch_records=1_000)
    prefer_and_split(filled, prefer)
    other = another_job()

    here = filled.decide("backfill").counts

    assert min(here.near, here.exact, len(here.unchecked)) > 0
    later = [row for row in filled.ledger("dropped").find() if str(row["keeper"]) > str(row["_id"])]
    assert len(later) > 10
    assert on_spark(other).counts == here
    assert decisions(other) == decisions(filled)
    assert other.differences() == {}
    other.tables["engine"] = {"workers": 2}
    assert other.decide("run").counts.read == 0


@pytest.mark.long
def test_spark_drops_what_a_reference_has_as_one_machine_does(
    filled: Job, another_job: Callable[[], Job]
) -> None:
    refer_to_some(filled)
    other = another_job()

    here = filled.decide("backfill").counts

    of_references = [row for row in filled.ledger("dropped").find() if isinstance(row["keeper"], dict)]
    assert len({row["similarity"] for row in of_references}) > 2
    assert on_spark(other).counts == here
    assert decisions(other) == decisions(filled)
    assert other.differences() == {}
    for job in (filled, other):
        job.tables["engine"] = {"workers": 2}
        job.source.insert_one({"_id": 1000, "data": chained()[0]["data"]})
        assert job.decide("run").counts.read == 1
    assert decisions(other) == decisions(filled)


@pytest.mark.long
def test_spark_combines_groups_references_and_the_best_record(
    filled: Job, another_job: Callable[[], Job]
) -> None:
    filled.set("limits", batch_records=1_000)
    prefer_and_split(filled, PREFER["score"], within=["site"])
    refer_to_some(filled)
    other = another_job()

    here = filled.decide("backfill").counts

    assert min(here.near, here.exact) > 0
    assert on_spark(other).counts == here
    assert decisions(other) == decisions(filled)
    assert other.differences() == {}


@pytest.mark.long
def test_what_the_target_refuses_of_the_best_records_is_decided_locally(
    job: Job, another_job: Callable[[], Job]
) -> None:
    """Without crowded keys: there, the order in which plans are committed says which texts are compared."""
    job.set("source", fields=["data"])
    job.set("limits", batch_records=1_000)
    job.source.insert_many([*odd(), *chained()])
    prefer_and_split(job, PREFER["score"])
    # The best texts are ten steps apart.  Their duplicates match worse texts, which are kept until then.
    for step in range(50):
        job.source.update_many({"_id": {"$in": [step, 99 - step]}}, {"$set": {"score": step % 10}})
    other = another_job()
    for one in (job, other):
        one.database.create_collection("unique", validator={"score": {"$ne": 0}})

    here = job.decide("backfill").counts
    there = on_spark(other)

    assert here.refused
    assert there.counts.read == here.read
    assert there.replaced is not None
    assert there.replaced.replaced > 0
    assert set(other.outcome()[0]) == set(job.outcome()[0])
    assert other.differences() == {}


@pytest.mark.longest
@pytest.mark.parametrize("engine", ["spark", "local"])
@pytest.mark.parametrize("batches", [2, 9])
def test_a_killed_backfill_that_prefers_goes_on(
    filled: Job, another_job: Callable[[], Job], batches: int, engine: str
) -> None:
    """Two batches are of records that are kept; after nine, duplicates are committed, too."""
    prefer_and_split(filled, PREFER["score"])
    refer_to_some(filled)
    other = another_job()
    other.set("limits", batch_records=20)
    committed = list[bool]()

    def broken_off(plan: Any) -> None:
        committed.append(any(verdict.match for verdict in plan.verdicts))
        if len(committed) == batches:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_spark(other, observe=broken_off)
    assert committed[-1] == (batches > 2)
    if engine == "spark":
        on_spark(other)
    else:
        other.tables["engine"] = {"workers": 2}
        other.decide("backfill")

    filled.decide("backfill")
    assert set(other.outcome()[0]) == set(filled.outcome()[0])
    assert other.rows("dropped").keys() == filled.rows("dropped").keys()
    assert other.differences() == {}


@pytest.mark.long
def test_spark_keeps_both_of_two_texts_with_the_same_xxh3(job: Job) -> None:
    texts = {1: ONE, 2: OTHER, 3: OTHER}
    job.source.insert_many([{"_id": number, "text": text} for number, text in texts.items()])
    assert (on_spark(job).counts.unique, job.rows("dropped")["3"]["keeper"]) == (2, 2)


@pytest.mark.longest
@pytest.mark.parametrize("partitions", [1, 7])
def test_into_how_many_parts_the_work_is_cut_decides_nothing(
    filled: Job, another_job: Callable[[], Job], partitions: int
) -> None:
    other = another_job()
    here = filled.decide("backfill").counts
    assert on_spark(other, partitions).counts == here
    assert other.outcome() == filled.outcome()
    assert other.plans() == filled.plans()


@pytest.mark.longest
def test_what_the_target_refuses_ends_as_on_one_machine(filled: Job, another_job: Callable[[], Job]) -> None:
    other = another_job()
    for job in (filled, other):
        unfit = {"data": {"$not": {"$regex": "word2[05]|的"}}}
        job.database.create_collection("unique", validator=unfit)
    here = filled.decide("backfill").counts
    assert here.refused
    assert on_spark(other).counts == here
    assert other.outcome() == filled.outcome()


@pytest.mark.longest
def test_a_killed_backfill_goes_on_from_the_last_whole_stage(
    filled: Job, another_job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dedup_job.spark import stage_files

    other, made, most = another_job(), [], 2
    make = stage_files.Work.make

    def killed(self: stage_files.Work, name: str, *rest: Any) -> stage_files.Stage:
        if len(made) == most:
            raise KeyboardInterrupt
        made.append(name)
        return make(self, name, *rest)

    monkeypatch.setattr(stage_files.Work, "make", killed)
    with pytest.raises(KeyboardInterrupt):
        on_spark(other)
    most = len(STAGES)
    committed = 0

    def broken_off(plan: Any) -> None:
        nonlocal committed
        committed += 1
        if committed == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), other.context() as context:
        spark_backfill.decide(context, broken_off)
    other.source.insert_one({"_id": 1000, "data": "it came too late to be decided on Spark"})
    on_spark(other)
    assert tuple(made) == STAGES
    filled.decide("backfill")
    assert other.outcome() == filled.outcome()
    filled.source.insert_one({"_id": 1000, "data": "it came too late to be decided on Spark"})
    assert other.decide("run").counts == filled.decide("run").counts


@pytest.mark.longest
def test_a_backfill_that_goes_on_does_not_rely_on_what_was_altered_meanwhile(job: Job) -> None:
    job.set("source", fields=["data"])
    job.set("limits", batch_records=50)
    job.source.insert_many(chained())  # 50 texts, and their copies in the next batch

    def broken_off(_: Any) -> None:
        raise KeyboardInterrupt

    work = str(job.folder / "work")
    job.set("engine", kind="spark", master="local[2]", work=work, partitions=2)
    with pytest.raises(KeyboardInterrupt), job.context() as context:
        spark_backfill.decide(context, broken_off)
    kept = [record["_id"] for record in job.target.find().sort("_id", 1)]
    assert 0 < len(kept) < 50
    altered = kept[1]
    job.target.update_one({"_id": altered}, {"$set": {"data": "somebody wrote this over it"}})
    job.source.update_one({"_id": kept[2]}, {"$set": {"more": "what is not compared"}})
    with job.context() as context:
        counts = spark_backfill.decide(context, lambda plan: None).counts
    assert counts.read == 50
    later = {row["_id"]: row["keeper"] for row in job.ledger("dropped").find({"_id": {"$gte": 50}})}
    assert later
    assert altered not in later.values()
    assert job.target.find_one({"_id": 99 - altered}) == {
        "_id": 99 - altered,
        "data": chained()[altered]["data"],
    }
    assert set(kept) - {altered} <= set(later.values()), "the others stand for their copies"


@pytest.mark.long
def test_a_killed_backfill_that_this_machine_finished_after_a_run_is_finished_for_spark_too(job: Job) -> None:
    job.source.insert_many([{"_id": n, "text": f"text number {n // 2} of a small source"} for n in range(40)])
    job.set("limits", batch_records=10)

    def broken_off(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_spark(job, observe=broken_off)
    job.decide("run")
    with pytest.raises(ConfigError, match=r"nightly runs.*--engine local"):
        on_spark(job)

    job.decide("backfill")

    job.source.insert_one({"_id": 40, "text": "another text"})
    assert on_spark(job).counts.read == 1
    assert job.differences() == {}


@pytest.mark.longest
def test_what_was_read_before_an_undo_is_read_anew(filled: Job, another_job: Callable[[], Job]) -> None:
    """The stages of a killed backfill say what the source was then, and all was undecided again since."""
    other = another_job()

    def broken_off(plan: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_spark(other, observe=broken_off)
    other.decide("backfill")
    for row in other.ledger("runs").find({"mode": "backfill"}).sort("started", -1):
        undo(other, row["_id"])
    for job in (filled, other):
        first, second = job.source.find({"data": {"$type": "string"}}).sort("_id", 1).limit(2)
        job.source.update_one({"_id": second["_id"]}, {"$set": {"data": first["data"]}})
        job.source.insert_one({"_id": 1000, "data": "it came behind the undo"})

    on_spark(other)

    filled.decide("backfill")
    assert other.outcome() == filled.outcome()


@pytest.mark.longest
@pytest.mark.parametrize("is_undone", [False, True])
def test_a_killed_backfill_goes_on_after_a_record_was_restored(
    filled: Job, another_job: Callable[[], Job], is_undone: bool
) -> None:
    """The restored record was decided; after an undo the source is read again."""
    other = another_job()
    for job in (filled, other):
        job.set("limits", batch_records=40)

    def broken_off(plan: Any) -> None:
        if other.ledger("dropped").count_documents({}) > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_spark(other, observe=broken_off)
    row = other.ledger("dropped").find_one({}, sort=[("_id", 1)])
    assert row is not None
    restore(other, row["_id"])
    if is_undone:
        (run,) = other.ledger("runs").find({"mode": "backfill"})
        undo(other, run["_id"])

    on_spark(other)

    filled.decide("backfill")
    restore(filled, row["_id"])
    assert set(other.outcome()[0]) == set(filled.outcome()[0])
    assert other.rows("dropped") == filled.rows("dropped")
    assert other.differences() == {}


@pytest.mark.long
def test_the_work_folder_may_have_any_name(job: Job) -> None:
    """Spark reads some of these characters as a pattern, and lists files with others percent-encoded."""
    job.source.insert_many([{"_id": n, "text": f"text number {n // 2} of a small source"} for n in range(40)])
    work = job.folder / "range=1" / "文 é[1]{a,b}*?,;#%20%\\'"

    assert on_spark(job, work=work).counts.exact == 20
    names = [path.name for path in work.iterdir() if "." not in path.name]
    assert sorted(name.partition("-")[0] for name in names) == sorted(STAGES)


@pytest.mark.long
@pytest.mark.parametrize("name", ["file", "file/below", "/proc/nope"])
def test_a_work_folder_that_cannot_be_written_is_refused_before_any_stage(job: Job, name: str) -> None:
    job.source.insert_one({"_id": 1, "text": "one text"})
    (job.folder / "file").touch()
    work = job.folder / name

    with pytest.raises(
        ConfigError, match=rf"^\[engine\] work: file://{work} cannot be written \(.+\); name a"
    ):
        on_spark(job, work=work)

    assert not job.ledger("runs").count_documents({})


@pytest.mark.long
def test_doctor_names_a_work_folder_that_cannot_be_written(job: Job) -> None:
    job.source.insert_one({"_id": 1, "text": "one text"})
    job.set("engine", kind="spark", work="/proc/nope")

    done = job.command("doctor", "--json")

    assert done.returncode == 78
    found = {one["about"]: one for one in json.loads(done.stdout)["checks"]}
    told = "[engine] work: file:///proc/nope cannot be written (it cannot be made); name a folder"
    assert found["workers"]["message"].startswith(told)


@pytest.mark.long
def test_a_server_of_the_work_folder_that_does_not_answer_is_named(spark: Any) -> None:
    from dedup_job.spark.work_folder import make_work_folder

    spark._jsc.hadoopConfiguration().set("ipc.client.connect.max.retries", "0")
    told = r"^\[engine\] work: the server of hdfs://127\.0\.0\.1:1/a does not answer \(ConnectException: "
    with pytest.raises(Unreachable, match=told):
        make_work_folder(spark, "hdfs://127.0.0.1:1/a")
    with pytest.raises(ConfigError, match=r"^\[engine\] work: no://host/a cannot be written \(Unsupported"):
        make_work_folder(spark, "no://host/a")


@pytest.mark.long
def test_a_check_of_the_work_folder_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    from dedup_job.spark.work_folder import check_work_folder, make_work_folder

    new = tmp_path / "a [1]" / "b"
    check_work_folder(EngineSettings(work=f"file://{new}"))
    assert not list(tmp_path.iterdir())

    make_work_folder(spark, f"file://{new}")
    check_work_folder(EngineSettings(work=f"file://{new}"))
    assert not list(new.iterdir())


@pytest.mark.long
def test_another_target_makes_stages_of_its_own_in_the_same_folder(
    filled: Job, another_job: Callable[[], Job]
) -> None:
    other = another_job()
    on_spark(other)
    for job in (filled, other):
        job.tables["target"]["collection"] = "others"
        job.set("match", min_similarity=0.9)
    filled.decide("backfill")
    on_spark(other)
    assert others_of(other) == others_of(filled)


def others_of(job: Job) -> dict[Any, Any]:
    """Return the keepers of the records that were dropped for the target `others`."""
    return {row["_id"]: row["keeper"] for row in job.database["others.dedup.dropped"].find()}


@pytest.mark.long
def test_two_writers_of_a_work_folder_do_not_mix_their_files(spark: Any, tmp_path: Path) -> None:
    from dedup_job.spark.stage_files import Work

    def rows(*numbers: int) -> Callable[[], Any]:
        return lambda: spark.createDataFrame([(number,) for number in numbers], "number bigint")

    def numbers(stage: Any) -> list[int]:
        return sorted(row.number for row in stage.table.collect())

    # As long as random names: a shorter one could be the beginning of what follows another name.
    first, second = "a" * 16, "b" * 16
    one, same, other = (Work(spark, str(tmp_path), name, {}, lambda: None) for name in (first, first, second))
    made = [one.make("records", rows(1, 2), {}), other.make("records", rows(3, 4, 5), {})]
    made += [same.make("records", rows(1, 2), {})]
    assert [numbers(stage) for stage in made] == [[1, 2], [3, 4, 5], [1, 2]]
    assert numbers(one.find("records")) == [1, 2]
    assert numbers(other.find("records")) == [3, 4, 5]
    assert Work(spark, str(tmp_path), first, {"recipe": "another"}, lambda: None).find("records") is None

    one.remove()
    assert one.find("records") is None
    assert numbers(other.find("records")) == [3, 4, 5]


@pytest.mark.long
def test_a_stage_whose_folder_is_deleted_as_it_ends_names_the_folder(spark: Any, tmp_path: Path) -> None:
    from dedup_job.spark.stage_files import Work

    class DeletedAtTheEnd(Work):
        def _write(self, *rest: Any) -> Any:
            manifest = super()._write(*rest)
            shutil.rmtree(tmp_path)
            return manifest

    work = DeletedAtTheEnd(spark, str(tmp_path), "a" * 16, {}, lambda: None)
    with pytest.raises(StorageFull, match=f"is {tmp_path} still there"):
        work.make("records", lambda: spark.createDataFrame([(1,)], "number bigint"), {})


@pytest.mark.long
@pytest.mark.parametrize("has_lost_files", [False, True])
def test_a_backfill_that_wakes_without_the_lease_decides_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch, has_lost_files: bool
) -> None:
    """Another run has taken the lease meanwhile; if it read the source anew, it deleted these files."""
    from dedup_job.spark.stage_files import Work

    job.source.insert_many([{"_id": n, "text": f"text number {n // 2} of a small source"} for n in range(40)])
    make = Work.make

    def overtaken(self: Work, name: str, *rest: Any) -> Any:
        if name == "pairs":
            job.ledger("head").update_one({"_id": "head"}, {"$inc": {"fence": 1}})
            if has_lost_files:
                self.remove()
        return make(self, name, *rest)

    monkeypatch.setattr(Work, "make", overtaken)
    with pytest.raises(LeaseHeld):
        on_spark(job)
    assert not list(Path(job.tables["engine"]["work"]).glob("pairs-*.manifest"))
    assert job.target.count_documents({}) == 0


@pytest.mark.long
def test_a_copy_of_a_ledger_deletes_no_stage_of_the_original(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dedup_job.spark.stage_files import Work

    records = [{"_id": n, "text": f"text number {n // 2} of a small source"} for n in range(40)]
    job.source.insert_many(records)
    make = Work.make

    def stopped(self: Work, name: str, *rest: Any) -> Any:
        if name == "pairs":
            raise KeyboardInterrupt
        return make(self, name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Work, "make", stopped)
        with pytest.raises(KeyboardInterrupt):
            on_spark(job)
    stages = {path.name for path in Path(job.tables["engine"]["work"]).iterdir()}
    assert any(name.startswith("records-") for name in stages)
    # A restored dump has another UUID.
    job.source.drop()
    job.source.insert_many(records)

    done = on_spark(job, consent=Consent(moved=True))

    assert done.counts.read == 40
    assert stages < {path.name for path in Path(job.tables["engine"]["work"]).iterdir()}


def flip(whole: bytes, place: int) -> bytes:
    return whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]


def with_wrong_value(whole: bytes) -> bytes:
    """Damage a Parquet file so that a reader without checksums reads another value."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(pa.BufferReader(whole))
    for place in range(len(whole)):
        with suppress(pa.ArrowException, OSError):
            if not parquet.read_table(pa.BufferReader(flip(whole, place))).equals(table):
                return flip(whole, place)
    raise AssertionError("every byte is checked")


@pytest.mark.long
@pytest.mark.parametrize(
    ("files", "has_crc_files", "place", "named"),
    [
        ("records-*/*.parquet", True, 0.5, "ChecksumException"),
        ("records-*/*.parquet", False, 0.08, r"\.thrift\..*Exception"),  # the head of a page
        ("records-*/*.parquet", False, 0.33, r"\.parquet\..*Exception"),  # the schema
        ("records-*/*.parquet", False, None, r"\.parquet\..*Exception"),  # a value
        ("records-*.manifest/part-*", True, 0.5, "ChecksumException"),
    ],
)
def test_a_damaged_file_of_a_stage_is_named_with_what_to_do(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    files: str,
    has_crc_files: bool,
    place: float | None,
    named: str,
) -> None:
    from dedup_job.spark.stage_files import Work

    job.source.insert_many([{"_id": n, "text": f"text number {n // 2} of a small source"} for n in range(40)])

    def killed(self: Work, name: str, *rest: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Work, "stage", killed)
        with pytest.raises(KeyboardInterrupt):
            on_spark(job)
    work = Path(job.tables["engine"]["work"])
    if not has_crc_files:
        # As on HDFS and S3, and after a copy of all files but hidden ones.
        for file in work.rglob(".*.crc"):
            file.unlink()
    for file in work.glob(files):
        whole = file.read_bytes()
        file.write_bytes(with_wrong_value(whole) if place is None else flip(whole, int(place * len(whole))))

    told = f"a file in file://{work} is damaged .*{named}.*; delete this folder and start again"
    with pytest.raises(StorageFull, match=told):
        on_spark(job)

    shutil.rmtree(work)
    assert on_spark(job).counts.read == 40


@pytest.mark.longest
def test_a_source_without_records_leaves_nothing(job: Job) -> None:
    job.database.create_collection("pages")
    assert on_spark(job).counts.read == 0
    assert on_spark(job).counts.read == 0


@pytest.mark.long
def test_a_guard_stops_it_before_anything_is_made_of_the_records(job: Job) -> None:
    job.source.insert_many([{"_id": number, "texts": "in another field"} for number in range(FIRST_RECORDS)])
    with pytest.raises(GuardStop, match="text is in texts"):
        on_spark(job)
    assert not job.ledger("plans").count_documents({})
    assert not list(Path(job.tables["engine"]["work"]).glob("texts-*"))


@pytest.mark.long
@pytest.mark.parametrize(
    "moment",
    ["", "stage begins", "stage is whole"],
    ids=["at the start", "in the first stage", "in the second stage"],
)
def test_a_killed_java_process_ends_the_run_and_the_next_one_goes_on(
    filled: Job, another_job: Callable[[], Job], moment: str
) -> None:
    other, work, said = another_job(), filled.folder / "work", filled.folder / "said"
    filled.set("engine", kind="spark", master="local[2]", work=str(work))
    command = [sys.executable, *PROGRAM, "backfill", "-c", str(filled.config_file())]
    with said.open("w") as log, subprocess.Popen(command, stderr=log, cwd=ROOT) as run:
        assert becomes(lambda: java_of(run.pid) and moment in said.read_text())
        os.kill(java_of(run.pid) or 0, signal.SIGKILL)
        assert run.wait(HANG_SECONDS) == StorageFull.exit_code, said.read_text()
    assert "Spark's Java process has ended" in said.read_text().splitlines()[-1]
    assert "Traceback" not in said.read_text()
    # Without a row if the run had not begun.
    codes = {row["exit_code"] for row in filled.ledger("runs").find()}
    assert codes == ({StorageFull.exit_code} if moment else set())

    assert on_spark(filled, work=work).counts == other.decide("backfill").counts
    assert filled.outcome() == other.outcome()


@pytest.mark.long
def test_a_killed_python_worker_ends_the_backfill_with_74_and_the_next_one_goes_on(
    filled: Job, another_job: Callable[[], Job]
) -> None:
    other, work, said = another_job(), filled.folder / "work", filled.folder / "said"
    filled.set("engine", kind="spark", master="local[2]", work=str(work))
    command = [sys.executable, *PROGRAM, "backfill", "-c", str(filled.config_file())]
    with said.open("w") as log, subprocess.Popen(command, stderr=log, cwd=ROOT) as run:
        while run.poll() is None:
            for worker in python_workers_of(run.pid):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            time.sleep(0.05)
    assert run.returncode == StorageFull.exit_code, said.read_text()
    # Java, which still runs, may write a line after it.
    ours = [line for line in said.read_text().splitlines() if " dedup-job: " in line]
    assert "a Python process of Spark was ended from outside" in ours[-1]

    assert on_spark(filled, work=work).counts == other.decide("backfill").counts
    assert filled.outcome() == other.outcome()


def python_workers_of(run: int) -> list[int]:
    """Return the ids of the Python workers of a run's Spark: the children of its `pyspark.daemon`."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat, line = (folder / "stat").read_text(), (folder / "cmdline").read_text()
            if "pyspark.daemon" in line:
                parents[int(folder.name)] = int(stat.rsplit(") ", 1)[1].split()[1])
    java = java_of(run)
    return [worker for worker, parent in parents.items() if java and parents.get(parent) == java]


def java_of(parent: int) -> int | None:
    """Return the id of the Java process that a process has started, once it has become Java."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, rest = (folder / "stat").read_text().rsplit(") ", 1)
            if int(rest.split()[1]) == parent and name.endswith("(java"):
                return int(folder.name)
    return None


@pytest.mark.long
def test_groups_of_two_types_stop_it_or_get_a_warning_in_a_few_records(job: Job) -> None:
    job.set("match", within=["site"])
    records = [{"_id": number, "text": f"文章 {number}", "site": "a"} for number in range(FIRST_RECORDS)]
    records[-1]["site"] = 3
    job.source.insert_many(records)
    told = r"\[match\] within: site has values of several types .*\(text 999, number 1\)"
    with pytest.raises(GuardStop, match=told):
        on_spark(job)

    shutil.rmtree(job.tables["engine"]["work"])
    job.source.delete_one({"_id": 0})
    assert ["(text 998, number 1)" in warning for warning in on_spark(job).warnings] == [True]


@pytest.mark.long
def test_what_a_nightly_run_has_decided_ends_it_before_anything_is_made(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dedup_job.spark.stage_files import Work

    job.set("source", fields=["data"])
    job.source.insert_many(chained())

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Work, "stage", killed)  # behind the first one
        with pytest.raises(KeyboardInterrupt):
            on_spark(job)
    job.decide("run")

    with pytest.raises(ConfigError, match="decisions of an adoption or of nightly runs"):
        on_spark(job)
    assert not list(Path(job.tables["engine"]["work"]).glob("texts-*"))


def test_without_java_it_is_said_what_to_install(job: Job) -> None:
    job.source.insert_one({"text": "one"})
    job.set("engine", kind="spark", work=str(job.folder))
    environment = {"PATH": str(job.folder), "JAVA_HOME": ""}
    ended = job.command("backfill", environment=environment)
    assert ended.returncode == ConfigError.exit_code
    assert "install a Java runtime" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("export SPARK_LOCAL_DIRS=/proc/none", "can this user write to its folder for temporary files"),
        ("ulimit -v 2048000", "Spark's Java process has ended"),
    ],
)
def test_a_spark_that_cannot_start_here_ends_with_74(job: Job, limits: str, says: str) -> None:
    job.source.insert_one({"text": "one"})
    job.set("engine", kind="spark", master="local[2]", work=str(job.folder))
    shell = ("bash", "-c", f'{limits}; exec "$0" "$@"', sys.executable, *PROGRAM)
    command = [*shell, "backfill", "-c", str(job.config_file())]

    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=job.folder)

    assert (ended.returncode, says in ended.stderr.splitlines()[-1]) == (74, True), ended.stderr


@pytest.mark.longest
def test_crowded_keys_matches_in_rounds_and_many_files_leave_the_same(
    job: Job, another_job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dedup_job.spark import candidates, decision_stages, stage_files

    job.set("source", fields=["data"])
    job.source.insert_many([*odd(), *crowded(1_000)])
    other, found = another_job(), []
    crowded_keys = candidates._crowded

    def noted(*of: Any) -> Any:
        found.append(crowded_keys(*of))
        return found[-1]

    monkeypatch.setattr(candidates, "_crowded", noted)
    monkeypatch.setattr(decision_stages, "CROWD", 100)
    monkeypatch.setattr(decision_stages, "CROWDS", 1 << 30)
    monkeypatch.setattr(decision_stages, "FEW_EDGES", 10)
    monkeypatch.setattr(stage_files, "ROWS_A_FILE", 30)
    assert on_spark(other).counts == job.decide("backfill").counts
    assert max(found[0].parts) > 5
    assert other.outcome() == job.outcome()


@pytest.mark.long
def test_rounds_settle_what_one_machine_settles(spark: Any, tmp_path: Path) -> None:
    from dedup_job.spark.decision_stages import dropped, dropped_in_rounds

    rng = np.random.default_rng(5)
    later = rng.integers(1, 300, 400)
    earlier = (rng.random(400) * later).astype(np.int64)
    table = spark.createDataFrame(np.stack([later, earlier], axis=1).tolist(), "later bigint, earlier bigint")
    found = sorted(row.text for row in dropped_in_rounds(table, 0, str(tmp_path)).collect())
    assert found == dropped(later, earlier).tolist()


@pytest.mark.longest
def test_a_process_that_is_paused_while_it_fetches_a_result_goes_on(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 15 seconds Java usually waits no longer, and the process would wait for ever."""
    from pyspark import util

    job.source.insert_many([{"_id": n, "text": f"text number {n // 2} of a small source"} for n in range(40)])
    connect, pauses = util.local_connect_and_auth, [17.0]

    def paused(*of: Any) -> Any:
        if pauses:
            time.sleep(pauses.pop())
        return connect(*of)

    monkeypatch.setattr(util, "local_connect_and_auth", paused)
    assert on_spark(job).counts.read == 40
    assert not pauses
    assert job.differences() == {}


@pytest.mark.long
def test_a_master_that_is_not_there_is_named(job: Job) -> None:
    job.source.insert_one({"_id": 1, "text": "one text"})

    job.set("engine", work=str(job.folder))
    done = job.command("backfill", "--engine", "spark", "--set", "engine.master=sparkk://nowhere")

    assert done.returncode == 69, done.stderr
    assert "Spark does not start on sparkk://nowhere" in done.stderr
