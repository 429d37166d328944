"""`promote` puts the target in the place of its source, loses nothing, and the job goes on with it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from bson import decode
from pymongo import IndexModel, MongoClient, monitoring

from dedup_job import config
from dedup_job.commands import promote as promoting
from dedup_job.commands.promotion_checks import check_promote, check_return, open_pair
from dedup_job.errors import LeaseHeld, StateError
from dedup_job.mongo.server import LEDGER_NAMES, WRITE
from dedup_job.mongo.source import Source
from scripts.dev.local_mongod import LocalMongod
from tests.support.console import Console, Said
from tests.support.faulty_runs import install
from tests.support.job import RAW, ROOT, Job
from tests.support.kill_in_process import (
    Listener,
    at_command,
    at_rename,
    commands_of,
    free_lease,
    killed,
    killed_after,
    killed_after_setting,
    mortal,
)
from tests.support.made_up_records import made_up_records, number_records
from tests.support.stopped_process import stopped

OTHER = "完全不同的另一段文字，谁也没有见过它。"
AWAY = ("pages", "unique", "pages_before")


@pytest.fixture
def decided(job: Job) -> Job:
    """Return a job whose backfill has decided made-up records, with a refused one."""
    job.set("source", fields=["data"])
    job.database.create_collection("unique", validator={"bad": {"$exists": False}})
    job.source.insert_many(
        [*number_records(made_up_records()[:200]), {"_id": 900, "data": OTHER[1:], "bad": True}]
    )
    assert job.decide("backfill").counts.duplicate > 40
    return job


@pytest.fixture
def console(decided: Job, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def call(*arguments: str, code: int = 0) -> Any:
        done = Console(capsys, decided.config_file())(*arguments, "--json")
        assert done.code == code, done.err
        return json.loads(done.out)

    return call


def records(job: Job, name: str) -> dict[str, bytes]:
    found = job.database[name].with_options(RAW).find()
    return {repr(one["_id"]): bytes(one.raw) for one in found}


def collections(job: Job) -> dict[str, str]:
    """Return the UUIDs of the collections that are not the ledger's, by name."""
    return {
        one["name"]: one["info"]["uuid"].hex()
        for one in job.database.list_collections()
        if ".dedup." not in one["name"]
    }


def head(job: Job) -> dict[str, Any]:
    found = job.ledger("head").find_one()
    assert found is not None
    return {name: value for name, value in found.items() if name not in ("fence", "lease")}


def move(job: Job, is_back: bool = False, skip_verify: bool = True) -> Any:
    """Promote, or take a promotion back, in this process."""
    with open_pair(config.check_settings(job.tables, "test")) as pair:
        if is_back:
            intended = check_return(pair, skip_verify, lambda count: None)
        else:
            intended = check_promote(pair, None, skip_verify, False, lambda count: None)
        if intended is None:
            return promoting.already_done(pair, is_back)
        return promoting.promote(pair, intended, skip_verify, lambda count: None)


def promoted(job: Job) -> Job:
    """Promote, and set what the command says."""
    move(job)
    job.tables["target"]["copy"] = False
    return job


def test_source_and_target_are_renamed_and_nothing_else_changes(
    decided: Job, console: Callable[..., Any]
) -> None:
    source, target = records(decided, "pages"), records(decided, "unique")
    uuids, decisions = collections(decided), decided.plans()
    before = decided.hash()

    preview = console("promote", "--dry-run")

    assert decided.hash() == before
    assert (preview["dropped"], preview["refused"], preview["options"]) == (
        len(source) - len(target) - 1,
        1,
        [],
    )
    done = console("promote", "--yes")
    assert (done["arrived"], done["not_copied_count"], done["others"]) == (0, 0, [])
    assert records(decided, "pages") == target
    assert records(decided, "pages_before") == source
    assert collections(decided) == {"pages": uuids["unique"], "pages_before": uuids["pages"]}
    assert decided.plans() == decisions
    assert console("promote", "--yes")["already"]


