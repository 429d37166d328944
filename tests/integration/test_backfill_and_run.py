"""Backfill, nightly run and report on a real server."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from bson import ObjectId

from dedup_job import config
from dedup_job.commands.backfill_and_run import decide
from dedup_job.pipeline.command_context import Context
from dedup_job.records import Counts
from scripts.bench.corpus import generate, samples
from tests.support.job import PROGRAM, RAW, ROOT, Job


def load(job: Job, count: int, seed: int = 1) -> None:
    records = list(generate(count, seed))
    job.set("source", fields=["data"])
    job.source.insert_many(records)


def test_every_record_is_decided_once_and_the_unique_ones_arrive_byte_for_byte(job: Job) -> None:
    load(job, 600)

    report = job.decide("backfill")

    counts = report.counts
    assert counts.read == 600
    assert counts.read == counts.unique + counts.duplicate + sum(counts.unchecked.values())
    assert counts.duplicate > 100
    source = {document["_id"]: document.raw for document in job.source.with_options(RAW).find()}
    target = {document["_id"]: document.raw for document in job.target.with_options(RAW).find()}
    assert all(source[key] == raw for key, raw in target.items())
    assert len(target) == counts.unique + sum(counts.unchecked.values())
    dropped = list(job.ledger("dropped").find())
    assert {row["_id"] for row in dropped} == source.keys() - target.keys()
    assert all(row["keeper"] in target for row in dropped)


def test_planted_copies_are_found_and_templates_are_not_dropped(job: Job) -> None:
    planted = list(samples(800, seed=2))
    job.set("source", fields=["data"])
    job.source.insert_many([sample.record for sample in planted])

    job.decide("backfill")

    dropped = {row["_id"]: row for row in job.ledger("dropped").find()}
    kinds = {sample.record["_id"]: sample.kind for sample in planted}
    exact = [key for key, kind in kinds.items() if kind == "exact"]
    assert all(key in dropped for key in exact)
    assert [kinds[key] for key in dropped if kinds[key] in ("template", "odd", "original")] == []


def test_a_second_backfill_and_a_run_find_nothing_new(job: Job) -> None:
    load(job, 120)
    job.decide("backfill")
    before = job.outcome()

    assert job.decide("backfill").counts.read == 0
    assert job.decide("run").counts.read == 0
    assert job.outcome() == before


@pytest.mark.parametrize("ids", ["ObjectId", "str"])
def test_a_nightly_run_decides_just_what_is_new_against_everything_before(job: Job, ids: str) -> None:
    old = [
        f"第{number}号仓库在清晨收到一批来自海港的货物，编号{number * 7919}，其中包括茶叶、瓷器和丝绸。"
        for number in range(60)
    ]
    make: Callable[[int], Any] = (
        (lambda n: ObjectId()) if ids == "ObjectId" else (lambda n: f"k{n * 37 % 1000:04}")
    )
    job.source.insert_many([{"_id": make(n), "text": text} for n, text in enumerate(old)])
    job.decide("backfill")
    new = [{"_id": make(100 + n), "text": old[n]} for n in range(20)]
    new += [
        {
            "_id": make(200 + n),
            "text": f"昨夜的第{n}场雨让山谷里的溪水涨了起来，{n}位旅人被困在桥边的旧磨坊。",
        }
        for n in range(5)
    ]
    job.source.insert_many(new)

    counts = job.decide("run").counts

    assert (counts.read, counts.exact) == (25, 20)
    dropped = {row["_id"]: row for row in job.ledger("dropped").find({"reason": "exact"})}
    assert {record["_id"] for record in new[:20]} <= dropped.keys()
    assert job.decide("run").counts.read == 0
    assert job.decide("backfill").counts.read == 0


def test_a_late_object_id_within_the_lookback_is_decided_by_the_next_run(job: Job) -> None:
    late = ObjectId()
    job.source.insert_many(
        [{"text": f"一篇讲述{place}的长文章，作者在当地住了很多年，熟悉每一条街道。"} for place in "京沪津渝"]
    )
    job.decide("backfill")
    job.source.insert_one({"_id": late, "text": "迟到的记录也应该被看见，因为标识的时间早于其他记录。"})

    assert job.decide("run").counts.unique == 1
    assert job.target.find_one({"_id": late})


def test_ids_far_behind_the_lookback_are_noticed_by_their_number(job: Job) -> None:
    job.source.insert_many(
        [{"text": f"记录之{number}，讲述一座城市在第{number}个冬天里的故事。"} for number in range(9)]
    )
    job.decide("backfill")
    job.source.insert_one(
        {"_id": ObjectId("0" * 24), "text": "一条标识极早的记录，由一台时钟停在过去的机器写入。"}
    )

    assert job.decide("run").counts.unique == 1
    assert job.decide("run").counts.read == 0


def test_records_behind_an_unfinished_backfill_are_finished_by_a_run(job: Job) -> None:
    load(job, 100)

    assert job.decide("run").counts.read == 100
    assert job.decide("backfill").counts.read == 0


@pytest.mark.long
def test_workers_batches_and_hash_seeds_do_not_change_a_decision(
    job: Job, another_job: Callable[[], Job]
) -> None:
    load(job, 400)
    settings = [
        ("1", "0", 1000),
        ("2", "0", 30),
        ("2", "1", 7),
        ("1", "random", 111),
    ]
    outcomes = []
    for workers, seed, records in settings:
        other = another_job()
        other.set("limits", batch_records=records)
        options = {"environment": {"PYTHONHASHSEED": seed}, "program": PROGRAM}
        done = other.command("backfill", "--workers", workers, **options)
        assert done.returncode == 0, done.stderr
        outcomes.append(other.outcome())

    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_older_keepers_are_fetched_for_comparison_when_the_cache_is_small(
    job: Job, another_job: Callable[[], Job]
) -> None:
    load(job, 400)
    job.decide("backfill")
    small = another_job()
    settings = small.tables
    checked = config.check_settings(settings, "test")
    tiny = checked.match.model_copy(update={"cache_mb": 0})
    with Context(checked.model_copy(update={"match": tiny})) as context:
        decide(context, "backfill", lambda plan: None)

    assert small.outcome() == job.outcome()


def test_a_filter_leaves_other_records_alone(job: Job) -> None:
    job.source.insert_many([{"_id": n, "lang": "zh" if n % 2 else "en", "text": f"t{n}"} for n in range(10)])
    job.set("source", filter='{"lang": "zh"}')

    assert job.decide("backfill").counts.read == 5
    assert {document["lang"] for document in job.target.find()} == {"zh"}


def test_several_fields_are_joined_in_order(job: Job) -> None:
    job.set("source", fields=["title", "body.text"])
    job.source.insert_many(
        [
            {"_id": 1, "title": "甲", "body": {"text": "乙"}},
            {"_id": 2, "title": "乙", "body": {"text": "甲"}},
            {"_id": 3, "title": "甲", "body": {"text": "<p>乙</p>"}},
        ]
    )

    job.decide("backfill")

    assert [(row["_id"], row["keeper"]) for row in job.ledger("dropped").find()] == [(3, 1)]


def test_json_output_is_one_object_whose_counts_add_up(job: Job) -> None:
    load(job, 150)

    done = job.command("backfill", "--json")

    values = json.loads(done.stdout)
    assert done.returncode == 0
    assert values["read"] == 150
    assert values["read"] == values["unique"] + sum(values["duplicate"].values()) + sum(
        values["unchecked"].values()
    ) + sum(values["refused"].values())
    assert set(values) == {
        "run", "mode", "read", "unique", "duplicate", "unchecked", "refused",
        "seconds", "docs_per_second", "peak_rss_mb", "recipe", "index", "numbers", "exit_code",
    }  # fmt: skip


def test_the_runs_collection_remembers_each_run(job: Job) -> None:
    load(job, 60)
    report = job.decide("backfill")

    row = job.ledger("runs").find_one({"_id": report.run})

    assert row is not None
    assert (row["mode"], row["exit_code"], row["read"]) == ("backfill", 0, 60)
    assert row["started"] <= row["ended"]


def test_fit_idf_learns_a_table_that_a_backfill_then_uses(job: Job) -> None:
    load(job, 200)
    output = job.folder / "idf.txt"
    done = job.command("fit-idf", "--output", str(output), "--json")
    assert done.returncode == 0, done.stderr
    learned = json.loads(done.stdout)
    assert learned["texts"] > 150
    assert learned["terms"] > 100

    job.set("recipe", idf_table=str(output))
    assert job.decide("backfill").counts.read == 200
    head = job.ledger("head").find_one()
    assert head is not None
    assert head["recipe"]["idf_table"] == learned["sha256"]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["", "?!"], "has no text with a term; check [source] fields and filter"),
        (["灯塔在海岸边上"], "lower --min-df"),
    ],
)
def test_fit_idf_says_why_no_term_is_left(job: Job, texts: list[str], told: str) -> None:
    job.source.insert_many({"_id": number, "text": text} for number, text in enumerate(texts))
    output = job.folder / "idf.txt"
    done = job.command("fit-idf", "--output", str(output), "--min-df", "2")
    assert (done.returncode, told in done.stderr, output.exists()) == (78, True, False)


def test_fit_idf_writes_only_to_a_folder_that_exists(job: Job) -> None:
    job.source.insert_one({"_id": 1, "text": "灯塔在海岸边上"})
    done = job.command("fit-idf", "--output", str(job.folder / "no" / "idf.txt"))
    assert (done.returncode, (job.folder / "no").exists()) == (64, False)
    assert "No such file or directory; name a file in a folder that exists" in done.stderr


@pytest.mark.parametrize("element", ["noscript", "template"])
def test_records_that_differ_where_no_reader_sees_it_are_kept_and_named(job: Job, element: str) -> None:
    job.set("source", fields=["data"])
    hidden = [
        "今天的港口停着三艘货船，工人们把茶叶搬到岸上。",
        "图书馆的旧书库存着两万册地方志，开始逐页扫描。",
    ]
    pages = [f"<html><body><p>首页</p><{element}><p>{text}</p></{element}></body></html>" for text in hidden]
    job.source.insert_many([{"_id": n, "data": page} for n, page in enumerate([*pages, "<p>首页</p>"])])

    report = job.decide("backfill")

    assert report.counts == Counts(unique=1, unchecked={"hidden": 2})
    assert "hidden 2" in report.as_text()
    assert job.target.count_documents({}) == 3
    assert {row["_id"]: row["reason"] for row in job.ledger("exceptions").find()} == {
        0: "hidden",
        1: "hidden",
    }


class Lines(logging.Handler):
    """Collects the debug messages of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.DEBUG:
            self.messages.append(record.getMessage())


