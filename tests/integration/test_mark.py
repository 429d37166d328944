"""`mark` writes a field into dropped records of the source, changes nothing else, and can remove it again."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.support.job import RAW, Job
from tests.support.kill_in_process import commands_of, killed
from tests.support.made_up_records import made_up_records, number_records
from tests.support.marks import write_marks
from tests.support.undo_cases import undo

OTHER = "完全不同的另一段文字，谁也没有见过它。"


def records(job: Job) -> dict[Any, bytes]:
    return {one["_id"]: bytes(one.raw) for one in job.source.with_options(RAW).find()}


def marks(job: Job) -> dict[Any, Any]:
    return {one["_id"]: one["dedup"] for one in job.source.find({"dedup": {"$exists": True}})}


def dropped(job: Job) -> dict[Any, Any]:
    """Return the marks that the ledger asks for, with similarities rounded as there."""
    names = ("keeper", "similarity", "reason", "run")
    return {row["_id"]: {name: row[name] for name in names} for row in job.ledger("dropped").find()}


def rounded(found: dict[Any, Any]) -> dict[Any, Any]:
    return {raw_id: {**one, "similarity": round(one["similarity"], 4)} for raw_id, one in found.items()}


def answer(job: Job, *arguments: str, code: int = 0) -> Any:
    done = job.command(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(params=[False, True], ids=["bare", "with copies"])
def decided(job: Job, request: pytest.FixtureRequest) -> Job:
    job.set("source", fields=["data"])
    job.source.insert_many(number_records(made_up_records()[:300]))
    decided = job if request.param else job.without_copies()
    decided.decide("backfill")
    return decided


def test_each_dropped_record_is_marked_and_all_else_stays(decided: Job) -> None:
    before, rows = records(decided), decided.rows("dropped")

    assert answer(decided, "mark", "--dry-run")["marked"] == len(rows)
    assert records(decided) == before
    assert answer(decided, "mark", "--yes")["marked"] == len(rows)

    assert rounded(marks(decided)) == dropped(decided)
    again = answer(decided, "mark", "--yes")
    assert (again["marked"], again["already"], again["cleared"]) == (0, len(rows), 0)
    assert answer(decided, "mark", "--clear", "--yes")["cleared"] == len(rows)
    assert records(decided) == before


def test_a_marked_source_decides_and_agrees_as_an_unmarked_one(decided: Job) -> None:
    rows = decided.rows("dropped")
    write_marks(decided)

    assert answer(decided, "verify")["differences"] == {}
    assert answer(decided, "changes", "--content")["changed"]["records"] == []
    decided.source.insert_many(number_records(made_up_records()[:40], 1000))
    assert decided.decide("run").counts.read == 40
    assert decided.rows("dropped").items() >= rows.items()


def test_a_copy_of_a_marked_record_loses_the_mark_that_came_with_it(decided: Job) -> None:
    write_marks(decided)
    decided.source.insert_one({"_id": 2000, "data": OTHER, "dedup": next(iter(marks(decided).values()))})
    decided.decide("run")

    write_marks(decided)

    assert rounded(marks(decided)) == dropped(decided)


def test_a_record_that_changed_since_it_was_judged_is_named_and_not_marked(decided: Job) -> None:
    changed, *_ = dropped(decided)
    write_marks(decided)
    decided.source.update_one({"_id": changed}, {"$set": {"views": -1}})

    done = answer(decided, "mark", "--yes")

    assert (done["unmarked"], done["cleared"]) == ({"changed": {"count": 1, "ids": [changed]}}, 1)
    assert rounded(marks(decided)) == {key: one for key, one in dropped(decided).items() if key != changed}


def test_marks_that_a_rule_of_the_source_refuses_are_named_by_the_rule(decided: Job) -> None:
    refused, twin, *others = dropped(decided)
    decided.source.update_one({"_id": refused}, {"$set": {"closed": True}})
    decided.command("sync", "--yes")
    rule = {"$nor": [{"closed": True, "dedup": {"$exists": True}}]}
    decided.database.command("collMod", decided.source.name, validator=rule)

    done = decided.command("mark", "--yes", "--json")

    assert done.returncode == 3
    assert json.loads(done.stdout)["unmarked"] == {"validator": {"count": 1, "ids": [refused]}}
    assert set(marks(decided)) == {twin, *others}
    assert "no mark: validator" in decided.command("mark", "--yes").stdout


def test_marks_that_a_unique_index_refuses_are_named(decided: Job) -> None:
    decided.source.create_index("dedup.run", unique=True, sparse=True)

    done = decided.command("mark", "--yes", "--json")

    assert done.returncode == 3
    assert json.loads(done.stdout)["unmarked"]["unique_index"]["count"] == len(dropped(decided)) - 1
    assert len(marks(decided)) == 1


def test_a_record_that_is_too_large_for_a_mark_is_named(decided: Job) -> None:
    large, *others = dropped(decided)
    decided.source.update_one({"_id": large}, {"$set": {"padding": "x" * (15 << 20)}})
    decided.command("sync", "--yes")

    done = decided.command("mark", "--yes", "--json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["unmarked"] == {"unmarkable": {"count": 1, "ids": [large]}}
    assert set(marks(decided)) == set(others)


def test_other_content_in_the_field_is_refused_before_anything_is_written(decided: Job) -> None:
    decided.source.update_one({"_id": 7}, {"$set": {"dedup": {"keeper": 1}}})
    before = decided.hash()

    done = decided.command("mark", "--yes")

    assert done.returncode == 78
    assert "dedup holds something else than a mark in record 7" in done.stderr
    assert decided.hash() == before


@pytest.mark.parametrize("is_auto", [False, True])
def test_other_content_that_comes_later_stays_and_is_named(decided: Job, is_auto: bool) -> None:
    write_marks(decided)
    if is_auto:
        decided.set("mark", auto=True)
    text = decided.source.find_one({"_id": next(iter(dropped(decided)))})["data"]  # type: ignore[index]
    contents = [5, {"keeper": 1, "mine": 2}, "of shop 7", {}, None]
    decided.source.insert_many(
        {"_id": f"later {number}", "data": text, "dedup": content} for number, content in enumerate(contents)
    )
    before = records(decided)

    done = decided.command("run", "--json")
    if not is_auto:
        done = decided.command("mark", "--yes", "--json")

    assert done.returncode == (0 if is_auto else 3)
    assert '"field_in_use": {"count": 5' in done.stdout
    assert records(decided) == before
    assert decided.command("mark", "--yes").returncode == 3
    assert "no mark: field_in_use" in decided.command("mark", "--yes", "--dry-run").stdout
    assert records(decided) == before
    assert decided.command("verify").returncode == 0
    assert decided.command("changes", "--content").returncode == 0


@pytest.mark.parametrize("name", ["data", "a.b", "$a", "_id"])
def test_fields_that_cannot_hold_a_mark_are_refused(decided: Job, name: str) -> None:
    done = decided.command("mark", "--yes", "--set", f"mark.field={name}")

    assert done.returncode == 78
    assert "[mark] field" in done.stderr


def test_marks_stay_in_one_field(decided: Job) -> None:
    write_marks(decided)

    done = decided.command("mark", "--yes", "--set", "mark.field=other")

    assert done.returncode == 78
    assert f"dedup-job mark -c {decided.config_file()} --clear --set mark.field=dedup" in done.stderr


def test_restore_and_undo_take_the_marks_away(decided: Job) -> None:
    before = records(decided)
    write_marks(decided)
    restored, *_ = dropped(decided)

    assert decided.command("restore", str(restored)).returncode == 0

    assert restored not in marks(decided)
    run = decided.ledger("runs").find_one({"mode": "backfill"})
    assert run is not None
    undo(decided, run["_id"])
    assert records(decided) == before


def test_later_runs_mark_what_is_new(decided: Job) -> None:
    decided.set("mark", auto=True)
    write_marks(decided)
    decided.source.insert_many(number_records(made_up_records()[:40], 1000))

    done = answer(decided, "run")

    assert done["mark"]["marked"] == sum(done["duplicate"].values())
    assert rounded(marks(decided)) == dropped(decided)


@pytest.mark.parametrize("has_copies", [True, False])
def test_a_sync_takes_the_marks_of_records_away_that_it_keeps_again(job: Job, has_copies: bool) -> None:
    job.set("source", fields=["data"])
    job.source.insert_many(number_records(made_up_records()[:100]))
    job = job if has_copies else job.without_copies()
    job.decide("backfill")
    write_marks(job)
    keepers = job.ledger("dropped").distinct("keeper")
    job.source.delete_many({"_id": {"$in": keepers[:5]}})

    done = answer(job, "sync", "--yes")

    assert done["mark"]["cleared"] > 0
    assert rounded(marks(job)) == dropped(job)


def test_a_sync_marks_a_dropped_record_again_that_its_owner_replaced(decided: Job) -> None:
    write_marks(decided)
    replaced, *_ = dropped(decided)
    record = decided.source.find_one({"_id": replaced}, {"dedup": 0})
    assert record is not None
    decided.source.replace_one({"_id": replaced}, record | {"price": 2})

    done = answer(decided, "sync", "--yes")

    assert (done["updated"]["renewed"], done["mark"]["marked"]) == (1, 1)
    assert rounded(marks(decided)) == dropped(decided)


def test_clearing_takes_marks_away_that_the_ledger_does_not_know(decided: Job) -> None:
    before = records(decided)
    write_marks(decided)
    one = decided.source.find_one({"dedup": {"$exists": True}})
    assert one is not None
    decided.source.insert_one(one | {"_id": 5000})
    decided.source.insert_one({"_id": 5001, "dedup": {"keeper": 1}})
    head = decided.ledger("head").find_one_and_update({}, {"$unset": {"mark": ""}})  # as from a backup
    assert head is not None

    cleared = answer(decided, "mark", "--clear", "--yes")["cleared"]

    assert cleared == len(dropped(decided)) + 1
    assert marks(decided) == {5001: {"keeper": 1}}
    assert {key: raw for key, raw in records(decided).items() if key < 5000} == before


def test_a_marking_sets_the_marks_right_that_a_ledger_does_not_know(decided: Job) -> None:
    write_marks(decided)
    keepers = decided.ledger("dropped").distinct("keeper")
    decided.ledger("head").update_one({}, {"$unset": {"mark": ""}})  # as from a backup
    decided.source.update_one({"_id": keepers[0]}, {"$set": {"data": OTHER}})
    assert "mark" not in answer(decided, "sync", "--yes")
    assert rounded(marks(decided)) != dropped(decided)

    assert answer(decided, "mark", "--yes")["cleared"] > 0

    assert rounded(marks(decided)) == dropped(decided)


@pytest.mark.parametrize("command", [("changes",), ("sync", "--yes")])
def test_marks_in_another_field_are_no_changes(decided: Job, command: tuple[str, ...]) -> None:
    write_marks(decided)
    decided.set("mark", field="duplicate_of")

    done = decided.command(*command)

    assert done.returncode == 78
    assert "the source has its marks in dedup, not in duplicate_of" in done.stderr


@pytest.mark.long
def test_a_marking_that_is_killed_anywhere_is_finished_by_the_next(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several pieces, so that a marking may be killed between two.
    monkeypatch.setattr("dedup_job.commands.mark.DUE_AT_ONCE", 1)
    job.set("source", fields=["data"])
    job.set("limits", batch_records=40)
    job.source.insert_many(number_records(made_up_records()[:120]))
    bare = job.without_copies()
    bare.decide("backfill")
    before = records(bare)
    commands = commands_of(partial(write_marks, bare))
    whole = records(bare)

    for number in range(1, commands + 1):
        answer(bare, "mark", "--clear", "--yes")
        assert records(bare) == before
        killed(partial(write_marks, bare), number)
        write_marks(bare)
        assert records(bare) == whole, f"killed after command {number} of {commands}"