def test_the_output_says_what_to_change_and_a_run_with_the_old_settings_does_too(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(capsys, decided.config_file())
    said = console("promote", "--yes")
    assert (said.code, "copy = false" in said.out, "pages_before" in said.out) == (0, True, True)
    run = console("run")
    assert (run.code, "add copy = false to [target]" in run.err) == (78, True)


def test_a_nightly_run_after_a_promotion_decides_as_without_it(
    decided: Job, twin: Callable[[], Job], console: Callable[..., Any]
) -> None:
    late = number_records(made_up_records()[150:400], 2000)
    other = twin()
    decided.source.insert_many(late)
    other.decide("run")
    expected, rows = other.plans(), (other.rows("dropped"), other.rows("exceptions"))
    decided.source.delete_many({"_id": {"$gte": 2000}})

    job = promoted(decided)
    job.source.insert_many(late)
    counts = job.decide("run").counts

    assert counts.read == len(late)
    assert counts.duplicate > 50
    assert job.plans() == expected
    assert (job.rows("dropped"), job.rows("exceptions")) == rows
    assert job.decide("run").counts.read == 0
    assert console("verify")["differences"] == {}


def test_what_was_dropped_before_is_neither_changed_nor_vanished_afterwards(
    decided: Job, console: Callable[..., Any]
) -> None:
    promoted(decided)
    decided.config_file()
    found = console("changes", "--content")
    assert (found["new"], found["missed"], found["changed"]["records"], found["vanished"]["records"]) == (
        0, 0, [], [],
    )  # fmt: skip
    assert console("sync", "--dry-run")["exit_code"] == 0
    assert console("verify")["differences"] == {}
    assert console("status")["promotion"] == {"state": "done", "kept_as": "pages_before"}
    decisions = decided.plans()
    console("sync", "--yes")
    assert decided.plans() == decisions

    row = decided.ledger("dropped").find_one()
    assert row is not None
    decided.source.delete_one({"_id": row["keeper"]})
    assert console("changes")["vanished"]["kept"] == 1
    console("sync", "--yes")
    assert console("verify")["differences"] == {}


def test_new_records_are_marked_and_those_of_before_are_not_missed(
    decided: Job, console: Callable[..., Any]
) -> None:
    promoted(decided)
    decided.config_file()
    decided.source.insert_many(number_records(made_up_records()[:20], 2000))
    dropped = decided.decide("run").counts.duplicate
    done = console("mark", "--yes")
    assert (done["marked"], done["unmarked"]) == (dropped, {})
    assert console("verify")["differences"] == {}


def test_records_that_were_dropped_before_are_shown_with_their_texts(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    promoted(decided)
    listed = Console(capsys, decided.config_file())("list", "--json").lines
    assert len(listed) > 40
    assert all(one["text"] and one["keeper_text"] for one in listed)


def test_what_was_swept_since_comes_back_before_a_promotion_is_taken_back(
    decided: Job, console: Callable[..., Any]
) -> None:
    promoted(decided)
    decided.config_file()
    decided.source.insert_one({"_id": 2000, **_text(decided)})
    run = decided.decide("run").run
    assert console("sweep", "--archive", "pages_archive", "--yes")["moved"] == 1
    console("promote", "--back", "--yes", code=64)
    console("undo", run, "--yes")

    assert console("promote", "--back", "--yes")["arrived"] == 1

    assert decided.source.find_one({"_id": 2000})
    decided.tables["target"].pop("copy")
    decided.config_file()
    assert console("sweep", "--archive", "pages_archive", "--yes")["moved"] > 40
    assert console("verify")["differences"] == {}


def test_what_was_swept_and_has_come_back_stands_in_no_promotions_way(
    decided: Job, console: Callable[..., Any]
) -> None:
    (run,) = decided.ledger("runs").find()
    console("sweep", "--archive", "pages_archive", "--yes")
    console("undo", run["_id"], "--yes")
    decided.decide("backfill")

    promoted(decided)

    decided.config_file()
    assert console("verify")["differences"] == {}
    decided.source.insert_one({"_id": 2000, **_text(decided)})
    decided.decide("run")
    assert console("sweep", "--yes")["moved"] == 1
    assert console("verify")["differences"] == {}


def test_a_swept_record_that_no_undo_brings_back_is_moved_by_hand_before_a_promotion_is_taken_back(
    decided: Job, console: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    row = decided.ledger("dropped").find_one()
    assert row is not None
    promoted(decided)
    decided.config_file()
    decided.source.insert_one(decided.database["pages_before"].find_one({"_id": row["_id"]}))
    assert console("sweep", "--archive", "pages_archive", "--yes")["moved"] == 1
    said = Console(capsys, decided.config_file())("promote", "--back", "--yes")
    assert (said.code, "move them into a collection of your own" in said.err) == (64, True)
    decided.database["pages_archive"].rename("mine")

    console("promote", "--back", "--yes")

    decided.tables["target"].pop("copy")
    decided.config_file()
    assert console("verify")["differences"] == {}
    assert console("restore", str(row["_id"]))["restored"] == [row["_id"]]
    assert console("sweep", "--archive", "pages_archive", "--yes")["moved"] > 40
    assert console("verify")["differences"] == {}


@pytest.mark.parametrize("kind", [{}, {"viewOn": "pages"}], ids=["a_collection", "a_view"])
def test_a_collection_with_the_name_of_the_target_is_in_the_way_of_going_back(
    decided: Job, console: Callable[..., Any], capsys: pytest.CaptureFixture[str], kind: dict[str, str]
) -> None:
    console("promote", "--yes")
    decided.database.create_collection("unique", **kind)
    before = head(decided)
    said = Console(capsys, decided.config_file())("promote", "--back", "--yes")
    assert (said.code, "rename that collection, or drop it if it is a view" in said.err) == (64, True)
    assert head(decided) == before
    decided.database["unique"].drop()

    assert console("promote", "--back", "--yes")["back"]


def test_a_promotion_whose_collections_have_their_old_names_again_can_be_taken_back(
    decided: Job, console: Callable[..., Any]
) -> None:
    before = collections(decided)
    console("promote", "--yes")
    decided.database["pages"].rename("unique")
    decided.database["pages_before"].rename("pages")

    console("promote", "--back", "--yes")

    assert collections(decided) == before
    assert console("verify")["differences"] == {}


def test_going_back_with_a_ledger_from_before_the_promotion_says_what_was_exchanged(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    before = decided.ledger("head").find_one() or {}
    move(decided)
    decided.ledger("head").replace_one({}, before)

    said = Console(capsys, decided.config_file())("promote", "--back", "--yes")

    assert (said.code, "renamed to the source's name" in said.err) == (65, True)


def test_going_back_restores_names_ledger_and_runs(decided: Job, console: Callable[..., Any]) -> None:
    before, uuids = head(decided), collections(decided)
    source, target = records(decided, "pages"), records(decided, "unique")
    console("promote", "--yes")

    done = console("promote", "--back", "--yes")

    assert (done["back"], done["arrived"]) == (True, 0)
    assert {**head(decided), "looked": before["looked"]} == {**before, "promotion": None, "mark": None}
    assert collections(decided) == uuids
    assert (records(decided, "pages"), records(decided, "unique")) == (source, target)
    assert console("verify")["differences"] == {}
    assert decided.decide("run").counts.read == 0
    assert console("promote", "--back", "--yes")["already"]


def test_records_that_were_written_meanwhile_come_along_on_the_way_back(
    decided: Job, console: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    console("promote", "--yes")
    decided.source.insert_many([{"_id": 2000, "data": OTHER}, {"_id": 2001, **_text(decided)}])

    said = Console(capsys, decided.config_file())("promote", "--back", "--yes").out
    assert "2  since the promotion, and copied; they stay in the target, too" in said

    assert {one["_id"] for one in decided.source.find({"_id": {"$gte": 2000}})} == {2000, 2001}
    assert console("verify")["differences"] == {}
    # Both are in the target by now, so none of them is dropped.
    assert decided.decide("run").counts.read == 2
    assert console("verify")["differences"] == {}


def test_records_that_arrived_since_push_none_out_of_a_capped_source(
    decided: Job, console: Callable[..., Any]
) -> None:
    count = decided.source.count_documents({})
    decided.database.command("convertToCapped", "pages", size=1 << 20)
    decided.database.command("collMod", "pages", cappedMax=count)
    decided.source.create_index("_id")
    decided.command("run", "--moved")
    before = records(decided, "pages")
    assert {"capped", "max", "size"} <= {*console("promote", "--dry-run")["options"]}
    console("promote", "--yes")
    decided.source.insert_one({"_id": 2000, "data": OTHER})

    done = console("promote", "--back", "--yes", code=3)

    assert (done["arrived"], done["not_copied"]) == (0, [2000])
    assert records(decided, "pages") == before
    assert decided.target.find_one({"_id": 2000})
    assert console("verify")["differences"] == {}


def _text(job: Job) -> dict[str, Any]:
    """Return the text of a record that was kept."""
    row = job.ledger("dropped").find_one()
    assert row is not None
    kept = job.database["pages"].find_one({"_id": row["keeper"]}, {"_id": 0})
    assert kept is not None
    return dict(kept)


def test_what_was_decided_since_is_not_taken_back_before_it_is_undone(
    decided: Job, console: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    promoted(decided)
    decided.config_file()
    decided.source.insert_one({"_id": 2000, **_text(decided)})
    run = decided.decide("run").run
    said = Console(capsys, decided.config_file())("promote", "--back", "--yes")
    assert (said.code, "were decided since the promotion" in said.err) == (64, True)
    assert f"dedup-job undo -c {decided.config_file()} {run}" in said.err

    console("undo", run, "--yes")
    assert console("promote", "--back", "--yes")["arrived"] == 1
    assert console("promote", "--back", "--yes")["already"]


def test_a_record_that_was_restored_since_is_in_the_target_after_going_back(
    decided: Job, console: Callable[..., Any]
) -> None:
    kept = {one["_id"] for one in decided.target.find({}, {"_id": 1})}
    row = decided.ledger("dropped").find_one()
    assert row is not None
    promoted(decided)
    copied = decided.database["pages_before"].find_one({"_id": row["_id"]})
    assert copied is not None
    decided.source.insert_one(copied)
    console("restore", str(row["_id"]))
    assert console("promote", "--back", "--yes")["arrived"] == 0

    decided.set("target", copy=True)
    assert {one["_id"] for one in decided.target.find({}, {"_id": 1})} == kept | {row["_id"]}
    assert decided.differences() == {}
    assert decided.decide("run").counts.read == 0


def edit(job: Job) -> None:
    job.source.update_one({"_id": 0}, {"$set": {"views": -1}})


def delete(job: Job) -> None:
    job.source.delete_one({"_id": 0})


@pytest.mark.parametrize("change", [edit, delete])
def test_changes_since_the_promotion_are_not_lost_by_going_back_unless_a_person_says_so(
    decided: Job, console: Callable[..., Any], change: Callable[[Job], None]
) -> None:
    console("promote", "--yes")
    change(decided)
    before = decided.hash()
    console("promote", "--back", "--yes", code=64)
    assert decided.hash() == before
    assert console("promote", "--back", "--yes", "--skip-verify")["arrived"] == 0


def test_a_run_of_before_is_not_undone_and_a_record_dropped_before_is_named_where_it_is(
    decided: Job, console: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run, row = decided.ledger("runs").find_one(), decided.ledger("dropped").find_one()
    assert run is not None
    assert row is not None
    promoted(decided)
    said = Console(capsys, decided.config_file())
    undo, restore = said("undo", run["_id"], "--yes"), said("restore", str(row["_id"]))
    assert (undo.code, f"dedup-job promote -c {decided.config_file()} --back" in undo.err) == (64, True)
    advice = f"copy these from {decided.database.name}.pages_before into the source"
    assert (restore.code, advice in restore.out) == (3, True)

    copied = decided.database["pages_before"].find_one({"_id": row["_id"]})
    assert copied is not None
    decided.source.insert_one(copied)
    assert console("restore", str(row["_id"]))["restored"] == [row["_id"]]
    assert console("verify")["differences"] == {}


def test_marks_of_the_source_stay_there_and_count_again_after_going_back(
    decided: Job, console: Callable[..., Any]
) -> None:
    marked = console("mark", "--yes")["marked"]
    console("promote", "--yes")
    assert head(decided)["mark"] is None
    assert decided.database["pages_before"].count_documents({"dedup": {"$exists": True}}) == marked
    console("promote", "--back", "--yes")
    assert console("mark", "--yes")["already"] == marked


def pending(job: Job) -> None:
    job.source.insert_one({"_id": 1000, "data": OTHER})
    killed_after_setting("pending", lambda: job.decide("run"))


def lease(job: Job) -> None:
    holder = {"host": "web1", "boot": "b", "pid": 1, "namespace": "n", "start": 1}
    until = datetime.now(UTC) + timedelta(hours=1)
    job.ledger("head").update_one({}, {"$set": {"lease": {**holder, "until": until}}})


def adopting(job: Job) -> None:
    job.ledger("head").update_one({}, {"$set": {"adopting": True}})


def undecided(job: Job) -> None:
    job.source.insert_one({"_id": 1000, "data": OTHER})


def altered(job: Job) -> None:
    job.target.update_one({}, {"$set": {"views": -1}})


def taken(job: Job) -> None:
    job.database["pages_before"].insert_one({})


def taken_by_a_view(job: Job) -> None:
    job.database.command({"create": "pages_before", "viewOn": "pages"})


def filtered(job: Job) -> None:
    job.set("source", filter='{"_id": {"$gte": 0}}')
    job.ledger("head").update_one({}, {"$unset": {"filter": ""}})


def index(job: Job) -> None:
    job.source.create_index("views")


def without_copies(job: Job) -> None:
    job.tables = job.without_copies().tables
    job.decide("backfill")


def swept(job: Job) -> None:
    assert job.command("sweep", "--archive", "pages_archive", "--yes").returncode == 0


def elsewhere(job: Job) -> None:
    job.set("target", database=f"{job.database.name}_other")


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (pending, 65, "finish it first: dedup-job run -c /"),
        (lease, 75, "a run is in progress"),
        (adopting, 78, "an adoption is unfinished"),
        (undecided, 65, "undecided 1"),
        (edit, 65, "changed 1"),
        (delete, 65, "vanished 1"),
        (altered, 65, "altered 1"),
        (taken, 64, "pages_before exists; choose another name with --keep-as"),
        (taken_by_a_view, 64, "pages_before exists; choose another name with --keep-as"),
        (filtered, 78, "job.toml --refilter"),
        (index, 78, "views_1; build them with: dedup-job backfill -c /"),
        (without_copies, 64, "there is no target to promote"),
        (swept, 64, "sweep has moved dropped records to pages_archive"),
        (elsewhere, 78, "mongorestore with --nsFrom"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_stands_in_the_way_is_named_before_anything_is_written(
    decided: Job, capsys: pytest.CaptureFixture[str], change: Callable[[Job], None], code: int, says: str
) -> None:
    change(decided)
    before = decided.hash()
    said = Console(capsys, decided.config_file())("promote", "--yes")
    *progress, line = said.err.splitlines()
    assert (said.code, says in line) == (code, True), said.err
    assert all("progress" in one for one in progress)
    assert decided.hash() == before


@pytest.mark.parametrize("name", ["", "a..b", "$a", "system.x", "x.dedup.head", "a" * 250])
def test_names_that_no_collection_can_have_are_refused(
    decided: Job, console: Callable[..., Any], name: str
) -> None:
    console("promote", "--yes", "--keep-as", name, code=64)


def test_the_new_name_of_the_source_is_given_without_the_database(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    name = decided.database.name
    said = Console(capsys, decided.config_file())("promote", "--yes", "--keep-as", f"{name}.old")
    assert (said.code, f"write old instead of {name}.old" in said.err) == (64, True), said.err


def test_missing_indexes_can_be_accepted_and_expiry_is_mentioned(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    decided.source.create_indexes([IndexModel("views"), IndexModel("seen", expireAfterSeconds=3600)])
    decided.target.create_index("seen")
    said = Console(capsys, decided.config_file())("promote", "--yes", "--skip-indexes")
    assert said.code == 0, said.err
    line = next(line for line in said.out.splitlines() if "runCommand" in line)
    assert '{collMod: "pages", index: {"name": "seen_1", "expireAfterSeconds": 3600}}' in line


def test_options_that_the_target_lacks_are_shown(decided: Job, console: Callable[..., Any]) -> None:
    decided.database.command("collMod", "pages", validator={"worse": {"$exists": False}})
    assert "validator" in console("promote", "--dry-run")["options"]


def test_a_router_is_refused(
    decided: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "is_sharded", lambda self: True)
    said = Console(capsys, decided.config_file())("promote", "--yes")
    assert (said.code, "router of a sharded cluster" in said.err) == (78, True)


def test_servers_that_differ_are_refused(
    decided: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalMongod() as other:
        monkeypatch.setenv("DEDUP_TARGET_URI", other.uri)
        decided.decide("backfill")
        said = Console(capsys, decided.config_file())("promote", "--yes")
    assert (said.code, "on different servers" in said.err) == (78, True)


def test_other_commands_wait_for_a_half_done_promotion_and_it_can_be_taken_back(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    before = collections(decided)
    killed_after(lambda event: event.command_name == "renameCollection", lambda: move(decided))
    free_lease(decided)
    assert collections(decided) == {"pages_before": before["pages"], "unique": before["unique"]}
    console = Console(capsys, decided.config_file())
    for command in ("run", "verify", "status"):
        said = console(command)
        assert (said.code, f"finish it: dedup-job promote -c {decided.config_file()}" in said.err) == (
            65,
            True,
        ), said.err

    assert console("promote", "--back", "--yes").code == 0

    assert collections(decided) == before
    assert console("verify").code == 0


def put_back(job: Job, *names: str) -> None:
    """Restore collections from a dump of this moment: the same records in a new collection."""
    for name in names:
        kept = list(job.database[name].with_options(RAW).find())
        job.database[name].drop()
        job.database[name].with_options(RAW).insert_many(kept)


@pytest.mark.parametrize("names", [("unique",), ("pages",), ("pages", "unique")], ids=" ".join)
@pytest.mark.parametrize("state", ["begun", "returning"])
def test_a_half_done_promotion_of_collections_that_were_put_back_renames_nothing_and_can_be_ended(
    decided: Job, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], state: str
) -> None:
    killed_after_setting("promotion", lambda: move(decided))
    decided.ledger("head").update_one({}, {"$set": {"promotion.state": state}})
    put_back(decided, *names)
    free_lease(decided)
    before, whole = collections(decided), {name: records(decided, name) for name in ("pages", "unique")}
    console = Console(capsys, decided.config_file())

    said = console("promote", "--yes")
    assert said.code == 65
    if state == "begun":
        assert "nothing was renamed" in said.err
        assert f"dedup-job promote -c {decided.config_file()} --back" in said.err
    assert console("promote", "--back", "--yes", "--dry-run").code == 0
    assert console("promote", "--back", "--yes").code == 0

    assert collections(decided) == before
    assert console("run").code == 65
    assert console("run", "--moved").code == 0
    assert console("verify").code == 0
    assert {name: records(decided, name) for name in ("pages", "unique")} == whole
    assert console("promote", "--yes").code == 0


def test_records_that_arrived_since_come_along_on_the_way_back_to_a_source_that_was_put_back(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    move(decided)
    decided.source.insert_one({"_id": 7000, "data": OTHER})
    renames = count(1)

    def is_second_rename(event: monitoring.CommandStartedEvent) -> bool:
        return event.command_name == "renameCollection" and next(renames) == 2

    killed_after(is_second_rename, lambda: move(decided, is_back=True))
    put_back(decided, "pages")
    free_lease(decided)
    console = Console(capsys, decided.config_file())

    said = console("promote", "--back", "--yes", "--json")

    assert (said.code, said.json["arrived"]) == (0, 1)
    assert decided.source.find_one({"_id": 7000})
    assert console("run", "--moved").code == 0
    assert console("verify").code == 0


def test_a_half_done_promotion_whose_target_was_dropped_leaves_the_source_where_it_is(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_after_setting("promotion", lambda: move(decided))
    decided.target.drop()
    free_lease(decided)
    before, console = collections(decided), Console(capsys, decided.config_file())

    assert [console("promote", "--yes", *more).code for more in ((), ("--back",))] == [65, 0]

    assert collections(decided) == before
    assert head(decided)["promotion"] is None


def test_a_promotion_is_not_ended_while_the_target_that_was_put_back_has_the_name_of_the_source(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_after_setting("promotion", lambda: move(decided))
    decided.source.rename("elsewhere")
    decided.target.rename("pages")
    put_back(decided, "elsewhere", "pages")
    free_lease(decided)
    before, console = collections(decided), Console(capsys, decided.config_file())

    said = console("promote", "--back", "--yes")

    assert (said.code, "were dropped, or restored from a dump" in said.err) == (65, True)
    assert "rename by hand so that the source is pages, the target unique" in said.err
    assert (collections(decided), head(decided)["promotion"] is None) == (before, False)
    decided.database["pages"].rename("unique")
    decided.database["elsewhere"].rename("pages")
    assert console("promote", "--back", "--yes").code == 0
    assert console("run", "--moved").code == 0
    assert console("verify").code == 0


@pytest.mark.parametrize("names", [("pages", "pages_before"), ("pages",), ("pages_before",)], ids=" ".join)
def test_a_promotion_of_collections_that_were_put_back_and_accepted_can_be_taken_back(
    decided: Job, capsys: pytest.CaptureFixture[str], names: tuple[str, ...]
) -> None:
    move(decided)
    put_back(decided, *names)
    decided.set("target", copy=False)
    console = Console(capsys, decided.config_file())
    before = head(decided)
    said = console("promote", "--back", "--yes")
    assert (said.code, f"dedup-job run -c {decided.config_file()} --moved" in said.err) == (65, True), (
        said.err
    )
    assert head(decided)["promotion"] == before["promotion"]
    assert console("run", "--moved").code == 0
    here = collections(decided)

    assert console("promote", "--back", "--yes").code == 0

    assert collections(decided) == {"pages": here["pages_before"], "unique": here["pages"]}
    decided.tables["target"].pop("copy")
    assert console("verify", settings=decided.config_file()).code == 0


@pytest.mark.parametrize("left", [100, 1, 0])
def test_a_target_that_lacks_kept_records_is_not_promoted_unverified_either(
    decided: Job, capsys: pytest.CaptureFixture[str], left: int
) -> None:
    ids = [record["_id"] for record in decided.target.find({}, {"_id": 1})]
    decided.target.delete_many({"_id": {"$in": ids[left:]}})
    before = decided.hash()

    said = Console(capsys, decided.config_file())("promote", "--yes", "--skip-verify")

    assert (said.code, f"lacks {len(ids) - left:,} kept records" in said.err) == (65, True), said.err
    assert decided.hash() == before


def test_a_clustered_target_is_not_promoted_as_the_job_could_not_read_it_then(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.set("source", fields=["data"])
    job.source.insert_many(number_records(made_up_records()[:20]))
    job.database.create_collection("unique", clusteredIndex={"key": {"_id": 1}, "unique": True})
    job.decide("backfill")

    said = Console(capsys, job.config_file())("promote", "--yes")

    assert (said.code, "unique is a clustered collection, which has no _id index" in said.err) == (78, True)


def test_a_target_that_was_dropped_is_not_promoted_unverified_either(
    decided: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    decided.target.drop()
    console = Console(capsys, decided.config_file())
    assert console("run", "--moved").code == 65

    said = console("promote", "--yes", "--skip-verify")

    assert (said.code, "kept records (dedup-job verify" in said.err) == (65, True), said.err
    assert "pages" in collections(decided)


def state(job: Job) -> tuple[Any, ...]:
    """Return everything that must be equal after a disturbed and an undisturbed command."""
    return collections(job), {name: records(job, name) for name in AWAY}, head(job)


@pytest.mark.long
@pytest.mark.parametrize("is_back", [False, True], ids=["promote", "back"])
def test_a_promotion_that_is_killed_anywhere_is_finished_by_the_next(decided: Job, is_back: bool) -> None:
    if is_back:
        move(decided)
    there, back = partial(move, decided, is_back), partial(move, decided, not is_back)
    number = commands_of(there)
    after = state(decided)
    back()
    before = state(decided)

    for moment in range(1, number + 1):
        killed(there, moment)
        there()
        assert state(decided) == after, f"killed after command {moment} of {number}"
        back()
        assert state(decided) == before


@pytest.mark.parametrize("is_back", [False, True], ids=["promote", "back"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_promotion_that_wakes_when_others_ended_it_otherwise_leaves_each_collection_in_its_place(
    decided: Job, monkeypatch: pytest.MonkeyPatch, is_back: bool, number: int
) -> None:
    install(monkeypatch)
    if is_back:
        move(decided)
    renames, after = count(1), list[Any]()

    def is_time(_: int, event: monitoring.CommandStartedEvent) -> bool:
        return event.command_name == "renameCollection" and next(renames) == number

    def others(_: object) -> None:
        move(decided, is_back=True)
        if is_back:
            move(decided)
        after.append(state(decided))

    with pytest.raises(LeaseHeld, match="another run took over"):
        stopped(lambda: move(decided, is_back), is_time, others)

    assert [state(decided)] == after


@pytest.mark.long
@pytest.mark.parametrize("is_back", [False, True], ids=["promote", "back"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["going on", "killed"])
def test_a_record_that_a_program_writes_at_any_moment_is_in_the_place_afterwards(
    decided: Job, is_back: bool, is_killed: bool
) -> None:
    if is_back:
        move(decided)
    there, back = partial(move, decided, is_back), partial(move, decided, not is_back)
    number = commands_of(there)
    back()
    before, seen = state(decided), Counter[str]()

    for moment in range(1, number + 1):
        write = partial(decided.source.insert_one, {"_id": 7000, "data": OTHER})
        is_refused = False
        try:
            if is_killed:
                killed(there, moment)
                write()
                there()
            else:
                at_command(moment, write, there)
        except StateError:
            is_refused = True
        about = f"command {moment} of {number}"
        assert decided.source.find_one({"_id": 7000}, {"data": 1}) == {"_id": 7000, "data": OTHER}, about
        others = [name for name in collections(decided) if name not in AWAY]
        seen.update(["refused"] if is_refused else ["between"] if others else ["before or after"])
        # Everything as before, without the new record.
        for name in (*AWAY, *others):
            decided.database[name].delete_one({"_id": 7000})
        for name in others:
            assert decided.database[name].count_documents({}) == 0
            decided.database[name].drop()
        if not is_refused:
            back()
        decided.ledger("left").delete_many({})
        assert state(decided) == before, about

    assert seen["between"] > 0
    assert seen["before or after"] > 0
    # Only a promotion refuses records that are not decided yet.
    assert (seen["refused"] > 0) == (not is_back)


def test_what_changes_between_the_check_and_the_renames_is_named(decided: Job) -> None:
    def change() -> None:
        edit(decided)
        decided.source.delete_one({"_id": 1})
        decided.source.insert_many([{"_id": 7000, "data": OTHER}, {"_id": 7001, "bad": True}])

    done = at_rename(change, lambda: move(decided, skip_verify=False))

    assert done.exit_code == 3
    assert (done.changed.counts.total(), done.vanished.counts.total(), done.arrived) == (1, 1, 1)
    assert [decode(raw)["_id"] for raw in done.refused] == [7001]
    assert decided.source.find_one({"_id": 7000})
    assert "7001" in done.as_text()
    assert done.as_json()["not_copied"] == [7001]


def test_a_program_that_makes_the_collection_each_time_ends_the_command_and_loses_nothing(
    decided: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promoting, "TRIES", 3)
    made = count(7000)

    def write(event: monitoring.CommandStartedEvent) -> None:
        # The second rename is that of the target.
        if event.command_name == "renameCollection" and event.command["to"].endswith(".pages"):
            decided.source.insert_one({"_id": next(made), "data": OTHER})

    with mortal(Listener(write)), pytest.raises(StateError, match="stop them, and finish the promotion"):
        move(decided)
    move(decided)

    assert decided.source.count_documents({"_id": {"$gte": 7000}}) == next(made) - 7000 == 3


def test_a_name_that_is_taken_after_the_check_is_named_and_the_command_can_be_repeated(decided: Job) -> None:
    taken = decided.database["pages_before"]
    with pytest.raises(StateError, match="pages_before exists by now"):
        at_rename(lambda: taken.insert_one({}), lambda: move(decided))
    taken.drop()
    move(decided)
    assert "pages_before" in collections(decided)


def test_an_adopted_target_is_promoted_with_its_own_records(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.set("source", fields=["data"])
    job.target.insert_many(number_records(made_up_records()[:20], 5000))
    job.source.insert_many(number_records(made_up_records()[:100]))
    console = Console(capsys, job.config_file())
    assert console("backfill", "--adopt").code == 0
    own, target = job.target.count_documents({"_id": {"$gte": 5000}}), records(job, "unique")
    promoted(job)
    job.config_file()

    done = console("run", "--json")

    # The target's own records are the source's now; none of them is dropped.
    assert (done.code, done.json["read"], done.json["duplicate"]) == (0, own, {"exact": 0, "near": 0})
    assert records(job, "pages") == target
    assert console("verify").code == 0
    assert console("run", "--json").json["read"] == 0


def test_the_rights_in_the_docs_are_enough_and_each_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "how-to" / "replace-the-source.md").read_text("utf-8")
    found = re.findall(r'collection: "(\w*)"\}, actions: (\[.*?\])', page)
    assert {name: json.loads(actions) for name, actions in found} == {
        "": ["renameCollectionSameDB"],
        "pages": ["insert"],
    }

    def privilege(collection: str, *actions: str) -> dict[str, Any]:
        return {"resource": {"db": "shop", "collection": collection}, "actions": list(actions)}

    ledger = [privilege(f"unique.dedup.{part}", *WRITE) for part in LEDGER_NAMES]
    documented = [privilege(name, *json.loads(actions)) for name, actions in found]
    with LocalMongod(auth=True) as server, MongoClient[dict[str, Any]](server.uri) as root:
        job = Job(root["shop"], server.uri, tmp_path)
        job.source.insert_many([{"_id": number, "text": f"{OTHER}{number}"} for number in range(5)])
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)
        job.decide("backfill")
        root.admin.command("createRole", "dedup", roles=[{"role": "read", "db": "shop"}], privileges=[])
        root.admin.command("createUser", "dedup", pwd="x", roles=["dedup"])
        monkeypatch.setenv("DEDUP_TARGET_URI", server.uri_as("dedup", "x"))

        def called(privileges: list[dict[str, Any]], *arguments: str) -> Said:
            root.admin.command("updateRole", "dedup", privileges=privileges)
            return Console(capsys, job.config_file())("promote", "--yes", *arguments)

        for arguments in ([], ["--back"]):
            before = root["shop"].command("dbHash")["md5"]
            for number, lacking in enumerate(documented):
                said = called([*documented[:number], *documented[number + 1 :], *ledger], *arguments)
                assert (said.code, lacking["actions"][0] in said.err) == (77, True), said.err
            assert root["shop"].command("dbHash")["md5"] == before
            said = called([*documented, *ledger], *arguments)
            assert said.code == 0, said.err