def test_each_step_of_a_run_is_logged_for_those_who_ask(
    job: Job, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Lines()
    # Other tests in this process may have left handlers behind.
    monkeypatch.setattr(logging.getLogger("dedup_job"), "handlers", [lines])
    caplog.set_level("DEBUG", "dedup_job")
    texts = ["清晨的港口停着三艘货船。", *(f"{number} 号磨坊的面粉" * 5 for number in range(100, 900, 100))]
    job.source.insert_many([{"_id": number, "text": text} for number, text in enumerate(texts)])
    job.decide("backfill")
    job.target.delete_one({"_id": 0})
    job.source.insert_one({"_id": 10, "text": texts[0]})
    lines.messages.clear()
    job.decide("run")
    plan = ["plan accepted", "plan applied", "plan committed"]
    assert lines.messages == ["lease taken", "keepers missing", *plan, "lease given back"]


def test_the_documented_program_for_spark_submit_also_decides_with_local_workers(job: Job) -> None:
    (line,) = re.findall(
        r"^printf .*submit\.py$", (ROOT / "docs/how-to/use-spark.md").read_text("utf-8"), re.M
    )
    subprocess.run(["sh", "-c", line], cwd=job.folder, check=True)
    job.source.insert_one({"_id": 1, "text": "one text"})

    command = [sys.executable, "submit.py", "backfill", "-c", str(job.config_file())]
    done = subprocess.run(command, cwd=job.folder, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert job.target.count_documents({}) == 1
