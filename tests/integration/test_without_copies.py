"""With `[target] copy = false` decisions are the same, and nothing is copied."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dedup_job import config
from dedup_job.errors import ConfigError
from dedup_job.pipeline.command_context import Context
from tests.support.job import Job
from tests.support.made_up_records import made_up_records, number_records


def rows(job: Job) -> tuple[dict[Any, Any], dict[Any, Any]]:
    return job.rows("dropped"), job.rows("exceptions")


def source_hash(job: Job) -> str:
    digest: str = job.database.command("dbHash", collections=["pages"])["md5"]
    return digest


def answer(job: Job, *arguments: str, code: int = 0) -> Any:
    done = job.command(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def bare(job: Job) -> Job:
    """Return a job without copies, over made-up records with duplicates and odd records."""
    job.set("source", fields=["data"])
    job.source.insert_many(number_records(made_up_records()[:400]))
    return job.without_copies()


def test_a_backfill_decides_as_with_copies_and_writes_nothing_but_its_ledger(job: Job, bare: Job) -> None:
    job.decide("backfill")
    before = source_hash(job)

    counts = bare.decide("backfill").counts

    assert counts.duplicate > 50
    assert bare.plans() == job.plans()
    assert rows(bare) == rows(job)
    assert source_hash(job) == before
    names = set(bare.database.list_collection_names()) - {"pages", "unique"}
    assert {name.partition(".dedup.")[0] for name in names} == {"pages", "unique"}


def test_nightly_runs_decide_as_with_copies(job: Job, bare: Job) -> None:
    late = number_records(made_up_records()[350:], 2000)
    for one in (job, bare):
        one.decide("backfill")
    job.source.insert_many(late)
    for one in (job, bare):
        assert one.decide("run").counts.read == 100
        assert one.decide("run").counts.read == 0

    assert bare.plans() == job.plans()
    assert rows(bare) == rows(job)


def test_the_ledger_may_be_in_another_database(bare: Job) -> None:
    elsewhere = f"{bare.database.name}_state"
    bare.tables["target"] = {"copy": False, "database": elsewhere, "collection": "shop"}

    bare.decide("backfill")

    try:
        client = bare.database.client
        assert bare.database.list_collection_names() == ["pages"]
        assert client[elsewhere]["shop.dedup.dropped"].count_documents({}) > 50
        assert "shop" not in client[elsewhere].list_collection_names()
    finally:
        bare.database.client.drop_database(elsewhere)


def test_nothing_is_dropped_for_a_keeper_that_was_deleted_or_changed(bare: Job) -> None:
    bare.decide("backfill")
    row = bare.ledger("dropped").find_one({"reason": "exact"})
    assert row is not None
    text = bare.source.find_one({"_id": row["keeper"]})["data"]
    bare.source.delete_one({"_id": row["keeper"]})
    bare.source.insert_one({"_id": 3000, "data": text})

    assert bare.decide("run").counts.unique == 1


def test_verify_finds_no_difference_and_then_a_missing_keeper(bare: Job) -> None:
    bare.decide("backfill")
    assert answer(bare, "verify")["differences"] == {}
    assert answer(bare, "verify", "--sample", "100")["differences"] == {}
    row = bare.ledger("dropped").find_one()
    assert row is not None
    # Edits of other fields are the owner's business.
    bare.source.update_one({"_id": row["keeper"]}, {"$set": {"views": 7}})
    assert answer(bare, "verify")["differences"] == {}
    bare.source.update_one(
        {"_id": row["keeper"]}, {"$set": {"data": "完全不同的另一段文字，谁也没有见过它。"}}
    )

    found = answer(bare, "verify", code=65)["differences"]

    assert list(found) == ["keeper_altered"]
    bare.source.delete_one({"_id": row["keeper"]})
    found = answer(bare, "verify", code=65)["differences"]
    assert list(found) == ["keeper_missing"]


def test_edits_and_deletions_are_brought_into_the_ledger(bare: Job) -> None:
    bare.decide("backfill")
    row = bare.ledger("dropped").find_one({"reason": "exact"})
    assert row is not None
    keeper, dropped = row["keeper"], row["_id"]
    bare.source.update_one({"_id": keeper}, {"$set": {"data": "完全不同的另一段文字，谁也没有见过它。"}})
    bare.source.update_one({"_id": 7}, {"$set": {"views": -1}})
    before = source_hash(bare)
    preview = bare.command("sync", "--dry-run").stdout
    assert "sync would bring the decisions on" in preview
    assert "target" not in preview

    done = bare.command("sync", "--yes", "--json")

    assert done.returncode == 0, done.stderr
    assert bare.ledger("dropped").find_one({"_id": dropped}, {"keeper": 1}) != {
        "_id": dropped,
        "keeper": keeper,
    }
    assert answer(bare, "verify")["differences"] == {}
    assert source_hash(bare) == before
    fresh = bare.command("sync", "--dry-run", "--json")
    assert fresh.returncode == 0


def test_a_run_is_undone_and_its_decisions_come_again(bare: Job) -> None:
    run = bare.decide("backfill").run
    first = rows(bare)
    before = source_hash(bare)

    assert "target" not in bare.command("undo", run, "--dry-run").stdout
    undone = bare.command("undo", run, "--yes")
    assert (undone.returncode, "target" in undone.stdout) == (0, False)

    assert rows(bare) == ({}, {})
    assert source_hash(bare) == before
    bare.decide("backfill")
    assert rows(bare) == first


def test_a_restored_record_is_no_duplicate_any_more(bare: Job) -> None:
    bare.decide("backfill")
    row = bare.ledger("dropped").find_one()
    assert row is not None

    restored = bare.command("restore", str(row["_id"]))
    assert (restored.returncode, restored.stdout) == (0, f"{row['_id']} is no longer dropped\n")

    assert bare.ledger("dropped").find_one({"_id": row["_id"]}) is None
    assert answer(bare, "why", str(row["_id"]))["verdict"] == "restored"
    assert answer(bare, "status")["in_target"] is None
    assert answer(bare, "verify")["differences"] == {}
    assert bare.decide("run").counts.read == 0


def test_looking_commands_work_without_a_target(bare: Job) -> None:
    preview = answer(bare, "report")
    bare.decide("backfill")
    row = bare.ledger("dropped").find_one({"reason": "near"}) or bare.ledger("dropped").find_one()
    assert row is not None

    assert preview["duplicate"] == answer(bare, "status")["duplicate"]
    assert answer(bare, "why", str(row["_id"]))["keeper"] == row["keeper"]
    assert bare.command("group", str(row["keeper"])).returncode == 0
    assert bare.command("list", "--csv").stdout.count("\n") == len(bare.rows("dropped")) + 1


@pytest.mark.parametrize("option", ["--adopt", "--copy-indexes"])
def test_options_that_need_a_target_are_refused(bare: Job, option: str) -> None:
    done = bare.command("backfill", option)

    assert done.returncode == 64
    assert f"{option} needs a target" in done.stderr


def test_a_ledger_with_copies_is_not_continued_without_them(job: Job, bare: Job) -> None:
    job.decide("backfill")
    job.tables["target"]["copy"] = False

    with pytest.raises(ConfigError, match=r"\[target\] copy: the ledger was made with copies"):
        job.decide("run")


def test_the_source_is_its_own_target_only_without_copies(bare: Job) -> None:
    settings = config.check_settings(bare.tables, "test")
    with Context(settings) as context:
        assert context.target_name == context.source_name == f"{bare.database.name}.pages"
