"""`compare` and `why` on a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId, json_util
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from pymongo import MongoClient

from dedup_job import config
from dedup_job.commands.compare import compare
from dedup_job.commands.why import why
from dedup_job.errors import ConfigError, UsageError
from dedup_job.pipeline.command_context import Context
from scripts.bench.corpus import samples
from scripts.dev.local_mongod import LocalMongod
from tests.support.job import Job

LONG = "清晨的码头上，工人们把一箱箱茶叶搬上货船，船长站在甲板上数着数目，海鸥在桅杆之间盘旋。" * 4
NEAR = LONG.replace("海鸥", "鸽子", 1)
OTHER = "山谷里的小学今年只剩下十二名学生，老师每天走七里山路，从不缺席，冬天也带着一篮柴火。" * 4


def explained(job: Job, first: str, second: str) -> dict[str, Any]:
    with Context(
        config.with_values(config.check_settings(job.tables, "test"), "engine", workers=1)
    ) as context:
        return compare(context, first, second)


def answered(job: Job, given: str) -> dict[str, Any]:
    with job.context() as context:
        return why(context, given)


def test_an_explanation_agrees_with_what_the_job_decided(job: Job) -> None:
    job.set("source", fields=["data"])
    planted = list(samples(300, seed=2))
    job.source.insert_many([sample.record for sample in planted])
    job.decide("backfill")
    for reason in ("exact", "near"):
        row = job.ledger("dropped").find_one({"reason": reason})
        assert row is not None
        shown = explained(job, str(row["keeper"]), str(row["_id"]))

        assert (shown["verdict"], shown["reason"]) == ("duplicate", row["reason"])
        if row["reason"] == "near":
            assert shown["similarity"] == row["similarity"]
            assert row["distance"] in (None, shown["distance"])


@pytest.mark.long
def test_the_command_says_it_in_lines_that_fit_and_writes_nothing(job: Job) -> None:
    job.source.insert_many([{"_id": 1, "text": LONG}, {"_id": 2, "text": NEAR}])
    job.decide("backfill")
    before = job.hash()

    done = job.command("compare", "1", "2")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("near duplicate: ")
    assert "the texts differ in 1 place: " in done.stdout
    assert "[-海鸥-]{+鸽子+}" in done.stdout
    told = json.loads(job.command("compare", "1", "2", "--json").stdout)
    assert told["decided_by"] == ["radius", "bands", "min_similarity"]
    assert told["shared_keys"]["segments"]
    assert told["shared_keys"]["bands"]
    assert job.hash() == before


def test_another_recipe_than_the_ledgers_is_refused(job: Job) -> None:
    job.source.insert_many([{"_id": 1, "text": LONG}, {"_id": 2, "text": OTHER}])
    job.decide("backfill")
    job.set("match", bands=10)

    with pytest.raises(ConfigError, match="recipe"):
        explained(job, "1", "2")


@pytest.mark.long
def test_by_another_settings_file_it_tells_how_it_would_be(job: Job, tmp_path: Path) -> None:
    job.source.insert_many([{"_id": 1, "text": LONG, "title": "a"}, {"_id": 2, "text": NEAR, "title": "b"}])
    job.decide("backfill")
    ours = job.config_file()
    other = tmp_path / "other.toml"
    as_it_is = ours.read_text("utf-8")

    def told(text: str) -> str:
        other.write_text(text, "utf-8")
        done = job.command("compare", "1", "2", "--settings", str(other))
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split("\n\n")[0].split())

    same = told(as_it_is)
    stricter = told(as_it_is + "[match]\nmin_similarity = 0.99\n")
    titles = told(as_it_is.replace('["text"]', '["title"]'))

    assert same.startswith("near duplicate: ")
    assert same.endswith(f" by the settings of {other}; which decide as the ledger's recipe does")
    assert "at least 0.99 is needed" in stricter
    assert "which decide differently from the ledger's recipe" in stricter
    assert titles.startswith("no match: ")
    shown = json.loads(job.command("compare", "1", "2", "--json").stdout)
    assert shown["compared_by"]["ledger_recipe"] == shown["recipe"]
    assert (shown["compared_by"]["settings"], shown["differences"]["places"]) == (None, 1)
    done = job.command("compare", "1", "2", "--settings", str(tmp_path / "none.toml"))
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)


@pytest.mark.parametrize(
    "value",
    [
        ObjectId("65920080000000000100002a"),
        "65920080000000000100002a",
        42,
        Int64(42),
        4.5,
        "42",
        "a text",
        "",
        True,
        None,
        {"a": 1, "b": "x"},
        json_util.loads('{"$uuid": "12345678123456781234567812345678"}'),
        json_util.loads('{"$date": "2020-01-01T00:00:00Z"}'),
        DatetimeMS(-99999999999999),
        json_util.loads('{"$minKey": 1}'),
    ],
    ids=repr,
)
def test_an_id_that_is_shown_is_found_again(job: Job, value: Any) -> None:
    job.source.insert_many([{"_id": value, "text": LONG}])
    given = json_util.dumps(value)

    shown = answered(job, given)

    assert shown["verdict"] == "undecided"
    assert answered(job, json.dumps(shown["id"]))["id"] == shown["id"]


def test_a_bare_id_means_what_exists_and_a_number_before_a_text(job: Job) -> None:
    job.source.insert_many([{"_id": name, "text": LONG} for name in ("42", "65920080000000000100002a", "{")])
    assert [answered(job, given)["id"] for given in ("42", "65920080000000000100002a", "{")] == [
        "42",
        "65920080000000000100002a",
        "{",
    ]

    job.source.insert_one({"_id": 42, "text": LONG})
    job.source.insert_one({"_id": ObjectId("65920080000000000100002a"), "text": LONG})
    assert answered(job, "42")["id"] == 42
    assert answered(job, '"42"')["id"] == "42"
    assert answered(job, "65920080000000000100002a")["id"] == {"$oid": "65920080000000000100002a"}


@pytest.mark.parametrize(
    "given", ["43", "nobody", '{"$oid": "zz"}', '{"$regex": "^a"}', '{"$gt": ""}', "[1]", "9" * 30, "\udcff"]
)
def test_an_unknown_id_is_a_usage_error(job: Job, given: str) -> None:
    job.source.insert_many([{"_id": "a", "text": LONG}, {"_id": "b", "text": OTHER}])
    for _ in range(2):
        with pytest.raises(UsageError, match="has the id"):
            answered(job, given)
        job.decide("backfill")


def test_an_unknown_id_and_one_id_twice_end_with_one_line_and_code_64(job: Job) -> None:
    job.source.insert_one({"_id": "a", "text": LONG})
    for arguments in (("why", "nobody"), ("compare", "a", "nobody"), ("compare", "a", "a"), ("compare", "a")):
        done = job.command(*arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1), done.stderr


def test_a_record_that_is_only_in_the_target_is_explained_too(job: Job) -> None:
    job.source.insert_many([{"_id": 1, "text": LONG}, {"_id": 2, "text": NEAR}])
    job.decide("backfill")
    job.source.delete_one({"_id": 1})

    shown = explained(job, "1", "2")

    assert [record["place"] for record in shown["records"]] == ["target", "source"]
    assert shown["verdict"] == "duplicate"


def test_a_record_without_text_is_compared_by_its_reason(job: Job) -> None:
    job.source.insert_many([{"_id": 1, "text": LONG}, {"_id": 2}])

    shown = explained(job, "1", "2")

    assert (shown["verdict"], shown["reason"]) == ("unchecked", "missing")
    assert job.command("compare", "2", "1").stdout.startswith(
        "no match: the first cannot be judged (missing)"
    )


def test_why_answers_for_every_verdict(job: Job) -> None:
    job.source.insert_many(
        [
            {"_id": 1, "text": LONG},
            {"_id": 2, "text": LONG},
            {"_id": 3, "text": NEAR},
            {"_id": 4, "text": 5},
            {"_id": 5, "text": OTHER},
        ]
    )
    job.database.create_collection("unique", validator={"_id": {"$ne": 5}})
    run = job.decide("backfill").run
    job.source.insert_one({"_id": 6, "text": OTHER})

    answers = {number: answered(job, str(number)) for number in range(1, 7)}

    assert {number: answer["verdict"] for number, answer in answers.items()} == {
        1: "unique",
        2: "duplicate",
        3: "duplicate",
        4: "unchecked",
        5: "refused",
        6: "undecided",
    }
    assert {answers[number]["run"] for number in range(1, 6)} == {run}
    assert all(answers[number]["at"].startswith("20") for number in range(1, 6))
    assert (answers[1]["plan"], answers[1]["mode"]) == (0, "backfill")
    assert [answers[2][key] for key in ("keeper", "keeper_in_target", "reason")] == [1, True, "exact"]
    assert [answers[3][key] for key in ("keeper", "reason")] == [1, "near"]
    assert answers[3]["similarity"] == explained(job, "1", "3")["similarity"]
    assert [answers[4][key] for key in ("reason", "stage")] == ["not_text:number", "fingerprint"]
    assert [answers[5][key] for key in ("reason", "stage")] == ["validator", "target"]
    assert [answers[number]["in_target"] for number in range(1, 7)] == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    assert all(answer["in_source"] for answer in answers.values())


def test_why_names_the_plan_that_kept_a_record(job: Job) -> None:
    job.set("limits", batch_records=2)
    job.source.insert_many([{"_id": number, "text": f"{number}{OTHER}"} for number in (1, 2)])
    job.source.insert_many([{"_id": number, "text": f"{number}{LONG}"} for number in (3, 4)])
    job.decide("backfill")

    assert [answered(job, given)["plan"] for given in ("1", "3")] == [0, 1]


def test_why_notices_a_keeper_that_is_gone_whatever_its_type(job: Job) -> None:
    keeper = {"keeper": "_id"}
    job.source.insert_many([{"_id": keeper, "text": LONG}, {"_id": {"z": "1"}, "text": LONG}])
    job.decide("backfill")
    assert answered(job, '{"z": "1"}')["keeper_in_target"] is True

    job.target.delete_one({"_id": keeper})
    answer = answered(job, '{"z": "1"}')
    assert (answer["keeper"], answer["keeper_in_target"]) == (keeper, False)


def test_why_remembers_records_that_are_deleted_everywhere(job: Job) -> None:
    job.source.insert_many([{"_id": Int64(1), "text": LONG}, {"_id": Int64(2), "text": LONG}])
    job.decide("backfill")
    job.source.delete_many({})
    job.target.delete_many({})

    assert answered(job, "2")["verdict"] == "duplicate"
    kept = answered(job, '{"$numberLong": "1"}')
    assert (kept["verdict"], kept["in_source"], kept["in_target"]) == ("unique", False, False)


def test_why_names_the_filter_that_may_leave_a_record_out(job: Job) -> None:
    job.set("source", filter='{"lang": "zh"}')
    job.source.insert_one({"_id": 1, "text": LONG, "lang": "en"})
    job.decide("backfill")

    assert answered(job, "1")["filter"] == '{"lang": "zh"}'
    done = job.command("why", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "1: not decided yet"
    assert json.loads(job.command("why", "1", "--json").stdout)["verdict"] == "undecided"


@pytest.mark.longest
def test_both_commands_work_for_a_user_who_may_only_read(tmp_path: Path) -> None:
    with LocalMongod(auth=True) as server, MongoClient[dict[str, Any]](server.uri) as root:
        root.src.pages.insert_many([{"_id": 1, "text": LONG}, {"_id": 2, "text": NEAR}])
        path = tmp_path / "job.toml"
        path.write_text(
            '[source]\ndatabase = "src"\ncollection = "pages"\nfields = ["text"]\n'
            '[target]\ndatabase = "dst"\ncollection = "unique"\n[engine]\nworkers = 1\n'
        )
        roles = [{"role": "read", "db": "src"}, {"role": "read", "db": "dst"}]
        root.admin.command("createUser", "reader", pwd="canary", roles=roles)
        reader = server.uri_as("reader", "canary")

        def told(uri: str, *arguments: str) -> str:
            done = subprocess.run(
                [sys.executable, "-m", "dedup_job", *arguments, "-c", str(path)],
                capture_output=True, text=True, env={**os.environ, "DEDUP_SOURCE_URI": uri}, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert told(reader, "why", "1").startswith("1: not decided yet")
        told(server.uri, "backfill")
        assert told(reader, "why", "1").startswith("1: unique")
        assert told(reader, "why", "2").startswith("2: duplicate")
        assert told(reader, "compare", "1", "2").startswith("near duplicate: ")
