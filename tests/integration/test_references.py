"""`[[reference]]` on a real server: the records of other collections count as kept before everything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.records import Plan
from scripts.bench.corpus import Mix, generate
from tests.support.inline_engine import without_workers
from tests.support.job import Job
from tests.support.kill_in_process import commands_of, killed
from tests.support.refusals import told
from tests.support.restore_cases import restore
from tests.support.sweep_cases import archived, sweep
from tests.support.sync_cases import dropped, in_target, up_to_date
from tests.support.text_pairs import LONG, OTHER
from tests.support.undo_cases import OTHERS, undo

NEAR = LONG.replace("海鸥", "白鸟")
A, B, C, D = OTHERS[:4]


@pytest.fixture
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch.setattr)


inline = pytest.mark.usefixtures("_inline")


def refer(job: Job, **settings: Any) -> None:
    """Name the collection `tests` of the job's database as a reference."""
    job.tables["reference"] = [{"database": job.database.name, "collection": "tests", **settings}]


def of_tests(job: Job, value: Any) -> dict[str, Any]:
    """Return the id by which the job knows a record of the reference."""
    return {"reference": f"{job.database.name}.tests", "id": value}


@pytest.fixture
def referring(job: Job) -> Job:
    """A job whose reference has three of the texts of its source."""
    refer(job)
    job.set("limits", batch_records=2)
    job.database["tests"].insert_many(
        [{"_id": 1, "text": LONG}, {"_id": 2, "text": A}, {"_id": 3, "text": B}, {"_id": 4}]
    )
    texts = [LONG, NEAR, OTHER, B, C, OTHER + "完", D]
    job.source.insert_many({"_id": number, "text": text} for number, text in enumerate(texts))
    return job


def expected(job: Job) -> dict[Any, Any]:
    return {0: of_tests(job, 1), 1: of_tests(job, 1), 3: of_tests(job, 3), 5: 2}


@inline
def test_records_are_decided_as_after_a_backfill_of_the_reference(
    job: Job, another_job: Callable[[], Job]
) -> None:
    job.set("source", fields=["data"])
    records = list(generate(400, mix=Mix(duplicates=0.6, odd=0.05)))
    together = another_job()
    together.source.insert_many(records[:200])
    together.decide("backfill")
    before = together.rows("dropped")
    reference = list(together.target.find())
    together.source.insert_many(records[200:])
    together.decide("run")

    job.database["tests"].insert_many(reference)
    job.source.insert_many(records[200:])
    refer(job)
    job.decide("backfill")

    rows = job.rows("dropped")
    for row in rows.values():
        if isinstance(row["keeper"], dict):
            assert row["keeper"]["reference"] == f"{job.database.name}.tests"
            row["keeper"] = row["keeper"]["id"]
    assert rows == {key: row for key, row in together.rows("dropped").items() if key not in before}
    ids = [record["_id"] for record in records[200:]]
    assert job.target.distinct("_id") == together.target.distinct("_id", {"_id": {"$in": ids}})
    assert len(rows) > 40
    assert job.differences() == {}


@inline
def test_a_dropped_record_names_collection_id_and_similarity(referring: Job) -> None:
    reports = dry_run_counts(referring)
    counts = referring.decide("backfill").counts
    assert reports == counts
    assert (counts.read, counts.exact, counts.near) == (7, 2, 2)
    assert dropped(referring) == expected(referring)
    row = referring.ledger("dropped").find_one({"_id": 1})
    assert row is not None
    assert row["similarity"] > 0.8
    assert in_target(referring) == {2: OTHER, 4: C, 6: D}
    assert referring.differences() == {}
    assert referring.database["tests"].count_documents({}) == 4


def dry_run_counts(job: Job) -> Any:
    before = job.hash()
    with job.context() as context:
        counts = dry_run(context, DryRun(), lambda plan: None).counts
    assert job.hash() == before
    return counts


