"""Sources, targets and ledgers that were dropped, renamed, moved or restored between runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from bson import ObjectId
from bson.codec_options import CodecOptions
from pymongo import MongoClient

from dedup_job.commands import verify
from dedup_job.commands.backfill_and_run import decide
from dedup_job.commands.changes import changes
from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.commands.mark import preview_marks
from dedup_job.commands.sweep import preview_sweep
from dedup_job.commands.undo import preview_undo
from dedup_job.errors import StateError
from dedup_job.ledger.settings_fit_ledger import Consent
from dedup_job.mongo.collection_checks import Places
from dedup_job.mongo.connect_and_retry import RetryPolicy
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.source import Source
from dedup_job.report.run_summary import RunSummary
from scripts.dev.local_mongod import LocalMongod
from tests.support.aged_ledger import aged, head
from tests.support.command_recorder import Recorder
from tests.support.faulty_runs import Action, Moments, install
from tests.support.job import RAW, Job
from tests.support.kill_in_process import commands_of, killed, killed_after_setting
from tests.support.late_records import POOL
from tests.support.refusals import told
from tests.support.restore_cases import restore
from tests.support.undo_cases import kinds, undo


@pytest.fixture
def quick(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job without workers, of thirty records in batches of five."""
    install(monkeypatch)
    job.set("limits", batch_records=5)
    job.source.insert_many([{"_id": n, "text": POOL[n]} for n in range(30)])
    return job


def during(monkeypatch: pytest.MonkeyPatch, kind: str, number: int, action: Action) -> None:
    """Let something happen before the n-th command of a kind."""
    install(monkeypatch, Moments({(kind, number): action}))


def moved(job: Job, mode: str = "run") -> RunSummary:
    with job.context() as context:
        return decide(context, mode, lambda plan: None, Consent(moved=True))


def everything(job: Job) -> list[Callable[[], object]]:
    """Return the commands that decide or compare, and previews."""

    def audited(work: Callable[..., object]) -> object:
        with job.context() as context:
            return work(context)

    return [
        lambda: job.decide("run"),
        lambda: job.decide("backfill"),
        lambda: audited(lambda context: dry_run(context, DryRun(), lambda plan: None)),
        lambda: audited(lambda context: verify.verify(context, None, lambda _: None)),
        lambda: audited(lambda context: changes(context, False, lambda _: None)),
        lambda: audited(lambda context: preview_marks(context, lambda _: None)),
        lambda: audited(lambda context: preview_sweep(context, context.archive("old"), lambda _: None)),
        lambda: audited(lambda context: preview_undo(context, "20260101T000000-0000")),
    ]


def put_aside(job: Job, name: str) -> Callable[[], None]:
    """Let another collection of this name, with other records, be there; returns what puts the first back."""
    job.database[name].rename("aside")
    job.database[name].insert_many([{"_id": n, "text": POOL[n + 5]} for n in range(31)])

    def back() -> None:
        job.database[name].drop()
        job.database["aside"].rename(name)

    return back


def again(job: Job, name: str) -> None:
    """Put a collection into the place of another, with the same records and indexes: as a restore does."""
    records = list(job.database[name].with_options(RAW).find())
    job.database[name].drop()
    job.database[name].with_options(RAW).insert_many(records)


@pytest.mark.long
@pytest.mark.parametrize("moment", [("accept", 2), ("advance", 6)])
@pytest.mark.parametrize("mode", ["run", "backfill"])
@pytest.mark.parametrize("how", ["dropped", "renamed", "restored"])
def test_a_source_that_goes_while_a_run_reads_it_ends_the_run(
    quick: Job, monkeypatch: pytest.MonkeyPatch, mode: str, how: str, moment: tuple[str, int]
) -> None:
    ways: dict[str, Callable[[], object]] = {
        "dropped": quick.source.drop,
        "renamed": lambda: quick.source.rename("elsewhere"),
        "restored": lambda: again(quick, "pages"),
    }
    during(monkeypatch, *moment, lambda _: ways[how]())

    with pytest.raises(StateError, match="source is not the collection that the ledger was made from"):
        quick.decide(mode)

    row = quick.ledger("runs").find_one() or {}
    assert (row["exit_code"], head(quick)["covered"], head(quick)["looked"]) == (65, None, None)
    if how == "renamed":
        install(monkeypatch)
        quick.database["elsewhere"].rename("pages")
        quick.decide(mode)
        assert quick.target.count_documents({}) == 30


