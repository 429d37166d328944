"""A restored record is in the target again, byte for byte, and nothing is dropped for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from bson import ObjectId

from dedup_job.commands import restore as restore_module
from dedup_job.commands import verify
from dedup_job.errors import ConfigError, LeaseHeld, UsageError
from dedup_job.mongo.id_lookup import PIECE_BYTES
from dedup_job.records import chunked
from dedup_job.report.undo_and_restore_results import RestoreResult
from tests.support.job import RAW, Job
from tests.support.kill_in_process import commands_of, killed
from tests.support.restore_cases import TEXT, in_target, restore, why, with_two_copies
from tests.support.text_pairs import OTHER
from tests.support.undo_cases import undo


def test_a_restored_record_arrives_byte_for_byte_and_the_ledger_says_who_wanted_it(job: Job) -> None:
    run = with_two_copies(job)

    done = job.command("restore", "2", "--why", "the other edition", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["restored"] == [2]
    raw = {one["_id"]: one.raw for one in job.source.with_options(RAW).find()}
    assert job.target.with_options(RAW).find_one({"_id": 2}).raw == raw[2]
    assert in_target(job) == [1, 2]
    assert [row["_id"] for row in job.ledger("dropped").find()] == [3]
    answer = why(job, "2")
    assert (answer["verdict"], answer["keeper"], answer["run"]) == ("restored", 1, run)
    assert answer["restored_because"] == "the other edition"
    assert restore(job, "2").ids == []
    assert in_target(job) == [1, 2]


def test_a_restored_record_stands_for_nothing_and_later_runs_leave_it_alone(job: Job) -> None:
    job.source.insert_one({"_id": 0, "text": "red orange yellow green blue indigo violet"})
    with_two_copies(job)
    restore(job, "2")
    job.target.delete_one({"_id": 1})
    job.source.insert_many([{"_id": 4, "text": TEXT}, {"_id": 5, "text": TEXT}])

    counts = job.decide("run").counts

    assert (counts.read, counts.unique, counts.exact) == (2, 1, 1)
    assert in_target(job) == [0, 2, 4]
    assert {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()} == {3: 1, 5: 4}


def test_a_restored_record_goes_with_its_undone_run_and_is_kept_by_the_next(job: Job) -> None:
    run = with_two_copies(job)
    restore(job, "2")

    assert undo(job, run).left == {}
    assert in_target(job) == []
    with pytest.raises(UsageError, match="was restored, and its decision was taken back"):
        restore(job, "2")
    counts = job.decide("run").counts

    assert (counts.unique, counts.exact, counts.unchecked) == (1, 1, {"restored": 1})
    assert in_target(job) == [1, 2]
    assert (why(job, "2")["verdict"], why(job, "2")["reason"]) == ("unchecked", "restored")
    assert restore(job, "2").ids == []


def test_a_restore_that_the_ledger_has_forgotten_is_named(job: Job) -> None:
    run = with_two_copies(job)
    restore(job, "2")
    undo(job, run)
    job.decide("run")
    differences(job, [])
    job.ledger("overrides").delete_many({})
    differences(job, ["restore_forgotten"])


def test_what_was_restored_and_undone_agrees_with_the_ledger_at_every_step(job: Job) -> None:
    run = with_two_copies(job)
    differences(job, [])
    restore(job, "2")
    differences(job, [])
    undo(job, run)
    differences(job, [])
    job.decide("backfill")
    differences(job, [])


def differences(job: Job, kinds: list[str]) -> None:
    """Check what an audit of everything, and one by numbers, say."""
    with job.context() as context:
        whole = verify.verify(context, None, lambda number: None)
        sample = verify.verify_sample(context, 100, lambda number: None)
    assert [one.kind for one in (*whole.differences, *sample.differences)] == kinds


def test_a_restored_record_that_changed_in_between_is_undone_as_it_arrived(job: Job) -> None:
    run = with_two_copies(job)
    job.source.update_one({"_id": 2}, {"$set": {"more": "changed"}})
    assert restore(job, "2", "3").changed == [2]
    differences(job, [])

    assert undo(job, run).left == {}
    assert in_target(job) == []


def test_a_restored_record_that_somebody_alters_in_the_target_is_named(job: Job) -> None:
    with_two_copies(job)
    restore(job, "2")
    job.target.update_one({"_id": 2}, {"$set": {"more": "altered"}})

    differences(job, ["altered", "altered"])


@pytest.mark.parametrize(
    ("change", "reason", "again"),
    [
        (lambda pages: pages.update_one({"_id": 2}, {"$set": {"text": TEXT[:30]}}), "changed", "conflict"),
        (lambda pages: pages.delete_one({"_id": 2}), "vanished", None),
    ],
)
def test_a_restored_record_stays_as_it_is_whatever_becomes_of_it_in_the_source(
    job: Job, change: Callable[[Any], object], reason: str, again: str | None
) -> None:
    run = with_two_copies(job)
    restore(job, "2")
    there = job.target.with_options(RAW).find_one({"_id": 2}).raw
    change(job.source)

    differences(job, [])
    assert job.decide("run").counts.read == 0
    assert undo(job, run).left == {reason: 1}
    differences(job, [])
    job.decide("run")

    assert job.target.with_options(RAW).find_one({"_id": 2}).raw == there
    assert in_target(job) == [1, 2]
    assert why(job, "2").get("reason") == (again or "exact")
    differences(job, [])


@pytest.mark.long
def test_a_restore_that_is_killed_at_any_moment_is_ended_by_doing_it_again(
    job: Job, twin: Callable[[], Job]
) -> None:
    with_two_copies(job)
    whole = twin()
    commands = commands_of(lambda: restore(whole, "2", "3"))
    assert in_target(whole) == [1, 2, 3]

    for number in range(1, commands + 1):
        half = twin()
        killed(partial(restore, half, "2", "3"), number)
        assert half.differences().keys() <= {"restore_unfinished"}
        restore(half, "2", "3")
        assert half.outcome() == whole.outcome(), f"killed after command {number} of {commands}"
        assert half.rows("overrides").keys() == {"2", "3"}


def test_a_record_that_was_restored_while_it_was_edited_and_edited_back_is_brought_up_to_date(
    job: Job,
) -> None:
    with_two_copies(job)
    job.source.update_one({"_id": 2}, {"$set": {"text": TEXT[:30]}})
    restore(job, "2")
    job.source.update_one({"_id": 2}, {"$set": {"text": TEXT}})
    compared = json.loads(job.command("changes", "--content", "--json").stdout)
    assert compared["changed"]["records"] == [{"id": 2, "was": "kept"}]

    done = job.command("sync", "--yes")

    assert done.returncode == 0, done.stderr
    raw = {one["_id"]: one.raw for one in job.source.with_options(RAW).find()}
    assert job.target.with_options(RAW).find_one({"_id": 2}).raw == raw[2]
    assert in_target(job) == [1, 2]
    differences(job, [])
    assert json.loads(job.command("changes", "--content", "--json").stdout)["changed"]["records"] == []


def test_what_cannot_be_restored_is_said_and_nothing_is_changed(job: Job) -> None:
    with pytest.raises(ConfigError, match="nothing was decided for"):
        restore(job_of_two(job), "2")
    job.decide("backfill")
    job.source.insert_one({"_id": 4, "text": "new"})
    for given, words in (
        (["4"], "4 was not dropped; the ledger says: undecided"),
        (["3", "4", "77"], "no record .* has the id '77'"),
    ):
        with pytest.raises(UsageError, match=words):
            restore(job, *given)
    assert in_target(job) == [1]
    assert job.ledger("overrides").count_documents({}) == 0


def test_records_that_were_not_dropped_are_named_and_the_others_are_restored(job: Job) -> None:
    """As in a list for a new target, which has refused one of them, or whose filter leaves one out."""
    job.database.create_collection("unique", validator={"_id": {"$ne": 5}})
    with_two_copies(job)
    job.source.insert_many([{"_id": 4, "text": "new"}, {"_id": 5, "text": OTHER}])
    job.set("source", filter='{"_id": {"$ne": 4}}')
    assert job.command("run", "--refilter").returncode == 3

    done = job.command("restore", "4", "5", "2")

    assert (done.returncode, done.stdout.splitlines()) == (
        3,
        [
            "2 is in the target again",
            "4 was not dropped: it is undecided",
            "5 was not dropped: it is refused",
        ],
    )
    told = json.loads(job.command("restore", "4", "2", "--json").stdout)
    assert told["not_restored"] == [{"id": 4, "refused_by": None, "reason": "undecided"}]
    assert in_target(job) == [1, 2]


def test_a_record_that_the_source_no_longer_has_stays_dropped_and_the_others_are_restored(job: Job) -> None:
    with_two_copies(job)
    job.source.delete_one({"_id": 2})

    done = job.command("restore", "2", "3")

    assert (done.returncode, done.stdout.splitlines()) == (
        3,
        ["3 is in the target again", "2 cannot be restored: the source no longer has it"],
    )
    told = json.loads(job.command("restore", "2", "3", "--json").stdout)
    assert told["not_restored"] == [{"id": 2, "refused_by": None, "reason": "vanished"}]
    assert in_target(job) == [1, 3]
    assert (job.rows("dropped").keys(), job.rows("overrides").keys()) == ({"2"}, {"3"})


def test_a_record_with_an_equal_id_of_another_type_is_not_the_dropped_one(job: Job) -> None:
    with_two_copies(job)
    job.source.delete_one({"_id": 2})
    job.source.insert_one({"_id": 2.0, "text": OTHER})

    for given in (["2"], ["2", "3"]):
        told = json.loads(job.command("restore", *given, "--json").stdout)
        assert told["not_restored"] == [{"id": 2, "refused_by": None, "reason": "vanished"}]

    assert told["restored"] == [3]
    assert (in_target(job), job.rows("overrides").keys()) == ([1, 3], {"3"})


def test_a_restore_of_nothing_that_was_dropped_is_no_run(job: Job) -> None:
    with_two_copies(job)
    before = job.hash()
    for given in (["77"], ["77", "1"], ["1", "77"]):
        with pytest.raises(UsageError):
            restore(job, *given)
    assert restore(job, "1") == RestoreResult(None, [], 1)
    assert restore(job) == RestoreResult(None, [], 0)
    assert job.hash() == before


def test_of_a_list_of_records_those_that_are_kept_anyway_are_left_alone(job: Job) -> None:
    with_two_copies(job)
    restored = restore(job, "1", "2")
    assert (restored.ids, restored.asked) == ([2], 2)
    assert in_target(job) == [1, 2]


def test_a_record_that_is_named_in_several_spellings_is_one(job: Job) -> None:
    with_two_copies(job)
    named = ("2", "1", "2.0", '{"$numberInt": "2"}', '{"$numberLong": "1"}', "2")

    done = job.command("restore", *named)

    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["2 is in the target again", "already in the target: 1 of 2 named records"],
    )
    again = restore(job, *named)
    assert (again.ids, again.asked) == ([], 2)
    assert restore(job, "1", "1.0") == RestoreResult(None, [], 1)


def test_texts_that_look_like_equal_numbers_are_records_of_their_own(job: Job) -> None:
    job.source.insert_many([{"_id": one, "text": TEXT} for one in ("0", "2", "2.0")])
    job.decide("backfill")

    assert restore(job, "2", "2.0").ids == ["2", "2.0"]


def test_a_vanished_record_that_is_back_is_left_to_sync(job: Job) -> None:
    with_two_copies(job)
    job.source.delete_one({"_id": 2})
    assert job.command("sync", "--yes").returncode == 0
    with pytest.raises(UsageError, match=r"the ledger says: refused \(vanished\)$"):
        restore(job, "2")
    job.source.insert_one({"_id": 2, "text": TEXT})

    with pytest.raises(
        UsageError, match=r"refused \(vanished\); it is in .* again: dedup-job sync .*decides it"
    ):
        restore(job, "2")


def job_of_two(job: Job) -> Job:
    job.source.insert_many([{"_id": n, "text": TEXT} for n in (1, 2, 3)])
    return job


def test_a_restored_record_that_somebody_deletes_from_the_target_can_be_restored_again(job: Job) -> None:
    job.source.insert_many([{"_id": 1, "text": TEXT}, {"_id": 2, "text": TEXT}])
    job.decide("backfill")
    restore(job, "2")
    job.target.delete_one({"_id": 2})

    restored = restore(job, "2", why="again")

    assert restored.ids == [2]
    assert job.target.find_one({"_id": 2}) == {"_id": 2, "text": TEXT}
    differences(job, [])
    job.target.delete_one({"_id": 2})
    job.database.command("collMod", job.target.name, validator={"_id": 1})
    assert restore(job, "2").not_restored == [(2, "target", "validator")]
    differences(job, [])
    assert job.ledger("dropped").count_documents({}) == 1


def test_a_record_that_the_target_refuses_stays_dropped_and_the_others_come_back(job: Job) -> None:
    job.source.insert_many([{"_id": n, "text": TEXT} for n in range(1, 6)])
    job.decide("backfill")
    job.database.command("collMod", job.target.name, validator={"_id": {"$nin": [2, 4]}})

    done = job.command("restore", "2", "3", "4", "5", "--why", "all of them")

    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        "3 is in the target again",
        "5 is in the target again",
        "2 stays dropped: the target refuses it (validator)",
        "4 stays dropped: the target refuses it (validator)",
        "correct the cause, and restore these again",
    ]
    assert in_target(job) == [1, 3, 5]
    assert (job.rows("dropped").keys(), job.rows("overrides").keys()) == ({"2", "4"}, {"3", "5"})
    assert job.ledger("runs").find_one({"mode": "restore"})["exit_code"] == 3
    differences(job, [])
    told = json.loads(job.command("restore", "2", "5", "--json").stdout)
    assert told["not_restored"] == [{"id": 2, "refused_by": "target", "reason": "validator"}]


@pytest.mark.parametrize("is_vanished", [False, True])
def test_a_list_of_ids_that_no_document_could_hold_is_restored_and_reported(
    job: Job, is_vanished: bool
) -> None:
    ids = [f"{number:04d}{'k' * 64_000}" for number in range(300)]
    job.set("limits", max_drop_share=1)
    for some in chunked(ids, 100):
        job.source.insert_many({"_id": one, "text": TEXT} for one in some)
    job.decide("backfill")
    if is_vanished:
        job.source.delete_many({"_id": {"$gte": "0001"}})

    restored = restore(job, *ids[1:])

    there, lost = (0, 299) if is_vanished else (299, 0)
    assert (len(restored.ids), len(restored.not_restored)) == (there, lost)
    assert restored.exit_code == (3 if is_vanished else 0)
    assert job.target.count_documents({}) == 1 + there
    row = job.ledger("runs").find_one({"mode": "restore"})
    assert (row["restored"], row["not_restored"], row["exit_code"]) == (there, lost, restored.exit_code)
    differences(job, [])


def test_a_restore_has_some_megabytes_of_records_in_memory_at_once(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest list of records would otherwise need the memory of all of them."""
    size = 2_000_000
    for number in range(13):
        job.source.insert_one({"_id": number, "text": TEXT, "image": bytes(size)})
    job.decide("backfill")
    written, at_once = restore_module.restore_records, list[int]()

    def count_records(ledger: Any, records: Any, *rest: Any) -> Any:
        at_once.append(len(records))
        return written(ledger, records, *rest)

    monkeypatch.setattr(restore_module, "restore_records", count_records)

    done = restore(job, *map(str, range(1, 13)))

    assert done.as_json()["restored"] == list(range(1, 13))
    assert sum(at_once) == 12
    assert max(at_once) <= PIECE_BYTES // size + 1
    differences(job, [])


