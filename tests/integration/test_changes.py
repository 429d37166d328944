"""`changes` counts new, missed, changed and vanished records and writes nothing; `sync` decides them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bson import ObjectId

from dedup_job.commands import verify
from dedup_job.commands.changes import changes
from dedup_job.commands.why import why
from dedup_job.errors import ConfigError
from dedup_job.report.changes_and_sync_results import ChangesResult
from scripts.bench.corpus import generate
from tests.support.job import Job
from tests.support.sync_cases import up_to_date

LATE = ObjectId("0" * 24)
OLD = ObjectId("650000000000000000000000")  # of 2023
FUTURE = ObjectId("f48656800123456789abcdef")  # in the year 2100


def compared(job: Job, *, content: bool = False) -> ChangesResult:
    with job.context() as context:
        return changes(context, content, lambda number: None)


def text(number: int) -> str:
    return f"第{number}号灯塔的看守人在日记里写下{number * 7919}艘船的名字，其中有渔船、货轮和邮船。"


@pytest.fixture
def decided(job: Job) -> Job:
    job.source.insert_one({"_id": OLD, "text": text(39)})
    job.source.insert_many([{"_id": ObjectId(), "text": text(number)} for number in range(39)])
    job.source.insert_many([{"_id": ObjectId(), "text": text(number)} for number in range(5)])
    job.source.insert_one({"_id": ObjectId(), "text": None})
    job.decide("backfill")
    return job


def test_where_nothing_was_missed_nothing_is_written(decided: Job) -> None:
    before = decided.hash()

    found = compared(decided, content=True)

    assert (found.decided, found.new, found.missed) == (46, 0, 0)
    assert found.changed is not None
    assert (found.changed.counts.total(), found.vanished.counts.total()) == (0, 0)
    assert decided.hash() == before


def test_what_a_run_cannot_notice_is_decided_by_a_sync(decided: Job) -> None:
    """One far behind the lookback while another there was deleted: the number of records says nothing."""
    decided.source.delete_one({"_id": OLD})
    decided.source.insert_one({"_id": LATE, "text": text(3)})
    assert decided.decide("run").counts.read == 0

    before = decided.hash()
    found = compared(decided)
    assert (found.new, found.missed) == (0, 1)
    assert found.vanished.counts == {"kept": 1}
    assert list(found.vanished.rows()) == [{"id": {"$oid": str(OLD)}, "was": "kept"}]
    assert decided.hash() == before

    done = up_to_date(decided)

    assert done.run is not None
    assert (done.run.counts.read, done.run.counts.exact) == (1, 1)
    row = decided.ledger("dropped").find_one({"_id": LATE})
    assert row is not None
    assert decided.source.find_one({"_id": row["keeper"]}, {"text": 1}) == {
        "_id": row["keeper"],
        "text": text(3),
    }
    again = compared(decided, content=True)
    assert (again.new, again.missed, again.vanished.counts, again.changed and again.changed.counts) == (
        (0, 0, {}, {})
    )
    run = decided.ledger("runs").find_one({"_id": done.run.run})
    assert run is not None
    assert (run["mode"], run["exit_code"]) == ("sync", 0)


def test_an_id_from_the_future_hides_nothing_behind_it(job: Job) -> None:
    job.source.insert_many([{"_id": FUTURE, "text": text(0)}, {"_id": ObjectId(), "text": text(1)}])
    job.decide("backfill")
    head = job.ledger("head").find_one()
    assert head is not None
    assert head["watermark"].endswith(FUTURE.binary + b"\0")
    job.source.insert_many([{"_id": ObjectId(), "text": text(2)}, {"_id": LATE, "text": text(0)}])
    assert job.decide("backfill").counts.read == 0

    assert (compared(job).new, compared(job).missed) == (1, 1)
    done = up_to_date(job)

    assert done.run is not None
    assert (done.run.counts.unique, done.run.counts.exact) == (1, 1)
    assert compared(job).missed == 0
    job.source.insert_one({"_id": ObjectId(b"\xf5" + bytes(11)), "text": text(4)})
    assert (compared(job).new, compared(job).missed) == (1, 0)
    assert (again := up_to_date(job).run) is not None
    assert again.counts.unique == 1


@pytest.mark.parametrize("make", [lambda n: n * 37 % 1000, lambda n: f"k{n * 37 % 1000}", lambda n: {"n": n}])
def test_ids_that_hold_no_time_are_new_to_the_next_run(job: Job, make: Any) -> None:
    job.source.insert_many([{"_id": make(number), "text": text(number)} for number in range(20)])
    job.decide("backfill")
    job.source.insert_many([{"_id": make(100 + number), "text": text(number)} for number in range(7)])

    assert (compared(job).new, compared(job).missed) == (7, 0)
    assert job.decide("run").counts.exact == 7


def test_changed_records_are_told_by_what_was_decided_of_them(decided: Job) -> None:
    dropped = decided.ledger("dropped").find_one()
    assert dropped is not None
    decided.source.update_one({"_id": dropped["_id"]}, {"$set": {"text": text(99)}})
    decided.source.update_many({"text": {"$in": [text(30), None]}}, {"$set": {"seen": True}})
    before = decided.hash()

    found = compared(decided, content=True)

    assert found.changed is not None
    assert found.changed.counts == {"kept": 2, "dropped": 1}
    assert {"id": {"$oid": str(dropped["_id"])}, "was": "dropped"} in found.changed.rows()
    assert (found.new, found.missed, found.vanished.counts.total()) == (0, 0, 0)
    assert decided.hash() == before
    assert compared(decided).changed is None


@pytest.mark.long
def test_all_that_changed_or_vanished_is_named_in_json_and_in_a_file_and_why_says_so(decided: Job) -> None:
    changed = [row["_id"] for row in decided.source.find({"text": {"$in": [text(n) for n in range(12)]}})]
    decided.source.update_many({"_id": {"$in": changed}}, {"$set": {"text": text(99)}})
    vanished = [
        row["_id"] for row in decided.source.find({"text": {"$in": [text(n) for n in range(20, 28)]}})
    ]
    decided.source.delete_many({"_id": {"$in": vanished}})
    dropped = {row["_id"] for row in decided.ledger("dropped").find()}
    file = decided.folder / "ids.jsonl"

    done = decided.command("changes", "--content", "--json", "--ids", str(file))

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    was = {str(one): "dropped" if one in dropped else "kept" for one in (*changed, *vanished)}
    assert (len(was), len(dropped)) == (12 + 5 + 8, 5)
    named = [{"id": {"$oid": str(one)}, "was": was[str(one)]} for one in (*changed, *vanished)]
    by_id = lambda row: row["id"]["$oid"]  # noqa: E731
    assert sorted(told["changed"]["records"] + told["vanished"]["records"], key=by_id) == sorted(
        named, key=by_id
    )
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [{**row, "now": "changed"} for row in told["changed"]["records"]] == rows[: len(changed)]
    assert [{**row, "now": "vanished"} for row in told["vanished"]["records"]] == rows[len(changed) :]
    assert "and 12 more: --ids FILE lists all" in compared(decided, content=True).as_text()
    with decided.context() as context:
        assert {verdict: why(context, str(one)).get("changed_since") for verdict, one in (
            ("kept", next(one for one in changed if one not in dropped)),
            ("dropped", next(one for one in changed if one in dropped)),
            ("vanished", vanished[0]),
            ("as it was", OLD),
        )} == {"kept": True, "dropped": True, "vanished": None, "as it was": None}  # fmt: skip


def test_a_file_for_the_ids_that_cannot_be_written_is_told_before_anything_is_compared(decided: Job) -> None:
    done = decided.command("changes", "--ids", str(decided.folder / "nowhere" / "ids.jsonl"))
    assert done.returncode == 64
    assert "nowhere/ids.jsonl: No such file or directory; name a file in a folder that exists" in done.stderr


def test_a_restored_record_that_changed_was_kept(decided: Job) -> None:
    row = decided.ledger("dropped").find_one({})
    assert row is not None
    assert decided.command("restore", f'{{"$oid": "{row["_id"]}"}}').returncode == 0
    decided.source.update_one({"_id": row["_id"]}, {"$set": {"text": "改写过的文字"}})

    done = decided.command("changes", "--content", "--json")

    changed = json.loads(done.stdout)["changed"]
    assert (changed["kept"], changed["dropped"]) == (1, 0)
    assert [one["was"] for one in changed["records"]] == ["kept"]


def test_what_vanished_is_told_alike_with_and_without_the_content(decided: Job) -> None:
    dropped = decided.ledger("dropped").find_one()
    assert dropped is not None
    decided.source.delete_many({"$or": [{"_id": dropped["_id"]}, {"text": {"$in": [text(20), text(21)]}}]})

    for content in (False, True):
        assert compared(decided, content=content).vanished.counts == {"kept": 2, "dropped": 1}


def test_sync_exits_3_when_the_target_refuses_what_was_missed(decided: Job) -> None:
    decided.database.command("collMod", "unique", validator={"text": {"$ne": text(70)}})
    decided.source.insert_many([{"_id": LATE, "text": text(70)}, {"text": text(71)}])

    done = decided.command("sync", "--yes", "--json")

    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    assert (told["decided"], told["undecided"], told["vanished"]["kept"]) == (46, 2, 0)
    assert told["run"]["refused"] == {"validator": 1}
    assert told["changed"]["dropped"] == 0
    with decided.context() as context:
        assert verify.verify(context, None, lambda number: None).agrees


def test_changes_for_people_names_ids_and_shows_no_text(decided: Job) -> None:
    decided.source.insert_one({"_id": LATE, "text": text(50)})
    decided.source.update_one({"text": text(30)}, {"$set": {"text": "改写过的文字"}})

    done = decided.command("changes", "--content")

    assert done.returncode == 0, done.stderr
    assert "missed                1  older than a run looks back" in done.stdout
    assert "kept 1: the target has their old version" in done.stdout
    assert f"  to bring the target up to date: dedup-job sync -c {decided.config_file()}\n" in done.stdout
    assert "灯塔" not in done.stdout + done.stderr
    assert "改写" not in done.stdout + done.stderr


def test_without_copies_changes_speaks_of_no_target(job: Job) -> None:
    bare = job.without_copies()
    bare.source.insert_many([{"_id": n, "text": text(n // 2)} for n in range(8)])
    bare.decide("backfill")
    bare.source.update_many({"_id": {"$in": [0, 1]}}, {"$set": {"text": "改写过的文字"}})
    bare.source.delete_many({"_id": {"$in": [2, 5]}})

    done = bare.command("changes", "--content")

    assert done.returncode == 0, done.stderr
    assert "kept 1: the decision is about their old version" in done.stdout
    assert "dropped 1: their new text may be no duplicate" in done.stdout
    assert "kept 1: their duplicates are still dropped" in done.stdout
    assert "  to bring the decisions up to date: dedup-job sync" in done.stdout
    assert "target" not in done.stdout


def test_changes_says_that_contents_were_not_compared_and_how_to_compare_them(decided: Job) -> None:
    line = "  changed               -  contents were not compared; add --content"
    assert line in compared(decided).as_text().splitlines()
    assert compared(decided).as_json()["changed"] is None
    assert "not compared" not in compared(decided, content=True).as_text()


@pytest.mark.long
def test_a_sync_that_is_killed_is_finished_by_the_next_run(job: Job) -> None:
    job.set("source", fields=["data"])
    records = list(generate(200, seed=6))
    job.source.insert_many(records[::2])
    job.decide("backfill")
    job.source.insert_many(records[1::2])

    killed = job.command("sync", "--yes", program=("-m", "tests.support.kill_at_command", "after", "30"))
    assert killed.returncode == -9
    job.decide("run")

    assert job.target.count_documents({}) + job.ledger("dropped").count_documents({}) == 200
    assert (compared(job).new, compared(job).missed) == (0, 0)
    with job.context() as context:
        assert verify.verify(context, None, lambda number: None).agrees


def test_without_a_ledger_there_is_nothing_to_compare(job: Job) -> None:
    job.source.insert_one({"text": "x"})
    with pytest.raises(ConfigError, match="nothing was decided for"):
        compared(job)
