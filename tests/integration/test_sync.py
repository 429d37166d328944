"""`sync` decides changed records again and removes vanished records from the target."""

from __future__ import annotations

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bson import encode
from pymongo import MongoClient, monitoring

from dedup_job import run_and_exit
from dedup_job.commands import sync as syncing
from dedup_job.commands import verify
from dedup_job.commands.backfill_and_run import adopt
from dedup_job.commands.outdated_decisions import compare_with_source
from dedup_job.commands.why import why
from dedup_job.errors import LeaseHeld, NotPermitted, StateError, UsageError
from dedup_job.ledger import leased_ledger
from dedup_job.mongo import connect_and_retry
from dedup_job.mongo.comments_and_time_limits import JobClient
from scripts.bench.corpus import generate
from scripts.dev.local_mongod import LocalMongod
from tests.support.faulty_runs import install
from tests.support.job import LEDGER, RAW, Job
from tests.support.kill_in_process import commands_of, killed
from tests.support.quiet_listener import QuietListener
from tests.support.stopped_process import Event, hurry_removals, sleep_past_removals, stopped
from tests.support.sync_cases import (
    EVERY,
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
    I,
    J,
    decided,
    dropped,
    due,
    exceptions,
    in_target,
    overtake,
    up_to_date,
)
from tests.support.undo_cases import OTHERS, state, undo

Make = Callable[[], Job]


def asked(job: Job, given: str) -> dict[str, Any]:
    with job.context() as context:
        return why(context, given)


@pytest.fixture
def overtaken(job: Job) -> Job:
    overtake(decided(job))
    return job


def check_up_to_date(job: Job) -> None:
    """Check what the records of `overtaken` have become."""
    assert in_target(job) == {
        1: A, 3: C, 4: B, 5: D, 7: E, 8: F, 11: OTHERS[10], 15: A, 16: OTHERS[11], 17: I, 21: J,
    }  # fmt: skip
    assert dropped(job) == {2: 1, 6: 5, 10: 1, 13: 4, 14: 5, 20: 4}
    assert exceptions(job) == {
        **dict.fromkeys([0, 9, 12], ("refused", "vanished")),
        **dict.fromkeys([15, 16], ("unchecked", "restored")),
    }
    pages = job.database.client[job.tables["source"]["database"]]["pages"]
    source = {raw["_id"]: raw.raw for raw in pages.with_options(RAW).find()}
    assert all(raw.raw == source[raw["_id"]] for raw in job.target.with_options(RAW).find())
    assert job.differences() == {}
    with job.context() as context:
        assert verify.verify_sample(context, 100, lambda number: None).agrees
    assert not any(due(job)[name] for name in ("renew",))
    head = job.ledger("head").find_one() or {}
    assert (head["pending"], head["lease"]) == (None, None)


def test_what_changed_is_decided_again_and_what_vanished_leaves_the_target(overtaken: Job) -> None:
    assert due(overtaken) == {
        "renew": 2, "decide_again": {"changed": 5, "handed_on": 6, "refused": 0, "failed": 0},
        "take_out": {"kept": 2, "not_kept": 1}, "still_refused": 0, "bring_back": 0,
        "undecided": 0, "undecided_in_archive": 0,
    }  # fmt: skip

    done = up_to_date(overtaken)

    check_up_to_date(overtaken)
    assert done.updated is not None
    told = done.updated.as_json()
    assert (told["renewed"], told["unique"], told["duplicate"]) == (2, 5, {"exact": 4, "near": 0})
    assert (told["refused"], told["unchecked"]) == ({"vanished": 3}, {"restored": 2})
    assert (told["removed"], told["stay"], done.exit_code) == (3, [], 0)
    again = up_to_date(overtaken)
    assert (again.updated, again.changed and again.changed.counts, again.vanished.counts) == (None, {}, {})


