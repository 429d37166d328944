"""`sweep` moves dropped records to the archive, byte for byte, and nothing else; the way back is open."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bson import Int64

from dedup_job.ledger import move_between_source_and_archive
from tests.support.job import LEDGER, RAW, Job
from tests.support.kill_in_process import free_lease, killed_after, killed_after_setting
from tests.support.made_up_records import made_up_records, number_records
from tests.support.restore_cases import TEXT
from tests.support.sweep_cases import ARCHIVE, archived, records, restore, sweep
from tests.support.undo_cases import undo

OTHER = "完全不同的另一段文字，谁也没有见过它。"


def answer(job: Job, *arguments: str, code: int = 0) -> Any:
    done = job.command(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def dropped(job: Job) -> dict[Any, Any]:
    """Return the keeper of each dropped record, by id."""
    return {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()}


def fill(job: Job, count: int = 300) -> None:
    job.set("source", fields=["data"])
    job.source.insert_many(number_records(made_up_records()[:count]))


@pytest.fixture(params=[False, True], ids=["bare", "with copies"])
def decided(job: Job, request: pytest.FixtureRequest) -> Job:
    fill(job)
    decided = job if request.param else job.without_copies()
    decided.decide("backfill")
    return decided


def test_each_dropped_record_is_moved_byte_for_byte_and_all_else_stays(decided: Job) -> None:
    before, due = records(decided), dropped(decided).keys()

    assert answer(decided, "sweep", "--archive", ARCHIVE, "--dry-run")["moved"] == len(due)
    assert (records(decided), archived(decided)) == (before, {})
    assert answer(decided, "sweep", "--archive", ARCHIVE, "--yes")["moved"] == len(due)

    assert archived(decided) == {key: before[key] for key in due}
    assert records(decided) == {key: before[key] for key in before.keys() - due}
    again = answer(decided, "sweep", "--yes")
    assert (again["moved"], again["already"], again["stay"]) == (0, len(due), {})


def test_a_swept_source_decides_and_agrees_as_an_unswept_one(
    job: Job, decided: Job, request: pytest.FixtureRequest
) -> None:
    other = request.getfixturevalue("another_job")()
    twin = other if decided.has_copies else other.without_copies()
    twin.decide("backfill")
    assert answer(decided, "mark", "--yes")["marked"] > 50
    sweep(decided)

    assert answer(decided, "verify")["differences"] == {}
    changes = answer(decided, "changes", "--content")
    assert (changes["changed"]["records"], changes["vanished"]["records"]) == ([], [])
    late = number_records(made_up_records()[:80], 1000)
    for one in (decided, twin):
        one.source.insert_many(late)
        assert one.decide("run").counts.read == 80
        assert one.decide("run").counts.read == 0
    assert decided.plans() == twin.plans()
    due = answer(decided, "sync", "--dry-run")
    assert (due["renew"], due["undecided"], due["take_out"]) == (0, 0, {"kept": 0, "not_kept": 0})
    assert set(due["decide_again"].values()) == {0}
    assert answer(decided, "status")["lag"]["records"] is None


def test_marks_do_not_reach_the_archive(decided: Job) -> None:
    before = records(decided)
    answer(decided, "mark", "--yes")

    sweep(decided)

    assert archived(decided) == {key: before[key] for key in dropped(decided)}


def test_records_that_changed_and_records_without_their_keeper_stay(decided: Job) -> None:
    (changed, keeper), *others = dropped(decided).items()
    lonely, lost = next((one, kept) for one, kept in others if kept != keeper)
    edited = next(kept for _, kept in others if kept not in (keeper, lost))
    decided.source.update_one({"_id": changed}, {"$set": {"views": -1}})
    decided.source.delete_one({"_id": lost})
    decided.source.update_one({"_id": edited}, {"$set": {"data": OTHER}})
    # The text of this keeper is the same.
    decided.source.update_one({"_id": keeper}, {"$set": {"views": -1}})
    before = records(decided)

    done = answer(decided, "sweep", "--archive", ARCHIVE, "--yes")

    without = {one for one, kept in dropped(decided).items() if kept in (lost, edited)}
    assert done["stay"]["changed"]["ids"] == [changed]
    assert set(done["stay"]["keeper"]["ids"]) == without >= {lonely}
    assert archived(decided).keys() == dropped(decided).keys() - without - {changed}
    assert records(decided) | archived(decided) == before


@pytest.mark.parametrize("value", [7.0, Int64(7), "7", None])
def test_a_record_that_changes_while_it_is_moved_stays(
    job: Job, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    job.source.insert_many([{"_id": n, "text": OTHER, "n": [{"views": 7}]} for n in range(3)])
    bare = job.without_copies()
    bare.decide("backfill")
    copy = move_between_source_and_archive.ArchiveMoves.move_out

    def edit_and_move(*arguments: Any) -> Any:
        bare.source.update_one({"_id": 1}, {"$set": {"n.0.views": value}})
        return copy(*arguments)

    monkeypatch.setattr(move_between_source_and_archive.ArchiveMoves, "move_out", edit_and_move)
    before = records(bare)

    done = sweep(bare).as_json()

    assert done["stay"]["changed"]["ids"] == [1]
    assert records(bare).keys() == {0, 1}
    assert archived(bare) == {key: before[key] for key in (1, 2)}


def test_records_come_back_by_restore_and_undo(decided: Job) -> None:
    before = records(decided)
    one, *_ = dropped(decided)
    sweep(decided)

    restore(decided, one)

    assert records(decided)[one] == before[one]
    assert one not in archived(decided)
    assert answer(decided, "verify")["differences"] == {}
    # A restored record is not swept again.
    assert sweep(decided).moved == 0
    decided.source.delete_one({"_id": one})
    assert answer(decided, "changes")["vanished"]["records"][0]["id"] == one
    run = decided.ledger("runs").find_one({"mode": "backfill"})
    assert run is not None
    undo(decided, run["_id"])
    assert records(decided) == {key: before[key] for key in before if key != one}
    assert archived(decided) == {}
    decided.decide("backfill")
    assert sweep(decided).moved == len(dropped(decided))


def test_one_list_restores_records_wherever_they_are(job: Job) -> None:
    job.source.insert_many([{"_id": n, "text": TEXT, "more": n} for n in range(6)])
    job.decide("backfill")
    before = records(job)
    sweep(job)
    edited = {"_id": 2, "text": TEXT, "more": "edited"}
    job.source.insert_many([edited, *({"_id": n, "text": TEXT, "more": n} for n in (1, 3))])
    job.database[ARCHIVE].delete_many({"_id": {"$in": [3, 4]}})

    done = job.command("restore", "5", "1", "4", "2", "3", "0", "--json")

    told = json.loads(done.stdout)
    assert (done.returncode, told["restored"], told["changed"]) == (3, [5, 1, 2, 3], [2])
    assert told["not_restored"] == [{"id": 4, "refused_by": None, "reason": "vanished"}]
    assert archived(job).keys() == {2}
    assert records(job, "unique") == {n: before[n] for n in (0, 1, 3, 5)} | {2: records(job)[2]}


def test_records_whose_keeper_is_gone_come_back_to_be_decided_again(decided: Job) -> None:
    before = records(decided)
    sweep(decided)
    lost = next(iter(dropped(decided).values()))
    orphans = {one for one, keeper in dropped(decided).items() if keeper == lost}
    decided.source.delete_one({"_id": lost})

    assert decided.command("sync", "--yes").returncode == 0

    assert orphans - dropped(decided).keys()
    assert archived(decided).keys() == before.keys() - records(decided).keys() - {lost}
    assert answer(decided, "verify")["differences"] == {}
    sweep(decided)
    assert archived(decided).keys() == dropped(decided).keys()
    assert records(decided) | archived(decided) == {key: before[key] for key in before if key != lost}


def test_commands_that_look_find_swept_records(decided: Job) -> None:
    one, keeper = next(iter(dropped(decided).items()))
    shown = decided.command("group", str(keeper)).stdout
    sweep(decided)

    assert decided.command("group", str(keeper)).stdout == shown
    about = answer(decided, "why", str(one))
    assert (about["in_source"], about["in_archive"]) == (False, True)


def refused(job: Job, archive: str, *more: str) -> str:
    before = job.hash()
    done = job.command("sweep", "--archive", archive, "--yes", *more)
    assert done.returncode == 78, done.stderr
    assert job.hash() == before
    return done.stderr


def test_collections_that_cannot_be_an_archive_are_refused_by_name(decided: Job) -> None:
    database = decided.database
    database.create_collection("view", viewOn="pages", pipeline=[])
    database.create_collection("small", capped=True, size=1 << 20)
    database.create_collection("times", timeseries={"timeField": "at"})
    database.create_collection("folded", collation={"locale": "en", "strength": 2})
    database["passing"].create_index("seen", expireAfterSeconds=60)

    assert "is the source itself" in refused(decided, "pages")
    assert "is a view" in refused(decided, "view")
    assert "is a capped collection" in refused(decided, "small")
    assert "is a timeseries" in refused(decided, "times")
    assert "default collation" in refused(decided, "folded")
    assert "the index seen_1, by which the server deletes records" in refused(decided, "passing")
    if decided.has_copies:
        assert "is the target itself" in refused(decided, "unique")


def test_a_capped_source_is_refused_since_a_record_that_comes_back_would_push_another_out(job: Job) -> None:
    job.database.create_collection("pages", capped=True, size=1 << 20)
    fill(job)
    bare = job.without_copies()
    bare.decide("backfill")
    assert "the source is a capped collection" in refused(bare, ARCHIVE)


@pytest.mark.parametrize("command", ["restore", "undo", "sync"])
def test_no_record_comes_back_to_a_source_that_was_replaced_by_a_capped_collection(
    decided: Job, command: str
) -> None:
    (run,) = {row["run"] for row in decided.ledger("dropped").find()}
    sweep(decided)
    left = list(decided.source.find())
    decided.database.drop_collection("pages")
    decided.database.create_collection("pages", capped=True, size=1 << 20, max=len(left))
    decided.source.insert_many(left)
    decided.command("run", "--moved")
    due, keeper = next(iter(dropped(decided).items()))
    if command == "sync":
        decided.source.replace_one({"_id": keeper}, {"_id": keeper, "data": OTHER})
    before = records(decided), archived(decided), decided.rows("dropped")
    arguments = {"restore": [str(due)], "undo": [run, "--yes"], "sync": ["--yes"]}[command]

    done = decided.command(command, *arguments)

    assert done.returncode == 78
    assert "is a capped collection by now" in done.stderr
    assert (records(decided), archived(decided), decided.rows("dropped")) == before


@pytest.mark.parametrize("name", ["", ".a", "a..b", "a$b", "system.a", "other.dedup.dropped", "a" * 300])
def test_a_name_that_no_archive_can_have_is_refused_first(decided: Job, name: str) -> None:
    before = decided.hash()
    for choice in ("--dry-run", "--yes"):
        done = decided.command("sweep", "--archive", name, choice)
        assert (done.returncode, "expected the name of a collection" in done.stderr) == (64, True)
    assert decided.hash() == before


def test_a_new_archive_is_named_without_the_database(decided: Job) -> None:
    database, before = decided.database, decided.hash()
    done = decided.command("sweep", "--archive", f"{database.name}.old", "--yes")
    assert (done.returncode, f"write old instead of {database.name}.old" in done.stderr) == (64, True)
    assert decided.hash() == before

    database.create_collection(f"{database.name}.old")
    assert decided.command("sweep", "--archive", f"{database.name}.old", "--yes").returncode == 0


def test_other_records_with_the_ids_are_refused_before_anything_is_written(decided: Job) -> None:
    one = next(iter(dropped(decided)))
    decided.database["full"].insert_many([{"_id": "mine"}, {"_id": one, "data": "mine"}])

    assert f"has another record with the _id {one}" in refused(decided, "full")


def test_an_archive_is_named_once_and_must_stay(decided: Job) -> None:
    assert "--archive COLLECTION" in decided.command("sweep", "--yes").stderr
    sweep(decided)
    assert "were moved to pages_archive before" in refused(decided, "elsewhere")
    decided.database[ARCHIVE].rename("gone")

    moved = str(next(iter(dropped(decided))))
    for command in (["sweep", "--yes"], ["changes"], ["sync", "--yes"], ["undo", "x"], ["restore", moved]):
        done = decided.command(*command)
        assert done.returncode in (64, 65), (command, done.stderr)
    assert "dropped, renamed or restored" in decided.command("changes").stderr
    # Runs, and commands that look, do not need it.
    for command in (["run"], ["status"], ["list"]):
        assert decided.command(*command).returncode == 0, command


def test_an_archive_that_was_renamed_is_accepted_under_its_new_name(decided: Job) -> None:
    before = records(decided)
    one, *_ = dropped(decided)
    sweep(decided)
    decided.database[ARCHIVE].rename("elsewhere")
    assert "--archive COLLECTION --moved" in decided.command("sweep", "--yes").stderr

    done = answer(decided, "sweep", "--archive", "elsewhere", "--moved", "--yes")

    assert (done["moved"], done["already"]) == (0, len(dropped(decided)))
    restore(decided, one)
    assert records(decided)[one] == before[one]
    # An archive that is there is not replaced.
    assert "were moved to elsewhere before" in refused(decided, "third", "--moved")


def test_a_dropped_archive_is_replaced_only_if_a_person_says_so(decided: Job) -> None:
    sweep(decided)
    lost, gone = len(dropped(decided)), next(iter(dropped(decided)))
    decided.database[ARCHIVE].drop()
    decided.source.insert_many(number_records(made_up_records()[:30], 2000))
    decided.decide("run")
    assert decided.command("sweep", "--yes").returncode == 65
    assert ARCHIVE not in decided.database.list_collection_names()
    preview = answer(decided, "sweep", "--moved", "--dry-run")
    assert ARCHIVE not in decided.database.list_collection_names()

    done = answer(decided, "sweep", "--moved", "--yes")

    new = {one for one in dropped(decided) if one >= 2000}
    assert (preview["moved"], done["moved"], done["already"]) == (len(new), len(new), 0)
    assert archived(decided).keys() == new
    assert len(dropped(decided)) == lost + len(new)
    assert answer(decided, "sweep", "--yes")["already"] == len(new)
    said = decided.command("restore", str(gone))
    assert (said.returncode, "the source no longer has it" in said.stdout) == (3, True)
    restore(decided, min(new))
    assert answer(decided, "changes")["vanished"]["dropped"] == lost


def test_an_archive_that_is_lost_in_an_undo_is_replaced_and_the_undo_goes_on(
    decided: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The removal of the killed undo may arrive for that long, and a command that comes after it waits.
    monkeypatch.setattr(move_between_source_and_archive, "BEGIN_SECONDS", 1)
    monkeypatch.setattr(move_between_source_and_archive, "REMOVAL_SECONDS", 1)
    sweep(decided)
    decided.source.insert_many(number_records(made_up_records()[:30], 2000))
    run = decided.decide("run").run
    sweep(decided)
    killed_after(lambda event: event.command.get("delete") == ARCHIVE, lambda: undo(decided, run))
    free_lease(decided)
    copies = list(decided.database[ARCHIVE].with_options(RAW).find())
    decided.database[ARCHIVE].drop()
    decided.database[ARCHIVE].with_options(RAW).insert_many(copies)
    again, accept = ("undo", run, "--yes"), ("sweep", "--archive", ARCHIVE, "--moved", "--yes")
    told = decided.command(*again)
    assert (told.returncode, "--archive COLLECTION --moved" in told.stderr) == (65, True)
    assert "half undone" in decided.command(*accept, "--dry-run").stderr

    accepted = decided.command(*accept)

    assert accepted.returncode == 65
    assert "is the archive from now on" in accepted.stderr
    assert archived(decided) == {one["_id"]: bytes(one.raw) for one in copies}
    assert decided.command(*again).returncode == 0
    assert decided.decide("run").counts.read == 30
    assert answer(decided, "verify")["differences"] == {}
    assert answer(decided, "sweep", "--yes")["already"] == len(copies)


def test_during_an_undo_no_archive_is_accepted_where_none_was(decided: Job) -> None:
    run = decided.ledger("runs").find_one({"mode": "backfill"})
    assert run is not None
    killed_after_setting("undo", lambda: undo(decided, run["_id"]))
    free_lease(decided)

    told = decided.command("sweep", "--archive", ARCHIVE, "--moved", "--yes")

    assert (told.returncode, "half undone; finish the undo first" in told.stderr) == (65, True)
    assert ARCHIVE not in decided.database.list_collection_names()


def test_records_that_vanished_from_the_archive_and_are_there_again_are_decided_again(decided: Job) -> None:
    before = dict(dropped(decided))
    sweep(decided)
    archive, lost = decided.database[ARCHIVE].with_options(RAW), sorted(archived(decided))[:3]
    copies = list(archive.find({"_id": {"$in": lost}}))
    archive.delete_many({"_id": {"$in": lost}})
    answer(decided, "sync", "--yes")
    assert answer(decided, "verify")["differences"] == {}
    archive.insert_many(copies)

    assert answer(decided, "verify", code=65)["differences"]["returned"]["count"] == 3
    told = decided.command("restore", str(lost[0]))
    assert (told.returncode, "is in the archive again: dedup-job sync" in told.stderr) == (64, True)
    assert answer(decided, "sync", "--yes")["updated"]["read"] == 3

    assert {one: dropped(decided)[one] for one in lost} == {one: before[one] for one in lost}
    assert answer(decided, "verify")["differences"] == {}
    assert answer(decided, "sweep", "--yes")["moved"] == 3
    assert sorted(archived(decided)) == sorted(before)


@pytest.mark.parametrize("is_edited", [False, True])
def test_kept_records_that_only_an_older_archive_has_come_back_to_the_source(
    decided: Job, is_edited: bool
) -> None:
    sweep(decided)
    keepers = {keeper for keeper in dropped(decided).values() if keeper not in dropped(decided)}
    for number, keeper in enumerate(sorted(keepers)[:3]):
        decided.source.update_one({"_id": keeper}, {"$set": {"data": f"{OTHER} {number}"}})
    older = {name: list(decided.database[name].find()) for name in (decided.source.name, ARCHIVE)}
    answer(decided, "sync", "--yes")
    brought_back = {row["_id"] for row in older[ARCHIVE]} - archived(decided).keys()
    heirs = sorted(brought_back - dropped(decided).keys())
    assert heirs
    if is_edited:
        decided.source.update_one({"_id": heirs[0]}, {"$set": {"data": OTHER * 2}})
        answer(decided, "sync", "--yes")
    for name, contents in older.items():
        decided.database[name].delete_many({})
        decided.database[name].insert_many(contents)

    verified = answer(decided, "verify", code=65)["differences"]
    assert verified["kept_in_archive"]["count"] == len(heirs)
    assert answer(decided, "changes")["kept_in_archive"] == len(heirs)
    assert f"{len(heirs)}  kept, and only in the archive: sync" in decided.command("changes").stdout
    assert answer(decided, "sync", "--dry-run")["bring_back"] == len(heirs)
    assert answer(decided, "sync", "--yes")["updated"]["brought_back"] == len(heirs)

    assert set(heirs) <= records(decided).keys()
    # The edited record's duplicates have a keeper of their own since its edit, and it is one of them again.
    assert set(heirs) & dropped(decided).keys() == set(heirs[:1] if is_edited else ())
    assert answer(decided, "verify")["differences"] == {}
    assert "updated" not in answer(decided, "sync", "--yes")


def test_records_that_were_swept_after_the_ledgers_backup_are_named_until_the_source_has_them(
    decided: Job,
) -> None:
    sweep(decided)
    names = [decided.ledger(name).name for name in LEDGER] + [decided.target.name]
    backup = {name: list(decided.database[name].with_options(RAW).find()) for name in names}
    # Their fields are not in the order of their names.
    decided.source.insert_many({**one, "a": 1} for one in number_records(made_up_records()[:40], 1000))
    decided.decide("run")
    sweep(decided)
    swept = archived(decided)
    late = {one for one in archived(decided) if one >= 1000}
    for name, contents in backup.items():
        decided.database[name].delete_many({})
        if contents:
            decided.database[name].insert_many(contents)

    decided.decide("run")
    verified = answer(decided, "verify", code=65)["differences"]
    preview, told = answer(decided, "sync", "--dry-run"), answer(decided, "sync", "--yes")

    assert {kind: one["count"] for kind, one in verified.items()} == {"undecided_in_archive": len(late)}
    assert answer(decided, "changes")["undecided_in_archive"] == len(late)
    assert f"{len(late)}  only in the archive" in decided.command("changes").stdout
    assert preview["undecided_in_archive"] == told["undecided_in_archive"] == len(late)
    for command in (("sync", "--dry-run"), ("sync", "--yes")):
        assert f"{len(late)}  only in the archive" in decided.command(*command).stdout

    # As docs/how-to/without-a-second-copy.md says.
    source = {"from": decided.source.name, "localField": "_id", "foreignField": "_id", "as": "_in_pages"}
    decided.database[ARCHIVE].aggregate(
        [
            {"$lookup": source},
            {"$match": {"_in_pages": []}},
            {"$unset": "_in_pages"},
            {"$merge": {"into": decided.source.name, "whenMatched": "fail"}},
        ]
    )
    assert answer(decided, "verify")["differences"] == {}
    assert answer(decided, "changes", "--content")["changed"]["records"] == []
    assert "only in the archive" not in decided.command("sync", "--yes").stdout
    assert answer(decided, "sweep", "--yes")["stay"] == {}
    assert answer(decided, "verify")["differences"] == {}
    assert archived(decided) == swept


def test_a_sweep_of_nearly_everything_is_stopped(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = job.without_copies()
    bare.source.insert_many([{"_id": n, "text": OTHER} for n in range(20)])
    bare.set("limits", max_drop_share=0.5)
    bare.decide("backfill")
    monkeypatch.setattr("dedup_job.pipeline.guards.MIN_RECORDS_FOR_SHARE", 10)
    from dedup_job.commands.sweep import guard_share
    from dedup_job.errors import GuardStop

    with bare.context() as context:
        guard_share(context, 0.5, is_noted=True)
        with pytest.raises(GuardStop, match="19 of 20 decided records would leave the source"):
            guard_share(context, 0.5, is_noted=False)