def test_a_source_that_was_dropped_between_runs_is_named(quick: Job) -> None:
    quick.decide("backfill")
    quick.source.drop()
    code, line = told(quick.command("run"))
    assert (code, "no longer exists" in line) == (65, True)


def test_a_target_in_the_place_of_its_source_is_told_without_the_advice_to_accept_it(quick: Job) -> None:
    quick.decide("backfill")
    quick.source.rename("pages_before")
    quick.target.rename("pages")
    with pytest.raises(StateError, match="the source is the collection that this ledger filled") as caught:
        quick.decide("run")
    assert "--moved" not in str(caught.value)


def test_another_collection_of_the_same_name_is_no_source_until_a_person_says_so(quick: Job) -> None:
    quick.decide("backfill")
    again(quick, "pages")
    quick.source.insert_one({"_id": -1, "text": POOL[31]})
    for work in everything(quick):
        with pytest.raises(StateError, match="run --moved"):
            work()
    code, line = told(quick.command("run"))
    assert (code, line.count("--moved")) == (65, 1)

    done = quick.command("run", "--moved")

    assert done.returncode == 0, done.stderr
    assert quick.target.find_one({"_id": -1})
    assert quick.decide("run").counts.read == 0


@pytest.mark.long
@pytest.mark.parametrize(("name", "part"), [("pages", "source"), ("unique", "target")])
def test_a_restore_is_from_the_source_and_into_the_target_of_the_ledger(
    quick: Job, name: str, part: str
) -> None:
    quick.source.insert_one({"_id": 30, "text": POOL[0]})
    quick.decide("backfill")
    back = put_aside(quick, name)

    code, line = told(quick.command("restore", "30"))

    assert (code, f"the {part} is not the collection" in line, "--moved" in line) == (65, True, True)
    assert quick.database[name].find_one({"_id": 30}) == {"_id": 30, "text": POOL[35]}
    back()
    assert kinds(quick) == []
    assert restore(quick, "30").changed == []
    assert quick.target.find_one({"_id": 30}) == {"_id": 30, "text": POOL[0]}


@pytest.mark.parametrize(("name", "part"), [("pages", "source"), ("unique", "target")])
def test_a_run_is_taken_back_from_the_target_that_it_filled_and_against_its_source(
    quick: Job, name: str, part: str
) -> None:
    run = quick.decide("backfill").run
    back = put_aside(quick, name)
    stranger = list(quick.database[name].find())

    with pytest.raises(StateError, match=f"the {part} is not the collection that"):
        undo(quick, run)

    assert list(quick.database[name].find()) == stranger
    back()
    assert kinds(quick) == []
    assert undo(quick, run).left == {}