@pytest.mark.long
def test_each_command_tells_the_new_decisions(overtaken: Job) -> None:
    updated = up_to_date(overtaken).updated
    assert updated is not None
    run = updated.run

    assert [asked(overtaken, "0")[name] for name in ("verdict", "reason", "run")] == [
        "refused", "vanished", run,
    ]  # fmt: skip
    assert [asked(overtaken, "1")[name] for name in ("verdict", "run", "mode")] == ["unique", run, "update"]
    assert asked(overtaken, "2")["keeper"] == 1
    assert "changed_since" not in asked(overtaken, "3") | asked(overtaken, "5")
    assert (asked(overtaken, "16")["verdict"], asked(overtaken, "16")["reason"]) == ("unchecked", "restored")
    status = json.loads(overtaken.command("status", "--json").stdout)
    assert status["runs"][0]["mode"] == "update"
    assert (status["read"], status["refused"]) == (20, {"vanished": 3})
    rows = overtaken.command("list", "--ids", "--run", run).stdout.splitlines()
    assert set(rows) == {"2", "10", "13", "20"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def whole_state(job: Job) -> Any:
    """Return what a sync leaves: as `state`, and the decisions in their order, of whatever run."""
    with job.context() as context:
        reader = context.ledger_reader()
        head = reader.head()
        assert head is not None
        plans = [
            (raw_id, verdict, hashed)
            for stored in reader.plans(head)
            for raw_id, verdict, hashed in zip(
                stored.plan.ids, stored.plan.verdicts, stored.plan.hashes.tolist(), strict=True
            )
        ]
    assert head.pending is None
    left = state(job)
    return plans, head.counts, head.watermark, *(left[name] for name in ("target", "dropped", "exceptions"))


@pytest.mark.long
def test_a_sync_that_is_killed_at_any_moment_is_ended_by_doing_it_again(overtaken: Job, twin: Make) -> None:
    whole = twin()
    commands = commands_of(lambda: up_to_date(whole))
    check_up_to_date(whole)
    undisturbed = whole_state(whole)
    assert commands > 60

    for number in range(1, commands + 1, EVERY):
        half = twin()
        killed(partial(up_to_date, half), number)
        up_to_date(half)
        assert whole_state(half) == undisturbed, f"killed after command {number} of {commands}"
        assert half.differences() == {}


@pytest.mark.longest
def test_what_a_killed_sync_left_pending_is_finished_by_a_nightly_run_and_by_an_undo(
    overtaken: Job, twin: Make
) -> None:
    whole = twin()
    up_to_date(whole)

    for number in range(10, commands_of(lambda: up_to_date(twin())), 2 * EVERY):
        for go_on in (lambda half: half.decide("run"), undo_newest):
            half = twin()
            killed(partial(up_to_date, half), number)
            go_on(half)
            assert half.differences() == {}, f"killed after command {number}"
            up_to_date(half)
            half.decide("run")
            texts = set(in_target(half).values())
            assert texts == set(in_target(whole).values()), f"killed after command {number}"
            assert (len(in_target(half)), half.differences()) == (len(in_target(whole)), {})


def undo_newest(job: Job) -> None:
    """Undo the run that the newest plan is of, and decide again what it had decided."""
    plans = [plan for plan in job.ledger("plans").find().sort("_id", -1) if plan["mode"] != "renew"]
    undo(job, plans[0]["run"])
    job.decide("run")


@pytest.mark.longest
def test_a_sync_that_wakes_when_another_has_ended_it_changes_nothing(
    overtaken: Job, twin: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry_removals(monkeypatch)
    whole = twin()
    up_to_date(whole)
    undisturbed = whole_state(whole)

    def meanwhile(half: Job, event: Event) -> None:
        up_to_date(half)
        if event.command.get("delete") == "unique" or event.command.get("update") == "unique":
            sleep_past_removals()

    for number in range(1, commands_of(lambda: up_to_date(twin())) + 1, EVERY):
        half = twin()
        with suppress(LeaseHeld):
            stopped(partial(up_to_date, half), partial(_is, number), partial(meanwhile, half))
        assert whole_state(half) == undisturbed, f"stopped before command {number}"
        assert half.differences() == {}


def test_a_sync_that_wakes_before_it_reads_a_plan_that_another_has_rewritten_says_who_works(
    overtaken: Job,
) -> None:
    def reads_a_plan(_: int, event: Event) -> bool:
        of_plans = event.command.get("find") == "unique.dedup.plans"
        # All of its records have changed, and the last two have the same text.
        return of_plans and event.command["filter"]["_id"].get("number") == 2

    with pytest.raises(LeaseHeld, match="another run took over"):
        stopped(partial(up_to_date, overtaken), reads_a_plan, lambda event: up_to_date(overtaken))

    assert overtaken.differences() == {}
    assert not any(due(overtaken)["decide_again"].values())


class InlineThreads:
    """Stands in for `Threads`, and does all work at once."""

    def __init__(self, _: int) -> None: ...

    def submit(self, work: Callable[..., None], *arguments: Any) -> Future[None]:
        done = Future[None]()
        done.set_result(work(*arguments))
        return done

    def stop(self) -> None: ...


@pytest.mark.longest
def test_a_sync_that_wakes_when_all_was_undone_and_decided_again_changes_nothing(
    overtaken: Job, twin: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry_removals(monkeypatch)
    # Otherwise another thread may be stopped just before an insert.
    monkeypatch.setattr(leased_ledger, "Threads", InlineThreads)
    in_time = ("unique", "unique.dedup.dropped", "unique.dedup.exceptions")

    def meanwhile(half: Job, states: list[Any], inserted: list[Any], event: Event) -> None:
        inserted.append(event.command.get("insert"))
        up_to_date(half)
        for row in half.ledger("runs").find().sort("fence", -1):
            with suppress(UsageError):  # It decided nothing, or is undone.
                undo(half, row["_id"])
        half.decide("backfill")
        states.append(whole_state(half))
        if event.command_name in ("delete", "update") and event.command[event.command_name] in in_time:
            sleep_past_removals()

    for number in range(1, commands_of(lambda: up_to_date(twin())) + 1, EVERY):
        half, states, inserted = twin(), list[Any](), list[Any]()
        with suppress(LeaseHeld):
            others = partial(meanwhile, half, states, inserted)
            stopped(partial(up_to_date, half), partial(_is, number), others)
        # An insert cannot ask who has the lease.
        late = {"unique": {"foreign"}, "unique.dedup.dropped": {"row_superfluous"}}
        late["unique.dedup.exceptions"] = late["unique.dedup.dropped"]
        (collection,) = inserted
        assert half.differences().keys() <= late.get(collection, set()), f"stopped before command {number}"
        assert collection in late or [whole_state(half)] == states


def _is(number: int, sent: int, _: Event) -> bool:
    return sent == number


def test_what_records_say_that_have_not_changed_is_in_the_target_at_every_moment(
    overtaken: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing leaves the target while anything in the source is dropped for it."""
    unchanged = {A, B, D, E, I, J}
    writes = Counter[str]()

    class Watch(QuietListener):
        def started(self, event: Event) -> None:
            if event.command.get(event.command_name) == "unique" and event.command_name != "find":
                writes[event.command_name] += 1
                assert unchanged <= set(in_target(overtaken).values())

        def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
            assert unchanged <= set(in_target(overtaken).values())

    monkeypatch.setattr(connect_and_retry, "JobClient", partial(JobClient, event_listeners=[Watch()]))
    up_to_date(overtaken)

    assert writes.keys() == {"insert", "update", "delete"}
    check_up_to_date(overtaken)


def test_an_undone_sync_leaves_its_records_undecided_and_the_next_run_decides_them(overtaken: Job) -> None:
    before = overtaken.ledger("head").find_one() or {}
    backfill, nightly = [
        row["_id"] for row in overtaken.ledger("runs").find({"mode": {"$in": ["backfill", "run"]}})
    ]
    updated = up_to_date(overtaken).updated
    assert updated is not None
    said = overtaken.command("undo", updated.run, "--dry-run")
    assert "do not come back if the source had changed or deleted them" in said.stdout

    undone = undo(overtaken, updated.run)

    assert (undone.counts.read, undone.left) == (14, {})
    assert in_target(overtaken) == {5: D, 7: E, 17: I, 21: J}
    assert dropped(overtaken) == {6: 5, 14: 5}
    assert (overtaken.differences(), overtaken.verified().waiting) == ({}, 11)
    again = overtaken.decide("run").counts
    assert (again.read, again.refused, again.unchecked) == (11, {}, {"restored": 2})
    assert in_target(overtaken) == {
        1: A, 3: C, 4: B, 5: D, 7: E, 8: F, 11: OTHERS[10], 15: A, 16: OTHERS[11], 17: I, 21: J,
    }  # fmt: skip
    assert overtaken.differences() == {}
    last = overtaken.ledger("runs").find_one(sort=[("started", -1)]) or {}
    for run in (last["_id"], nightly, backfill):
        assert undo(overtaken, run).left == {}
    assert in_target(overtaken) == dropped(overtaken) == exceptions(overtaken) == {}
    after = overtaken.ledger("head").find_one() or {}
    assert (after["next"], after["watermark"], before["watermark"] is None) == (0, None, False)
    assert overtaken.decide("backfill").counts.read == 17
    assert overtaken.differences() == {}


def test_what_somebody_altered_in_the_target_stays_and_is_named(overtaken: Job) -> None:
    """A record that vanished, one that changed, one that is dropped now, and one that is to be renewed."""
    for number in (0, 3, 5, 10):
        overtaken.target.update_one({"_id": number}, {"$set": {"by": "hand"}})

    done = overtaken.command("sync", "--yes", "--json")

    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    assert sorted(told["updated"]["stay"]) == [0, 3, 5, 10]
    assert told["updated"]["refused"] == {"conflict": 3, "vanished": 2}
    assert overtaken.target.count_documents({"by": "hand"}) == 4
    there = in_target(overtaken)
    assert {number: there[number] for number in (0, 1, 3, 4, 5, 10)} == {0: A, 1: A, 3: B, 4: B, 5: D, 10: H}
    assert overtaken.differences().keys() == {"altered", "keeper_altered"}  # 5, which is as it was before
    again = overtaken.command("sync", "--yes", "--json")
    told = json.loads(again.stdout)
    assert (again.returncode, told["updated"]["stay"], told["updated"]["read"]) == (3, [5], 0)
    assert "left unchanged" in overtaken.command("sync", "--yes").stdout
    for row in list(overtaken.ledger("runs").find({"mode": "update"}).sort("started", -1)):
        with suppress(UsageError):  # those that only renewed decided nothing
            undo(overtaken, row["_id"])
    assert overtaken.target.count_documents({"by": "hand"}) == 4
    overtaken.decide("run")
    assert exceptions(overtaken)[3] == exceptions(overtaken)[10] == ("refused", "conflict")
    assert overtaken.differences().keys() == {"altered", "keeper_altered"}


def test_a_record_that_is_missing_in_the_target_is_put_there_as_it_is_now(overtaken: Job) -> None:
    """One whose text has changed, and one that is only to be renewed."""
    overtaken.target.delete_many({"_id": {"$in": [3, 5]}})
    assert {"missing", "keeper_missing"} <= set(overtaken.differences())

    done = up_to_date(overtaken)

    assert done.updated is not None
    assert (done.exit_code, done.updated.renewed, list(done.updated.stay)) == (0, 2, [])
    check_up_to_date(overtaken)


@pytest.mark.long
def test_a_renewal_of_a_missing_record_that_is_killed_at_any_moment_is_ended_by_doing_it_again(
    job: Job, twin: Make
) -> None:
    job.source.insert_many([{"_id": 1, "text": A}, {"_id": 2, "text": A}, {"_id": 3, "text": B}])
    job.decide("backfill")
    job.source.update_many({}, {"$set": {"seen": True}})
    job.target.delete_one({"_id": 1})
    whole = twin()
    commands = commands_of(lambda: up_to_date(whole))
    undisturbed = whole_state(whole)
    assert ([*in_target(whole)], whole.differences()) == ([3, 1], {})

    for number in range(1, commands + 1, min(3, EVERY)):
        half = twin()
        killed(partial(up_to_date, half), number)
        up_to_date(half)
        assert whole_state(half) == undisturbed, f"killed after command {number} of {commands}"
        assert half.differences() == {}


def test_what_the_target_does_not_take_any_more_is_refused_and_a_renewal_leaves_what_is_there(
    overtaken: Job,
) -> None:
    overtaken.database.command(
        "collMod", "unique", validator={"text": {"$ne": C}, "seen": {"$exists": False}}
    )

    done = up_to_date(overtaken)

    assert done.updated is not None
    assert (done.exit_code, done.updated.counts.refused) == (3, {"vanished": 3, "validator": 1})
    assert list(done.updated.stay) == [encode({"_id": 5})]
    there = in_target(overtaken)
    assert 3 not in there
    assert (there[4], there[5], dropped(overtaken)[6]) == (B, D, 5)
    assert overtaken.differences() == {}


def test_a_target_that_lacks_most_of_what_it_is_to_hold_is_not_touched(overtaken: Job) -> None:
    """It was emptied, or comes from an older backup; also what is only to be renewed is not put there."""
    overtaken.target.delete_many({"_id": {"$ne": 15}})

    with pytest.raises(StateError, match="the target lacks"):
        up_to_date(overtaken)

    assert in_target(overtaken) == {15: A}
    with pytest.raises(StateError, match="the target lacks"):
        overtaken.decide("run")


def test_records_that_change_again_meanwhile_are_decided_as_they_are_then(overtaken: Job) -> None:
    with overtaken.context() as context:
        found = compare_with_source(context, lambda number: None)
        overtaken.source.insert_one({"_id": 0, "text": A})  # it is back
        overtaken.source.delete_many({"_id": {"$in": [1, 8]}})  # one that was to be kept in its place is gone
        overtaken.source.update_one({"_id": 5}, {"$set": {"text": OTHERS[12]}})  # not to be renewed any more
        overtaken.source.update_one({"_id": 3}, {"$set": {"text": B}})  # as it was
        syncing.sync(context, found, lambda number: None)

    assert overtaken.differences() == {}
    there = in_target(overtaken)
    assert (there[2], there[4], 0 in there, 3 in there) == (A, B, False, False)
    assert {number: dropped(overtaken).get(number) for number in (0, 3, 6)} == {0: 2, 3: 4, 6: 5}
    assert {number: exceptions(overtaken).get(number) for number in (1, 8)} == dict.fromkeys(
        (1, 8), ("refused", "vanished")
    )
    up_to_date(overtaken)
    assert in_target(overtaken)[5] == OTHERS[12]
    assert in_target(overtaken)[6] == D
    assert overtaken.differences() == {}


def test_a_record_that_vanished_and_comes_again_is_decided_again(overtaken: Job) -> None:
    up_to_date(overtaken)
    overtaken.source.insert_many([{"_id": 0, "text": A}, {"_id": 9, "text": G}])
    assert asked(overtaken, "9")["changed_since"] is True

    up_to_date(overtaken)

    assert dropped(overtaken)[0] == 1
    assert in_target(overtaken)[9] == G
    assert overtaken.differences() == {}


def test_a_command_that_wrote_since_the_comparison_ends_a_sync(overtaken: Job) -> None:
    with overtaken.context() as context:
        found = compare_with_source(context, lambda number: None)
        overtaken.decide("run")
        before = in_target(overtaken)
        with pytest.raises(LeaseHeld, match="changed this target during the comparison"):
            syncing.sync(context, found, lambda number: None)
    assert in_target(overtaken) == before
    up_to_date(overtaken)
    check_up_to_date(overtaken)


def test_what_was_missed_is_decided_against_what_is_up_to_date(overtaken: Job) -> None:
    overtaken.source.insert_many([{"_id": -1, "text": B}, {"_id": -2, "text": H}])

    done = up_to_date(overtaken)

    assert done.run is not None
    assert (done.run.counts.exact, done.run.counts.unique) == (1, 1)
    assert dropped(overtaken)[-1] == 4
    assert overtaken.differences() == {}


def test_where_nothing_changed_a_sync_writes_nothing(job: Job) -> None:
    decided(job)
    before = job.hash()
    done = job.command("sync", "--yes", "--json")
    assert (done.returncode, "updated" in json.loads(done.stdout)) == (0, False)
    assert job.hash() == before


def test_all_that_a_ledger_knows_may_change_and_vanish(job: Job) -> None:
    """Plans of which nothing is left are read, verified and undone like others."""
    decided(job)
    job.source.update_many({}, [{"$set": {"text": {"$concat": [{"$ifNull": ["$text", I]}, J, G]}}}])
    up_to_date(job)
    assert job.differences() == {}
    job.source.delete_many({})

    done = up_to_date(job)

    assert done.updated is not None
    assert done.updated.counts.refused == {"vanished": 20}
    assert (in_target(job), dropped(job), job.differences()) == ({}, {}, {})
    for row in list(
        job.ledger("runs").find({"mode": {"$in": ["update", "backfill", "run"]}}).sort("started", -1)
    ):
        with suppress(UsageError):  # a run that decided nothing that is left
            undo(job, row["_id"])
    head = job.ledger("head").find_one() or {}
    assert (head["next"], head["watermark"]) == (0, None)
    assert exceptions(job) == {}


def test_adopted_records_stay_as_they_are_and_stand_for_their_copies(job: Job) -> None:
    job.target.insert_many([{"_id": 1, "text": A}, {"_id": 2, "text": B}, {"_id": 3, "text": C}])
    job.source.insert_many(
        [{"_id": 1, "text": A}, {"_id": 2, "text": B}, {"_id": 5, "text": A}, {"_id": 6, "text": B}]
    )
    with job.context() as context:
        adopt(context, lambda plan: None)
    job.decide("backfill")
    job.source.update_one({"_id": 1}, {"$set": {"text": D}})
    job.source.delete_one({"_id": 2})

    done = up_to_date(job)

    assert in_target(job) == {1: A, 2: B, 3: C}
    assert dropped(job) == {5: 1, 6: 2}
    assert exceptions(job) == {1: ("refused", "conflict"), 2: ("refused", "vanished")}
    assert (done.exit_code, list(done.updated.stay if done.updated else ())) == (3, [encode({"_id": 1})])
    assert job.differences() == {}


def test_what_an_undo_left_and_a_run_decided_since_is_brought_up_to_date(job: Job) -> None:
    job.source.insert_many([{"_id": 1, "text": A}, {"_id": 2, "text": B}])
    run = job.decide("backfill").run
    job.source.delete_one({"_id": 1})
    assert undo(job, run).left == {"vanished": 1}
    job.source.insert_one({"_id": 1, "text": A})
    assert job.decide("backfill").counts.unique == 2
    job.source.update_one({"_id": 1}, {"$set": {"text": C}})

    up_to_date(job)

    assert in_target(job) == {1: C, 2: B}
    assert job.differences() == {}


def test_who_may_not_replace_or_remove_records_learns_it_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalMongod(auth=True) as server, MongoClient[Any](server.uri, tz_aware=True) as root:
        job = Job(root.shop, server.uri, tmp_path)
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)
        overtake(decided(job))
        before = (in_target(job), dropped(job), exceptions(job))
        named = lambda name, *actions: {"resource": {"db": "shop", "collection": name}, "actions": actions}  # noqa: E731
        ledger = [
            named(f"unique.dedup.{name}", "insert", "update", "remove", "createIndex") for name in LEDGER
        ]
        reading = named("", "find", "listCollections")
        for name, actions in (
            ("adds", ["insert"]),
            ("removes", ["insert", "remove"]),
            ("all", ["insert", "remove", "update"]),
        ):
            rights = [reading, *ledger, named("unique", *actions)]
            root.admin.command("createRole", name, privileges=rights, roles=[])
            root.admin.command("createUser", name, pwd="secret", roles=[name])
        for name in ("adds", "removes"):
            monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri_as(name, "secret"))
            with pytest.raises(NotPermitted):
                up_to_date(job)
            assert (in_target(job), dropped(job), exceptions(job)) == before

        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri_as("all", "secret"))
        up_to_date(job)

        check_up_to_date(job)


def test_a_dry_run_of_a_sync_says_what_it_would_do_and_leaves_it(overtaken: Job) -> None:
    before = overtaken.hash()
    done = overtaken.command("sync", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"renewed +2 .*\n +decided again +5 .*\n +6  were .*(\n +0  were .*){2}\n +vanished +2  .*\n +1  are",
        done.stdout,
    )
    assert json.loads(overtaken.command("sync", "--dry-run", "--json").stdout) == {
        **due(overtaken),
        "exit_code": 0,
    }
    assert overtaken.hash() == before


def test_without_a_terminal_a_sync_does_nothing_unless_it_is_told_to(overtaken: Job) -> None:
    before = overtaken.hash()
    done = overtaken.command("sync")
    assert done.returncode == 64
    assert "there is no terminal to ask on: add --yes, or --dry-run" in done.stderr
    assert overtaken.hash() == before


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 64), ("", 64)])
def test_on_a_terminal_a_sync_says_what_it_will_do_and_asks(
    overtaken: Job,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    code: int,
) -> None:
    typed = io.StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", typed)
    monkeypatch.setattr(sys, "argv", ["dedup-job", "sync", "-c", str(overtaken.config_file())])
    before = in_target(overtaken)

    assert run_and_exit._run() == code

    said = capsys.readouterr()
    assert "sync would bring" in said.err
    assert "make these changes?" in said.err
    assert ("nothing was done" in said.err) == (code == 64) == (in_target(overtaken) == before)
    assert A not in said.out + said.err


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_whatever_changes_and_vanishes_each_text_has_a_record_in_the_target(job: Job, seed: int) -> None:
    """The target ends as the decisions say, and every text of the source is in it, or one near to it."""
    chance = Random(seed)
    job.set("source", fields=["data"])
    job.set("limits", batch_records=40)
    records = list(generate(400, seed=seed))
    spare = [
        record["data"] for record in generate(150, seed=seed + 50) if isinstance(record.get("data"), str)
    ]
    job.source.insert_many(records)
    job.decide("backfill")
    for _ in range(3):
        there = [record["_id"] for record in job.source.find({}, {"_id": 1})]
        for raw_id in chance.sample(there, 40):
            job.source.update_one({"_id": raw_id}, {"$set": {"data": chance.choice(spare)}})
        for raw_id in chance.sample(there, 40):
            job.source.update_one({"_id": raw_id}, {"$set": {"seen": chance.random()}})
        job.source.delete_many({"_id": {"$in": chance.sample(there, 40)}})

        up_to_date(job)

        assert job.differences() == {}
        assert not any(due(job)["decide_again"].values())
        assert due(job)["renew"] == due(job)["take_out"]["kept"] == 0
        with job.context() as context:
            reader, head = context.ledger_reader(), context.ledger_reader().head()
            assert head is not None
            ids = [raw_id for stored in reader.plans(head) for raw_id in stored.plan.ids]
        assert len(ids) == len(set(ids)) == 400