@inline
def test_a_dry_run_notices_a_reference_record_that_is_edited_meanwhile(job: Job) -> None:
    refer(job)
    job.set("limits", batch_records=1)
    tests = job.database["tests"]
    tests.insert_one({"_id": 1, "text": LONG})
    job.source.insert_many([{"_id": 0, "text": A}, {"_id": 1, "text": LONG}])

    def edit(plan: Plan) -> None:
        tests.update_one({"_id": 1}, {"$set": {"text": B}})

    with job.context() as context:
        assert dry_run(context, DryRun(), edit).counts.unique == 2


@inline
def test_a_later_run_reads_only_new_reference_records(referring: Job) -> None:
    referring.decide("backfill")

    def modes() -> list[str]:
        return [plan["mode"] for plan in referring.ledger("plans").find().sort("_id.number", 1)]

    assert modes() == ["reference"] * 2 + ["backfill"] * 4
    referring.database["tests"].insert_one({"_id": 5, "text": OTHERS[5]})
    referring.source.insert_many([{"_id": 10, "text": OTHERS[5]}, {"_id": 11, "text": A}])
    referring.decide("run")
    assert modes()[6:] == ["reference", "run"]
    assert dropped(referring) == {
        **expected(referring),
        10: of_tests(referring, 5),
        11: of_tests(referring, 2),
    }
    # What was kept before stays, also if the reference has it now.
    referring.database["tests"].insert_one({"_id": 6, "text": C})
    referring.source.insert_one({"_id": 12, "text": C})
    referring.decide("run")
    assert dropped(referring)[12] == 4
    assert referring.differences() == {}
    assert referring.decide("run").counts.read == 0
    assert modes()[8:] == ["reference", "run"]


@inline
@pytest.mark.parametrize("change", [{"$set": {"text": D + D}}, {"$unset": {"text": ""}}, None])
def test_a_reference_record_that_changed_or_vanished_represents_nothing_any_longer(
    referring: Job, change: dict[str, Any] | None
) -> None:
    referring.decide("backfill")
    tests = referring.database["tests"]
    if change:
        tests.update_many({"_id": {"$in": [2, 3]}}, change)
    else:
        tests.delete_many({"_id": {"$in": [2, 3]}})
    referring.source.insert_many([{"_id": 10, "text": A}, {"_id": 11, "text": A}, {"_id": 12, "text": LONG}])
    summary = referring.decide("run")
    assert dropped(referring) == {**expected(referring), 11: 10, 12: of_tests(referring, 1)}
    assert len(summary.warnings) == 1
    # Only the record that was dropped for it before is without its keeper.
    assert referring.differences().keys() == {"keeper_altered" if change else "keeper_missing"}


