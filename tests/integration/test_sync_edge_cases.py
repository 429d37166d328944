"""`sync` with large, oddly named or refused records, and with changes at the wrong moment."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pymongo import MongoClient

from dedup_job.commands import sync as syncing
from dedup_job.commands.outdated_decisions import SourceComparison, compare_with_source
from dedup_job.errors import LeaseHeld
from dedup_job.mongo import connect_and_retry
from dedup_job.mongo.comments_and_time_limits import JobClient
from dedup_job.pipeline import load_keepers_and_scan_source
from scripts.dev.local_mongod import LocalMongod
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.kill_in_process import commands_of, killed, killed_after_setting
from tests.support.quiet_listener import QuietListener
from tests.support.stopped_process import Event
from tests.support.sync_cases import (
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
    J,
    dropped,
    due,
    exceptions,
    up_to_date,
)
from tests.support.undo_cases import OTHERS, undo


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def fill(job: Job, texts: dict[Any, str], **more: Any) -> None:
    job.source.insert_many([{"_id": number, "text": text, **more} for number, text in texts.items()])


def check_each_text_once(job: Job) -> None:
    """Check that each text of the source is in the target once, and nothing else is."""
    assert job.differences() == {}
    texts = [record["text"] for record in job.target.find()]
    assert sorted(texts) == sorted({record["text"] for record in job.source.find()})


def test_records_that_were_decided_in_another_order_than_their_ids_are_read_whole(job: Job) -> None:
    """No batch holds them all, and the server gives those first that were decided last."""
    job.set("limits", batch_records=10, batch_mb=1)
    large = {"else": "x" * 400_000}
    fill(job, {10: A, 11: B, 12: C, 13: D}, **large)
    job.decide("backfill")
    fill(job, {1: E, 2: F, 3: G}, **large)
    job.decide("run")
    job.source.update_many({}, [{"$set": {"text": {"$concat": ["$text", J, H]}}}])

    done = up_to_date(job)

    assert done.updated is not None
    assert (done.updated.counts.unique, done.updated.counts.refused) == (7, {})
    check_each_text_once(job)


def test_a_record_that_changes_after_it_was_copied_unchecked_is_brought_up_to_date(job: Job) -> None:
    fill(job, {1: A, 2: B})
    killed_after_setting("pending", lambda: job.decide("backfill"))
    job.source.update_one({"_id": 1}, {"$set": {"text": C}})
    job.decide("backfill")
    assert exceptions(job) == {1: ("unchecked", "changed")}
    assert up_to_date(job).updated is None
    job.source.update_one({"_id": 1}, {"$set": {"text": D}})

    up_to_date(job)

    check_each_text_once(job)


def test_what_vanishes_while_its_decision_is_pending_is_decided_when_it_comes_again(job: Job) -> None:
    fill(job, {1: A, 2: B})
    job.decide("backfill")
    job.source.update_one({"_id": 1}, {"$set": {"text": C}})
    killed_after_setting("pending", lambda: up_to_date(job))
    job.source.delete_one({"_id": 1})
    job.decide("run")
    assert exceptions(job) == {1: ("refused", "vanished")}
    fill(job, {1: C})

    up_to_date(job)

    check_each_text_once(job)


@pytest.mark.parametrize("text", [A, B])
def test_a_record_that_comes_again_under_an_equal_id_of_another_type_leaves_the_target_as_it_is(
    job: Job, text: str
) -> None:
    """The target takes 1 and 1.0 for the same: were the one removed, the other would have been refused."""
    fill(job, {1: A, 2: C})
    job.decide("backfill")
    job.source.delete_one({"_id": 1})
    job.source.insert_one({"_id": 1.0, "text": text})
    job.decide("run")
    for _ in range(2):
        up_to_date(job)
        assert job.target.find_one({"_id": 1}) == {"_id": 1, "text": A}
        assert job.differences() == {}

    job.target.delete_one({"_id": 1})
    up_to_date(job)

    check_each_text_once(job)


def test_with_a_collation_that_ignores_case_a_record_may_come_again_in_the_same_way(job: Job) -> None:
    job.database.create_collection("pages", collation={"locale": "en", "strength": 2})
    fill(job, {"a": A, "b": B})
    job.decide("backfill")
    job.source.delete_one({"_id": "a"})
    fill(job, {"A": A})

    up_to_date(job)

    assert {record["_id"] for record in job.target.find()} == {"a", "b"}
    assert job.differences() == {}
    job.target.delete_one({"_id": "a"})
    up_to_date(job)
    assert {record["_id"] for record in job.target.find()} == {"A", "b"}
    check_each_text_once(job)


@pytest.mark.parametrize("is_gone_meanwhile", [False, True])
def test_a_copy_that_an_undo_left_is_refused_as_a_conflict_however_often_its_record_changes(
    job: Job, is_gone_meanwhile: bool
) -> None:
    fill(job, {1: A, 2: B})
    run = job.decide("backfill").run
    job.source.delete_one({"_id": 1})
    if not is_gone_meanwhile:
        fill(job, {1: C})
    assert undo(job, run).left == {"vanished" if is_gone_meanwhile else "changed": 1}
    if is_gone_meanwhile:
        fill(job, {1: C})
    job.decide("run")
    assert exceptions(job) == {1: ("refused", "conflict")}
    job.source.update_one({"_id": 1}, {"$set": {"text": B}})

    up_to_date(job)

    assert exceptions(job) == {1: ("refused", "conflict")}
    assert dropped(job) == {}
    assert (job.target.find_one({"_id": 1}) or {})["text"] == A
    assert job.differences() == {}


def validated(job: Job, validator: dict[str, Any]) -> None:
    job.database.command("collMod", job.target.name, validator=validator)


def test_what_the_target_refused_is_tried_again_once_it_takes_it(job: Job) -> None:
    """Another copy of one text was kept in its place: the record is dropped for that."""
    fill(job, {1: A})
    job.decide("backfill")
    validated(job, {"_id": {"$nin": [2, 3, 5]}})
    fill(job, {2: B, 3: C, 4: C, 5: D})
    job.decide("run")
    refused = {2: ("refused", "validator"), 3: ("refused", "validator"), 5: ("refused", "validator")}
    assert exceptions(job) == refused

    assert due(job)["decide_again"] == {"changed": 0, "handed_on": 0, "refused": 3, "failed": 0}

    assert up_to_date(job).exit_code == 3

    assert exceptions(job) == {2: refused[2], 5: refused[5]}
    assert dropped(job) == {3: 4}
    assert job.differences() == {}
    validated(job, {"_id": {"$ne": 5}})

    assert up_to_date(job).exit_code == 3

    assert exceptions(job) == {5: refused[5]}
    assert dropped(job) == {3: 4}
    assert [one["_id"] for one in job.target.find().sort("_id")] == [1, 2, 4]
    validated(job, {})
    assert up_to_date(job).exit_code == 0
    check_each_text_once(job)
    assert up_to_date(job).updated is None


@pytest.mark.parametrize("is_conflict", [False, True])
def test_a_refused_record_that_has_left_the_source_needs_no_sync(job: Job, is_conflict: bool) -> None:
    fill(job, {1: A})
    job.decide("backfill")
    if is_conflict:
        job.target.insert_one({"_id": 2, "text": C})
    else:
        validated(job, {"_id": {"$ne": 2}})
    fill(job, {2: B})
    job.decide("run")
    refused = {2: ("refused", "conflict" if is_conflict else "validator")}
    assert exceptions(job) == refused
    job.source.delete_one({"_id": 2})

    assert not any(due(job)["decide_again"].values())
    assert up_to_date(job).updated is None
    for options in ((), ("--content",)):
        told = json.loads(job.command("changes", "--json", *options).stdout)
        assert told["vanished"] == {"kept": 0, "dropped": 0, "refused": 0, "records": []}
    assert exceptions(job) == refused
    assert job.differences() == {}


@pytest.mark.parametrize("is_alike", [True, False])
def test_a_copy_that_was_edited_leaves_the_target_only_if_the_source_has_the_same(
    job: Job, is_alike: bool
) -> None:
    fill(job, {1: A, 2: B})
    job.decide("backfill")
    job.source.update_one({"_id": 2}, {"$set": {"text": A}})
    job.target.update_one({"_id": 2}, {"$set": {"text": A, **({} if is_alike else {"by": "hand"})}})

    assert up_to_date(job).exit_code == (0 if is_alike else 3)

    assert [one["_id"] for one in job.target.find().sort("_id")] == ([1] if is_alike else [1, 2])
    assert dropped(job) == ({2: 1} if is_alike else {})
    assert job.differences() == {}


@pytest.mark.parametrize("is_adopted", [False, True])
def test_a_conflict_ends_when_the_owner_makes_both_records_alike(job: Job, is_adopted: bool) -> None:
    fill(job, {1: A, 2: B})
    if is_adopted:
        job.target.insert_one({"_id": 1, "text": C})
        assert job.command("backfill", "--adopt").returncode == 3
    else:
        run = job.decide("backfill").run
        job.target.update_one({"_id": 1}, {"$set": {"by": "hand"}})
        undo(job, run)
        job.decide("backfill")
    assert exceptions(job) == {1: ("refused", "conflict")}
    assert up_to_date(job).exit_code == 3
    job.target.replace_one({"_id": 1}, {"_id": 1, "text": A})

    assert up_to_date(job).exit_code == 0

    assert exceptions(job) == {}
    assert [one["_id"] for one in job.target.find().sort("_id")] == [1, 2]
    assert job.differences() == {}
    assert up_to_date(job).updated is None


def test_what_was_refused_for_another_record_of_its_id_is_tried_again_when_that_is_gone(job: Job) -> None:
    fill(job, {1: A, 2: B})
    job.decide("backfill")
    job.target.update_one({"_id": 1}, {"$set": {"by": "hand"}})
    job.source.update_many({"_id": 1}, {"$set": {"text": C}})
    assert up_to_date(job).exit_code == 3
    assert exceptions(job) == {1: ("refused", "conflict")}
    assert up_to_date(job).updated is None
    job.target.delete_one({"_id": 1})

    assert up_to_date(job).exit_code == 0

    check_each_text_once(job)


def test_lost_keepers_are_copied_back_before_a_sync_so_that_their_texts_are_there_once(job: Job) -> None:
    fill(job, {1: A, 2: B, 3: B})
    job.decide("backfill")
    job.target.delete_one({"_id": 1})
    job.source.update_one({"_id": 3}, {"$set": {"text": A}})
    assert job.differences().keys() == {"missing"}

    job.target.insert_one(job.source.find_one({"_id": 1}))
    up_to_date(job)

    check_each_text_once(job)


@pytest.mark.parametrize("is_killed", [False, True])
def test_records_that_swap_a_value_that_is_unique_are_both_in_the_target(job: Job, is_killed: bool) -> None:
    for number, text in enumerate((A, B, C)):
        fill(job, {number: text}, key=number)
    job.decide("backfill")
    job.target.create_index("key", unique=True)
    job.source.update_one({"_id": 0}, {"$set": {"key": 1, "text": D}})
    job.source.update_one({"_id": 1}, {"$set": {"key": 0, "text": E}})
    if is_killed:
        job.set("limits", batch_records=1)
        killed_after_setting("pending", lambda: up_to_date(job))

    done = up_to_date(job)

    assert done.updated is not None
    assert (done.exit_code, done.updated.removed) == (3 if is_killed else 0, 0), (
        "a killed one's refusal is told"
    )
    assert is_killed or (done.updated.counts.unique, done.updated.counts.refused) == (2, {})
    check_each_text_once(job)


def decide_with_unique_keys(job: Job, records: int) -> None:
    job.source.insert_many([{"_id": n, "text": OTHERS[n], "key": n} for n in range(records)])
    job.decide("backfill")
    job.target.create_index("key", unique=True)


@pytest.mark.parametrize("batch_records", [1, 50])
@pytest.mark.parametrize("last", ["free", "taken"])
def test_a_record_that_is_refused_and_decided_again_by_the_same_sync_has_its_row(
    job: Job, batch_records: int, last: str
) -> None:
    job.set("limits", batch_records=batch_records)
    decide_with_unique_keys(job, 4)
    # 0 is refused until 1 has another value. By then 2 is kept with the same text, or 3 has the value.
    text = OTHERS[5] if last == "free" else OTHERS[6]
    job.source.update_one({"_id": 0}, {"$set": {"text": OTHERS[5], "key": 1}})
    job.source.update_one({"_id": 1}, {"$set": {"text": OTHERS[7], "key": 9}})
    job.source.update_one({"_id": 2}, {"$set": {"text": text}})
    if last == "taken":
        job.target.insert_one({"_id": "foreign", "key": 8})
        job.source.update_one({"_id": 3}, {"$set": {"text": OTHERS[8], "key": 8}})

    up_to_date(job)

    assert job.differences().keys() == (set() if last == "free" else {"foreign"})
    assert dropped(job) == ({0: 2} if last == "free" else {})
    assert exceptions(job) == ({} if last == "free" else {3: ("refused", "unique_index")})


@pytest.mark.parametrize("batch_records", [1, 50])
@pytest.mark.parametrize("is_killed", [False, True])
def test_records_that_swap_a_unique_value_and_nothing_else_are_renewed_together(
    job: Job, is_killed: bool, batch_records: int
) -> None:
    job.set("limits", batch_records=batch_records)
    decide_with_unique_keys(job, 8)
    job.target.insert_one({"_id": "foreign", "key": 99})
    # 0 and 1 swap; 2, 3 and 4 hand theirs on in a ring; 5 wants a foreign record's, 6 wants that of 5.
    for number, key in enumerate((1, 0, 3, 4, 2, 99, 5)):
        job.source.update_one({"_id": number}, {"$set": {"key": key}})
    if is_killed:
        killed_after_setting("pending", lambda: up_to_date(job), times=2 if batch_records == 1 else 1)

    done = up_to_date(job)

    keys = {record["_id"]: record["key"] for record in job.target.find()}
    assert keys == {0: 1, 1: 0, 2: 3, 3: 4, 4: 2, 5: 5, 6: 6, 7: 7, "foreign": 99}
    assert done.exit_code == 3
    assert sorted(map(repr, job.source.find({"_id": {"$lt": 5}}))) == sorted(
        map(repr, job.target.find({"_id": {"$lt": 5}}))
    )
    assert job.ledger("plans").count_documents({"mode": "renew"}) == 0
    job.target.delete_one({"_id": "foreign"})
    assert up_to_date(job).exit_code == 0
    assert job.differences() == {}


@pytest.mark.parametrize("limit", ["SWAPPED", "SWAPPED_BYTES"])
def test_records_that_swapped_values_and_for_which_there_is_no_room_stay_and_are_named(
    job: Job, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(syncing, limit, 3 if limit == "SWAPPED" else 0)
    job.set("limits", batch_records=1)
    decide_with_unique_keys(job, 4)
    for number in range(4):
        job.source.update_one({"_id": number}, {"$set": {"key": number ^ 1}})

    done = up_to_date(job)

    keys = [record["key"] for record in job.target.find().sort("_id")]
    assert keys == ([1, 0, 2, 3] if limit == "SWAPPED" else [0, 1, 2, 3])
    assert done.updated is not None
    assert len(done.updated.stay) == (2 if limit == "SWAPPED" else 4)


def test_records_that_swap_a_unique_value_keep_their_old_versions_on_a_standalone_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalMongod(replica_set=False) as server, MongoClient[Any](server.uri) as mongo:
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)
        job = Job(mongo["swapped"], server.uri, tmp_path)
        decide_with_unique_keys(job, 2)
        for number in range(2):
            job.source.update_one({"_id": number}, {"$set": {"key": 1 - number}})

        assert up_to_date(job).exit_code == 3

        assert [record["key"] for record in job.target.find().sort("_id")] == [0, 1]
        assert due(job)["renew"] == 2


def test_fields_with_a_dollar_are_brought_up_to_date(job: Job) -> None:
    job.source.insert_many(
        [{"_id": 1, "text": A, "$set": {"$in": 1}}, {"_id": 2, "text": B, "$": 1, "a.b": 2, "": 3}]
    )
    job.decide("backfill")
    job.source.delete_many({})
    job.source.insert_many(
        [{"_id": 1, "text": A, "$set": {"$in": 2}}, {"_id": 2, "text": C, "$": 2, "a.b": 3, "": 4}]
    )

    done = up_to_date(job)

    assert done.updated is not None
    assert (done.exit_code, done.updated.renewed, done.updated.counts.unique) == (0, 1, 1)
    check_each_text_once(job)


def test_a_run_that_was_at_work_during_the_comparison_ends_an_apply(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it drops for a record that is to go would be nowhere."""
    fill(job, {1: A, 2: B})
    job.decide("backfill")
    job.source.update_one({"_id": 1}, {"$set": {"text": C}})
    fill(job, {5: A})
    found = list[SourceComparison]()
    with job.context() as context:
        check_keepers = load_keepers_and_scan_source.check_keepers

        def compare(*arguments: Any) -> None:
            found.append(compare_with_source(context, lambda number: None))
            check_keepers(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(load_keepers_and_scan_source, "check_keepers", compare)
            job.decide("run")
        assert dropped(job) == {5: 1}
        with pytest.raises(LeaseHeld, match="changed this target during the comparison"):
            syncing.sync(context, found[0], lambda number: None)

    up_to_date(job)

    check_each_text_once(job)


def test_what_a_killed_apply_had_refused_is_told_by_the_one_that_ends_it(job: Job) -> None:
    job.set("limits", batch_records=1)
    fill(job, {1: A, 2: B, 3: C, 4: D})
    job.decide("backfill")
    job.target.update_one({"_id": 1}, {"$set": {"by": "hand"}})
    job.source.update_many({"_id": {"$lt": 4}}, [{"$set": {"text": {"$concat": ["$text", " ", J]}}}])
    job.source.delete_one({"_id": 4})
    while 1 not in exceptions(job):
        killed(partial(up_to_date, job), commands_of(lambda: None) + 53)

    done = up_to_date(job)

    assert (done.exit_code, done.as_json()["refused_before"]) == (3, {"conflict": 1})
    assert "refused in earlier interrupted runs: conflict 1" in done.as_text()
    assert exceptions(job)[4] == ("refused", "vanished")
    again = up_to_date(job)
    assert (again.exit_code, again.still_refused, again.refused_before) == (3, 1, {})


def edit(job: Job, chance: Random) -> None:
    """Change a record, delete it, or put it there again."""
    number, what = chance.randrange(16), chance.randrange(3)
    if what == 0:
        job.source.delete_one({"_id": number})
    elif what == 1:
        job.source.replace_one({"_id": number}, {"text": chance.choice(OTHERS)}, upsert=True)
    else:
        job.source.update_one({"_id": number}, {"$set": {"seen": chance.random()}})


def test_a_source_that_is_written_to_all_the_time_is_up_to_date_once_it_rests(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.set("limits", batch_records=3)
    fill(job, {number: OTHERS[number % 7] for number in range(16)})
    job.decide("backfill")
    chance = Random(3)

    class Busy(QuietListener):
        def started(self, event: Event) -> None:
            if event.command_name in ("find", "insert", "update", "delete") and chance.random() < 0.5:
                edit(job, chance)

    for _ in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(connect_and_retry, "JobClient", partial(JobClient, event_listeners=[Busy()]))
            up_to_date(job)
        # A record may have vanished and come back while it was decided.
        assert set(job.differences()) <= {"returned"}
        up_to_date(job)
        assert job.differences() == {}
        check_each_text_once(job)


@pytest.mark.long
def test_a_source_that_changes_while_an_apply_is_killed_is_up_to_date_after_it(job: Job) -> None:
    job.set("limits", batch_records=3)
    fill(job, {number: OTHERS[number % 7] for number in range(16)})
    job.decide("backfill")
    chance = Random(8)
    for turn in range(12):
        for _ in range(5):
            edit(job, chance)
        killed_somewhere(job, chance)
        for _ in range(5):
            edit(job, chance)
        if turn % 3 == 0:
            job.decide("run")
        up_to_date(job)
        check_each_text_once(job)


def killed_somewhere(job: Job, chance: Random) -> None:
    """Kill an apply at one of its commands, or let it end where it sends fewer."""
    try:
        killed(partial(up_to_date, job), chance.randrange(5, 90))
    except AssertionError:
        assert job.differences() == {}


def test_an_apply_says_what_the_target_still_refuses_for_another_record_with_the_id(job: Job) -> None:
    """The record 7 vanished and 7.0 arrived, which the target cannot hold beside it."""
    fill(job, {1: A, 7: B})
    job.decide("backfill")
    job.source.delete_one({"_id": 7})
    job.source.insert_one({"_id": 7.0, "text": C})
    assert job.decide("run").counts.refused == {"conflict": 1}

    told = job.command("sync", "--yes", "--json")

    assert told.returncode == 3, told.stderr
    assert json.loads(told.stdout)["still_refused"] == 1
    assert job.target.find_one({"_id": 7}) == {"_id": 7, "text": B}
    shown = job.command("sync", "--dry-run").stdout
    assert "still refused               1  the target has another record with the same _id" in shown