def test_a_record_whose_id_a_foreign_one_has_stays_dropped(job: Job) -> None:
    with_two_copies(job)
    job.target.insert_one({"_id": 2, "foreign": True})

    assert restore(job, "2").not_restored == [(2, "target", "conflict")]

    assert job.target.find_one({"_id": 2}) == {"_id": 2, "foreign": True}
    assert job.rows("dropped").keys() == {"2", "3"}
    assert job.rows("overrides") == {}


def test_ids_of_every_spelling_are_restored(job: Job) -> None:
    first, second = ObjectId(), ObjectId()
    ids = [first, second, "second", 7, {"a": 1}]
    job.source.insert_many([{"_id": one, "text": TEXT} for one in ids])
    job.decide("backfill")
    kept = job.target.find_one() or {}
    spelled = {str(second): second, "second": "second", '{"a": 1}': {"a": 1}, str(first): first, "7": 7}
    wanted = [name for name, one in spelled.items() if one != kept["_id"]]

    assert len(restore(job, *wanted).ids) == 4

    assert job.target.count_documents({}) == 5
    assert job.rows("dropped") == {}


def test_a_restore_takes_the_lease(job: Job) -> None:
    with_two_copies(job)
    lease = {"host": "elsewhere", "boot": "b", "pid": 1}
    job.ledger("head").update_one({}, [{"$set": {"lease": {**lease, "until": {"$add": ["$$NOW", 60000]}}}}])

    with pytest.raises(LeaseHeld):
        restore(job, "2")