@inline
def test_a_reference_with_other_fields_in_another_place(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.set("source", fields=["page.title", "page.text"])
    monkeypatch.setenv("DEDUP_REFERENCE_URI", job.uri)
    refer(job, fields=["questions.0.html"], uri_env="DEDUP_REFERENCE_URI")
    job.database["tests"].insert_many(
        [{"_id": 1, "questions": [{"html": f"<p>{LONG}</p>"}]}, {"_id": 2, "questions": []}, {"_id": 3}]
    )
    job.source.insert_many(
        [{"_id": 1, "page": {"text": LONG}}, {"_id": 2, "page": {"title": NEAR}}, {"_id": 3, "page": {}}]
    )
    job.decide("backfill")
    assert dropped(job) == {1: of_tests(job, 1), 2: of_tests(job, 1)}
    assert job.differences() == {}


@inline
def test_groups_hold_for_references_too(referring: Job) -> None:
    referring.set("match", within=["page.site"])
    referring.database["tests"].update_many({"_id": {"$in": [1, 2]}}, {"$set": {"page.site": "a"}})
    referring.source.update_many({"_id": {"$in": [1, 3]}}, {"$set": {"page.site": "a"}})
    referring.decide("backfill")
    assert dropped(referring) == {1: of_tests(referring, 1), 5: 2}
    assert referring.differences() == {}


@inline
def test_without_copies_references_work_the_same(referring: Job) -> None:
    bare = referring.without_copies()
    bare.decide("backfill")
    assert dropped(bare) == expected(bare)
    assert bare.differences() == {}


@inline
def test_sweep_moves_records_while_the_reference_has_their_text(referring: Job) -> None:
    bare = referring.without_copies()
    bare.decide("backfill")
    bare.database["tests"].update_one({"_id": 3}, {"$set": {"text": D + D}})
    bare.database["tests"].update_one({"_id": 1}, {"$set": {"seen": True}})
    result = sweep(bare)
    assert set(archived(bare)) == {0, 1, 5}
    assert {reason: len(ids) for reason, ids in result.stay.items()} == {"keeper": 1}


@inline
def test_sweep_says_what_keeps_the_records_of_a_deleted_reference_record(referring: Job) -> None:
    bare = referring.without_copies()
    bare.decide("backfill")
    bare.database["tests"].delete_one({"_id": 1})
    done = sweep(bare)
    assert {reason: len(ids) for reason, ids in done.stay.items()} == {"keeper": 2}
    assert "`restore` keeps them" in " ".join(done.as_text().split())

    restore(bare, "0", "1")
    assert not sweep(bare).stay
    assert bare.differences() == {}


@inline
def test_a_run_with_a_reference_can_be_undone_and_done_again(referring: Job) -> None:
    referring.decide("backfill")
    outcome = referring.outcome()
    referring.source.insert_one({"_id": 10, "text": A})
    referring.database["tests"].insert_one({"_id": 5, "text": OTHERS[5]})
    referring.decide("run")
    for run in referring.ledger("runs").find().sort("started", -1):
        undo(referring, run["_id"])
    assert in_target(referring) == {}
    assert referring.ledger("plans").count_documents({}) == 0
    referring.source.delete_one({"_id": 10})
    referring.decide("backfill")
    assert referring.outcome() == outcome
    assert referring.differences() == {}


@inline
def test_no_record_is_dropped_for_a_worse_one_that_has_the_text_of_a_later_reference_record(job: Job) -> None:
    refer(job)
    job.database["tests"].insert_one({"_id": 1, "text": OTHER, "score": 0})
    job.set("match", prefer=[{"field": "score", "order": "descending"}])
    job.source.insert_many([{"_id": 1, "text": LONG, "score": 1}, {"_id": 2, "text": A, "score": 1}])
    job.decide("backfill")
    job.database["tests"].insert_one({"_id": 2, "text": LONG, "score": 0})
    job.source.insert_one({"_id": 3, "text": NEAR, "score": 2})
    job.decide("run")
    job.source.insert_one({"_id": 4, "text": LONG, "score": 3})
    job.decide("run")

    assert dropped(job) == {3: of_tests(job, 2), 4: of_tests(job, 2)}
    assert in_target(job).keys() == {1, 2}
    assert job.differences() == {}


@inline
def test_restore_and_sync_work_on_records_that_a_reference_has(referring: Job) -> None:
    referring.decide("backfill")
    restore(referring, "3")
    referring.source.update_one({"_id": 0}, {"$set": {"text": OTHERS[5]}})
    referring.source.update_one({"_id": 4}, {"$set": {"text": A}})
    up_to_date(referring)
    assert dropped(referring) == {1: of_tests(referring, 1), 4: of_tests(referring, 2), 5: 2}
    assert in_target(referring).keys() == {0, 2, 3, 6}
    assert referring.differences() == {}


def test_commands_name_the_reference(referring: Job) -> None:
    done = referring.command("backfill", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    again = json.loads(referring.command("history", summary["run"], "--json").stdout)
    assert [again[name] for name in ("read", "unique", "duplicate")] == [
        summary[name] for name in ("read", "unique", "duplicate")
    ]
    keeper = of_tests(referring, 1)
    listed = [json.loads(line) for line in referring.command("list", "--json").stdout.splitlines()]
    assert {row["id"]: row["keeper"] for row in listed} == expected(referring)
    assert all(row["keeper_text"] for row in listed)
    why = json.loads(referring.command("why", "1", "--json").stdout)
    assert (why["keeper"], why["keeper_in_target"]) == (keeper, True)
    group = referring.command("group", json.dumps(keeper), "--json")
    assert group.returncode == 0, group.stderr
    assert len(group.stdout.splitlines()) == 3
    assert "near duplicate" in referring.command("compare", json.dumps(keeper), "1").stdout
    lines = referring.folder / "lines"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in (NEAR, OTHER)), "utf-8")

    def found(*options: str) -> list[Any]:
        done = referring.command("find", str(lines), "--json", *options)
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["keeper"] for line in done.stdout.splitlines()]

    assert found() == [keeper, 2]
    assert found("--reference") == [keeper, None]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a missing collection": ({"collection": "testz"}, "testz does not exist; did you mean tests?"),
    "the source": ({"collection": "pages"}, "pages is the source itself"),
    "the target": ({"collection": "unique"}, "unique is the target itself"),
    "a ledger": ({"collection": "unique.dedup.plans"}, "[[reference]]"),
    "a field that exists nowhere": ({"fields": ["txt"]}, "[[reference]] fields: no record of"),
    "an empty name in a path": ({"fields": ["a..b"]}, "[[reference]] fields: expected dotted paths"),
    "no variable": ({"uri_env": "DEDUP_NO_SUCH"}, "set DEDUP_NO_SUCH"),
    "an unknown key": ({"colection": "x"}, "[[reference]] colection: unknown key, did you mean collection?"),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_reference_is_refused_by_name_before_anything_is_written(
    referring: Job, settings: dict[str, Any], message: str
) -> None:
    referring.target.insert_one({"_id": 99})
    refer(referring, **settings)
    before = referring.hash()
    for command in ("backfill", "report"):
        code, line = told(referring.command(command))
        assert (code, message in line) == (78, True), line
    assert referring.hash() == before