@pytest.mark.parametrize(("name", "part"), [("pages", "source"), ("unique", "target")])
def test_an_undo_under_which_source_or_target_goes_removes_nothing_more(
    quick: Job, monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    run = quick.decide("backfill").run
    later: list[Callable[[], None]] = []
    during(monkeypatch, "advance", 3, lambda _: later.append(put_aside(quick, name)))

    with pytest.raises(StateError, match=f"the {part} is not the collection that"):
        undo(quick, run)

    install(monkeypatch)
    assert quick.database[name].count_documents({}) == 31
    with pytest.raises(StateError, match="run --moved"):
        undo(quick, run)
    later[0]()
    assert quick.target.count_documents({}) == 15
    assert undo(quick, run).left == {}
    assert quick.target.count_documents({}) == 0


def test_a_person_may_say_that_a_half_done_undo_goes_on_with_what_is_there_now(
    quick: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = quick.decide("backfill").run
    during(monkeypatch, "advance", 3, lambda _: again(quick, "pages"))
    with pytest.raises(StateError, match="run --moved"):
        undo(quick, run)
    install(monkeypatch)

    with pytest.raises(StateError, match="half undone"):
        moved(quick)

    assert undo(quick, run).left == {}
    assert quick.target.count_documents({}) == 0


def test_a_target_that_goes_under_a_restore_has_not_got_the_record(
    quick: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick.source.insert_one({"_id": 30, "text": POOL[0]})
    quick.decide("backfill")
    during(monkeypatch, "insert", 1, lambda _: quick.target.rename("aside"))

    with pytest.raises(StateError, match="target is not the collection that was filled"):
        restore(quick, "30")

    install(monkeypatch)
    quick.target.drop()
    quick.database["aside"].rename("unique")
    assert set(kinds(quick)) == {"restore_unfinished", "numbers"}
    restore(quick, "30")
    assert kinds(quick) == []


def test_another_server_with_the_same_names_is_another_source(
    quick: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick.decide("backfill")
    with LocalMongod(replica_set=False) as server, MongoClient[Any](server.uri) as other:
        records = [{"_id": n, "text": POOL[n + 5]} for n in range(35)]
        other[quick.database.name]["pages"].insert_many(records)
        monkeypatch.setenv("DEDUP_TARGET_URI", quick.uri)
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)
        for work in everything(quick):
            with pytest.raises(StateError, match="another server"):
                work()
    assert quick.target.count_documents({}) == 30


def test_the_name_of_a_replica_set_tells_a_copy_of_its_files(quick: Job) -> None:
    quick.decide("backfill")
    quick.ledger("head").update_one({}, {"$set": {"places.servers.source": "another"}})
    with pytest.raises(StateError, match="the source is on another server"):
        quick.decide("run")


@pytest.mark.parametrize("how", ["dropped", "renamed"])
@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_target_that_goes_while_a_run_fills_it_ends_this_run_and_the_next(
    quick: Job, monkeypatch: pytest.MonkeyPatch, how: str, number: int
) -> None:
    def goes(_: object) -> None:
        quick.target.drop() if how == "dropped" else quick.target.rename("elsewhere")

    during(monkeypatch, "insert", number, goes)

    with pytest.raises(StateError, match="target is not the collection that was filled"):
        quick.decide("backfill")
    assert head(quick)["next"] < number
    install(monkeypatch)
    with pytest.raises(StateError, match="target is not the collection that was filled"):
        quick.decide("run")


@pytest.mark.parametrize("name", ["plans", "dropped", "exceptions", "runs", "overrides", "left"])
def test_a_part_of_the_ledger_that_goes_ends_a_run(
    quick: Job, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    during(monkeypatch, "insert", 3, lambda _: quick.ledger(name).drop())
    with pytest.raises(StateError, match=f"^the ledger's collection {name} was dropped or restored"):
        quick.decide("backfill")


@pytest.mark.parametrize("arguments", [("status",), ("verify",), ("run",), ("backfill", "--adopt")])
def test_a_ledger_without_its_head_is_damaged_and_nothing_is_decided(
    quick: Job, arguments: tuple[str, ...]
) -> None:
    quick.decide("backfill")
    quick.ledger("head").delete_many({})
    before = quick.hash()

    code, line = told(quick.command(*arguments))

    assert (code, quick.hash()) == (65, before)
    assert "unique.dedup.head is missing or empty, and " in line
    assert "restore the target database" in line
    assert "--adopt" not in line


def test_after_a_move_was_accepted_the_log_asks_for_an_audit(
    quick: Job, caplog: pytest.LogCaptureFixture
) -> None:
    quick.decide("backfill")
    again(quick, "unique")
    moved(quick)
    assert "check the target and its ledger with: dedup-job verify" in caplog.text


def test_what_was_restored_from_one_backup_is_gone_on_with_when_a_person_says_so(quick: Job) -> None:
    quick.decide("backfill")
    for name in quick.database.list_collection_names():
        if name.startswith("unique"):
            again(quick, name) if quick.database[name].find_one() else quick.database[name].drop()
    quick.source.insert_one({"_id": 99, "text": POOL[35]})
    with pytest.raises(StateError, match="--moved"):
        quick.decide("run")

    assert moved(quick).counts.read == 1
    assert quick.decide("run").counts.read == 0


@pytest.mark.longest
@pytest.mark.parametrize("name", ["pages", "unique", "unique.dedup.head", "unique.dedup.plans"])
def test_a_run_after_a_move_that_is_killed_anywhere_is_finished_by_the_next(
    quick: Job, another_job: Callable[[], Job], name: str
) -> None:
    def prepared() -> Job:
        """A job with a backfill, new records, a pending plan, and a collection in another's place."""
        other = another_job()
        other.decide("backfill")
        other.source.insert_many([{"_id": 100 + n, "text": POOL[30 + n]} for n in range(3)])
        killed_after_setting("pending", partial(other.decide, "run"))
        assert head(other)["pending"]
        again(other, name)
        return other

    first = prepared()
    commands = commands_of(partial(moved, first))
    undisturbed = first.outcome()

    for number in range(1, commands, 5):
        other = prepared()
        killed(partial(moved, other), number)
        moved(other)
        assert (other.outcome(), other.differences()) == (undisturbed, {}), f"killed after command {number}"


def test_a_clock_that_runs_ahead_hides_no_record(quick: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    quick.source.drop()
    quick.source.insert_many([*aged(range(10), 20), *aged(range(10, 20), 0.1)])
    right = Source.now
    with monkeypatch.context() as patch:
        patch.setattr(Source, "now", lambda self: right(self) + timedelta(days=30))
        quick.decide("backfill")
    first = quick.source.find_one({"_id": {"$lt": ObjectId.from_datetime(days_ago(10))}}) or {}
    quick.source.delete_one({"_id": first["_id"]})
    quick.source.insert_many(aged([25], 0))

    assert head(quick)["covered"].replace(tzinfo=UTC) < datetime.now(UTC)
    quick.ledger("head").update_one({}, {"$set": {"looked": datetime.now(UTC) - timedelta(days=1)}})
    assert quick.decide("run").counts.read == 1


def test_a_full_scan_in_the_future_counts_for_nothing(quick: Job) -> None:
    quick.source.drop()
    quick.source.insert_many([*aged(range(10), 20), *aged(range(10, 20), 0.1)])
    quick.decide("backfill")
    quick.source.delete_one({"_id": (quick.source.find_one(sort=[("_id", 1)]) or {})["_id"]})
    quick.source.insert_many(aged([25], 10))
    ahead = {"$set": {"looked": datetime.now(UTC) + timedelta(days=30)}}
    quick.ledger("head").update_one({}, ahead)

    assert quick.decide("run").counts.read == 1


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def test_the_places_are_in_the_head_and_a_head_without_them_takes_them_in(quick: Job) -> None:
    plain: CodecOptions[Any] = CodecOptions()
    quick.decide("backfill")
    noted = head(quick)["places"]
    about = {
        one["name"]: bytes(one["info"]["uuid"]).hex()
        for one in quick.database.with_options(codec_options=plain).list_collections()
    }
    assert noted["collections"]["source"] == about["pages"]
    assert noted["collections"]["target"] == about["unique"]
    assert noted["collections"]["plans"] == about["unique.dedup.plans"]
    before = head(quick)["covered"]
    quick.ledger("head").update_one({}, {"$unset": {"places": ""}})

    assert quick.decide("run").counts.read == 0
    assert head(quick)["places"] == noted
    assert head(quick)["covered"] >= before


def test_a_database_that_holds_source_and_target_is_asked_once_and_two_are_asked_each(quick: Job) -> None:
    quick.decide("backfill")
    recorder, name = Recorder(), quick.database.name
    with MongoClient[Any](quick.uri, event_listeners=[recorder]) as client:
        retry = RetryPolicy()
        source = RetryingCollection(client[name]["pages"], "the source", retry)
        target = RetryingCollection(client[name]["unique"], "the target", retry)
        together = Places(source, target).now()
        assert together["collections"] == head(quick)["places"]["collections"]
        assert [command for command, _ in recorder.commands] == ["listCollections"]
        recorder.commands.clear()
        elsewhere = client[f"{name}-elsewhere"]["pages"]
        elsewhere.insert_one({"_id": 0})
        try:
            moved_source = RetryingCollection(elsewhere, "the source", retry)
            apart = Places(moved_source, target).now()["collections"]
        finally:
            client.drop_database(elsewhere.database.name)
        asked = [command["$db"] for name_of, command in recorder.commands if name_of == "listCollections"]
    assert asked == [elsewhere.database.name, name]
    changed = {part for part, place in together["collections"].items() if apart[part] != place}
    assert changed == {"source"}