def test_a_reference_whose_server_does_not_answer_is_named(
    referring: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEDUP_REFERENCE_URI", "mongodb://127.0.0.1:9/")
    referring.set("limits", connect_seconds=0.3)
    refer(referring, uri_env="DEDUP_REFERENCE_URI")
    code, line = told(referring.command("report"))
    name = f"the reference {referring.database.name}.tests server does not answer: 127.0.0.1:9 refuses"
    assert (code, name in line) == (69, True), line


@inline
@pytest.mark.longest
def test_killed_at_every_command_and_run_again_nothing_differs(
    referring: Job, another_job: Callable[[], Job]
) -> None:
    records = list(referring.database["tests"].find())

    def fresh() -> Job:
        other = another_job()
        other.database["tests"].insert_many(records)
        refer(other)
        return other

    def outcome(job: Job) -> Any:
        target, rows, exceptions = job.outcome()
        for row in rows.values():
            row["keeper"] = getattr(row["keeper"], "get", {}.get)("id", row["keeper"])
        modes = [(plan["mode"], plan["count"]) for plan in job.ledger("plans").find().sort("_id.number", 1)]
        return target, rows, exceptions, modes

    undisturbed = fresh()
    commands = commands_of(lambda: undisturbed.decide("backfill"))
    for number in range(1, commands + 1):
        other = fresh()
        killed(lambda other=other: other.decide("backfill"), number)
        other.decide("backfill")
        assert outcome(other) == outcome(undisturbed), f"killed after command {number} of {commands}"
        assert other.decide("backfill").counts.read == 0
        other.database.client.drop_database(other.database)
