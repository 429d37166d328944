"""`verify` finds nothing in an undisturbed ledger, and names every kind of planted difference."""

from __future__ import annotations

import json
import signal
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import MaxKey, ObjectId, encode
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from dedup_job import config
from dedup_job.audit.audit_checks import HEAD_CHECKS, LEDGER, NUMBERS, RECORDS
from dedup_job.audit.audit_context import AuditReader
from dedup_job.audit.audit_database import AuditDatabase
from dedup_job.audit.reread_checks import SIMILARITIES
from dedup_job.cli import commands
from dedup_job.commands import verify
from dedup_job.errors import ConfigError, LeaseHeld, UsageError
from dedup_job.ledger.overrides import Override
from dedup_job.ledger.plan_format import pack, unpack
from dedup_job.mongo.connect_and_retry import RetryPolicy
from dedup_job.mongo.ids import id_of, value
from dedup_job.mongo.pages import IDS, BatchSize, Pages, Window
from dedup_job.pipeline.command_context import Context
from dedup_job.records import UNIQUE, Action, Plan, Verdict
from dedup_job.report.verify_result import VerifyResult
from scripts.bench.corpus import generate
from scripts.dev.local_mongod import LocalMongod
from tests.support.bson_types import raw_ids, texts_as_records
from tests.support.job import RAW, Job, retrying
from tests.support.sweep_cases import ARCHIVE, restore, sweep
from tests.support.sync_cases import up_to_date

KILLED = ("-m", "tests.support.kill_at_command")
DECODED: CodecOptions[Any] = CodecOptions(tz_aware=True)
EVERYTHING = 1_000_000
WHOLE_ALONE = {kind.name for kind in (*HEAD_CHECKS, *RECORDS, SIMILARITIES) if not kind.of_sample}


Copies = dict[str, list[RawBSONDocument]]


@pytest.fixture(scope="module")
def prepared(mongo_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """What a backfill of four plans and a nightly run behind it leave: the records of each collection."""
    with pytest.MonkeyPatch.context() as environment, MongoClient[dict[str, Any]](mongo_uri) as client:
        environment.setenv("DEDUP_SOURCE_URI", mongo_uri)
        job = Job(client[f"test_{uuid.uuid4().hex}"], mongo_uri, tmp_path_factory.mktemp("prepared"))
        job.set("source", fields=["data"])
        records = list(generate(230, seed=8))
        records[17]["data"] = records[150]["data"] = None
        job.source.insert_many(records[:200])
        job.decide("backfill")
        job.source.insert_many(records[200:])
        job.decide("run")
        copies = {
            name: list(job.database[name].with_options(RAW).find())
            for name in job.database.list_collection_names()
        }
        client.drop_database(job.database)
    return copies


@pytest.fixture
def decided(job: Job, prepared: Copies) -> Job:
    """A job whose ledger and target are those of the prepared one."""
    job.set("source", fields=["data"])
    for name, records in filter(all, prepared.items()):
        job.database[name].with_options(RAW).insert_many(records)
    moved = {"$set": {"source": job.source.full_name}, "$unset": {"places": ""}}
    job.ledger("head").update_one({}, moved)
    return job


def verified(job: Job, state: Path | None = None) -> VerifyResult:
    with job.context() as context:
        return verify.verify(context, state, lambda number: None)


def sampled(job: Job, records: int) -> VerifyResult:
    with job.context() as context:
        return verify.verify_sample(context, records, lambda number: None)


def kinds(found: VerifyResult) -> dict[str, int]:
    return {one.kind: one.count for one in found.differences}


def head(job: Job) -> dict[str, Any]:
    found = job.ledger("head").find_one()
    assert found is not None
    return found


def forged(job: Job, number: int, change: Callable[[Plan], Plan]) -> None:
    """Put a plan with other content in the place of one, with a right checksum."""
    plans = job.ledger("plans").with_options(DECODED)
    stored = plans.find_one({"_id.number": number})
    assert stored is not None
    before = unpack(stored)
    plans.replace_one({"_id": stored["_id"]}, pack(replace(before, plan=change(before.plan))))


def with_verdict(plan: Plan, row: int, verdict: Verdict) -> Plan:
    return replace(plan, verdicts=[*plan.verdicts[:row], verdict, *plan.verdicts[row + 1 :]])


def row_of(plan: Plan, action: Action, reason: str = "", *, last: bool = False) -> int:
    found = [
        row for row, one in enumerate(plan.verdicts) if one.action == action and reason in ("", one.reason)
    ]
    return found[-1 if last else 0]


def plan_of(job: Job, number: int) -> Plan:
    stored = job.ledger("plans").with_options(DECODED).find_one({"_id.number": number})
    assert stored is not None
    return unpack(stored).plan


def unused(job: Job) -> Any:
    """A kept record that stands for nothing."""
    keepers = job.ledger("dropped").distinct("keeper")
    found = job.target.find_one({"_id": {"$nin": keepers}, "data": {"$type": "string"}})
    assert found is not None
    return found["_id"]


# Each of these plants one difference.


def a_kept_record_leaves_the_target(job: Job) -> None:
    job.target.delete_one({"_id": unused(job)})


def a_keeper_leaves_the_target(job: Job) -> None:
    keeper = job.ledger("dropped").find_one()
    assert keeper is not None
    job.target.delete_one({"_id": keeper["keeper"]})


def a_record_of_the_target_is_changed(job: Job) -> None:
    job.target.update_one({"_id": unused(job)}, {"$inc": {"views": 1}})


def a_keeper_in_the_target_is_changed(job: Job) -> None:
    keeper = job.ledger("dropped").find_one()
    assert keeper is not None
    job.target.update_one({"_id": keeper["keeper"]}, {"$set": {"data": "another"}})


def a_stranger_is_put_into_the_target(job: Job) -> None:
    job.target.insert_one({"_id": "stranger"})


def a_refused_record_is_put_into_the_target(job: Job) -> None:
    raw_id = unused(job)

    def refuse(plan: Plan) -> Plan:
        row = list(plan.ids).index(encode({"_id": raw_id}))
        return with_verdict(plan, row, Verdict(Action.REFUSED, "validator"))

    number = next(n for n in range(5) if encode({"_id": raw_id}) in plan_of(job, n).ids)
    forged(job, number, refuse)
    stored = job.ledger("plans").with_options(DECODED).find_one({"_id.number": number})
    assert stored is not None
    row = {"_id": raw_id, "action": "refused", "reason": "validator", "stage": "target"}
    job.ledger("exceptions").insert_one({**row, "run": stored["run"], "at": stored["at"]})
    job.ledger("head").update_one({}, {"$inc": {"counts.unique": -1, "counts.refused.validator": 1}})


def a_dropped_record_is_put_into_the_target(job: Job) -> None:
    row = job.ledger("dropped").find_one()
    assert row is not None
    record = job.source.find_one({"_id": row["_id"]})
    assert record is not None
    job.target.insert_one(record)


def renamed_keeper(job: Job, keeper: Callable[[Plan], bytes], reason: str = "near") -> None:
    """Let the first near or exact duplicate of the second plan, and its row, name another keeper."""
    plan = plan_of(job, 1)
    row = row_of(plan, Action.DUPLICATE, reason)
    other, verdict = keeper(plan), plan.verdicts[row]
    assert verdict.match is not None
    match = replace(verdict.match, keeper=other)
    forged(job, 1, lambda plan: with_verdict(plan, row, replace(verdict, match=match)))
    shown = value(other)
    job.ledger("dropped").update_one({"_id": value(plan.ids[row])}, {"$set": {"keeper": shown}})


def a_keeper_was_never_decided(job: Job) -> None:
    job.source.insert_one({"_id": ObjectId("f" * 24)})
    renamed_keeper(job, lambda plan: encode({"_id": ObjectId("f" * 24)}))


def a_keeper_is_a_duplicate_itself(job: Job) -> None:
    before = plan_of(job, 0)
    renamed_keeper(job, lambda _: before.ids[row_of(before, Action.DUPLICATE)])


def a_keeper_is_decided_later(job: Job) -> None:
    later = plan_of(job, 3)
    renamed_keeper(job, lambda _: later.ids[row_of(later, Action.UNIQUE)])


def an_exact_duplicate_has_another_text(job: Job) -> None:
    def change(plan: Plan) -> Plan:
        digests = plan.digests.copy()
        digests[row_of(plan, Action.DUPLICATE, "exact")] ^= 1
        return replace(plan, digests=digests)

    forged(job, 1, change)


def a_record_has_the_digest_of_another_text(job: Job) -> None:
    """So that only the texts show that it is no exact duplicate."""
    plan = plan_of(job, 0)
    other = row_of(plan, Action.UNIQUE, last=True)
    renamed_keeper(job, lambda _: plan.ids[other], "exact")

    def change(later: Plan) -> Plan:
        digests = later.digests.copy()
        digests[row_of(later, Action.DUPLICATE, "exact")] = plan.digests[other]
        return replace(later, digests=digests)

    forged(job, 1, change)


def a_row_of_dropped_is_lost(job: Job) -> None:
    job.ledger("dropped").delete_one({})


def a_row_of_exceptions_is_lost(job: Job) -> None:
    job.ledger("exceptions").delete_one({})


def a_row_of_dropped_is_added(job: Job) -> None:
    job.ledger("dropped").insert_one({"_id": "nobody"})


def a_row_of_exceptions_is_on_a_kept_record(job: Job) -> None:
    job.ledger("exceptions").insert_one({"_id": unused(job)})


def a_row_of_dropped_says_another_distance(job: Job) -> None:
    job.ledger("dropped").update_one({"reason": "exact"}, {"$set": {"distance": 63}})


def a_row_of_exceptions_says_another_reason(job: Job) -> None:
    job.ledger("exceptions").update_one({}, {"$set": {"reason": "another"}})


def a_record_is_decided_twice(job: Job) -> None:
    """The last plan decides the first record of the first plan once more, as before."""
    first = plan_of(job, 0)
    row = row_of(first, Action.UNIQUE)
    last = head(job)["last"]["number"]

    def change(plan: Plan) -> Plan:
        ids, verdicts = list(plan.ids), list(plan.verdicts)
        place = row_of(plan, Action.UNIQUE)
        ids[place], verdicts[place] = first.ids[row], UNIQUE
        return replace(plan, ids=ids, verdicts=verdicts)

    gone = plan_of(job, last)
    # The record whose place it takes was never there.
    for collection in (job.source, job.target):
        collection.delete_one({"_id": value(gone.ids[row_of(gone, Action.UNIQUE)])})
    forged(job, last, change)


def a_record_is_inserted_behind_the_watermark(job: Job) -> None:
    job.source.insert_one({"_id": ObjectId("0" * 24), "data": "来得太早的标识，由一台停在过去的时钟写下。"})


def a_record_that_had_vanished_is_back(job: Job) -> None:
    first = job.source.find_one_and_delete({}, sort={"_id": 1})
    up_to_date(job)
    job.source.insert_one(first)


def the_archive_has_a_record_that_no_plan_decided(job: Job) -> None:
    sweep(job)
    job.database[ARCHIVE].insert_one({"_id": "stranger"})


def the_archive_alone_has_a_kept_and_a_restored_record(job: Job) -> None:
    sweep(job)
    row = job.ledger("dropped").find_one({})
    assert row is not None
    restore(job, row["_id"])
    for raw_id in (row["_id"], row["keeper"]):
        job.database[ARCHIVE].insert_one(job.source.find_one_and_delete({"_id": raw_id}))


def a_restore_is_forgotten(job: Job) -> None:
    row = job.ledger("dropped").find_one({})
    assert row is not None
    restore(job, row["_id"])
    job.source.update_one({"_id": row["_id"]}, {"$set": {"edited": True}})
    up_to_date(job)
    job.ledger("overrides").delete_many({})


def a_restore_is_killed_before_it_inserts(job: Job) -> None:
    row = job.ledger("dropped").find_one({})
    assert row is not None
    record = job.source.find_one({"_id": row["_id"]})
    assert record is not None
    word = Override.keep(encode(row), encode(record), "", row["at"])
    job.ledger("overrides").insert_one(RawBSONDocument(word.row))


def a_restore_is_killed_after_it_has_inserted(job: Job) -> None:
    a_restore_is_killed_before_it_inserts(job)
    word = job.ledger("overrides").find_one({})
    assert word is not None
    record = job.source.find_one({"_id": word["_id"]})
    assert record is not None
    job.target.insert_one(record)


def the_counters_are_wrong(job: Job) -> None:
    job.ledger("head").update_one({}, {"$inc": {"counts.near": 1}})


def the_watermark_is_wrong(job: Job) -> None:
    ids = plan_of(job, 0).ids
    job.ledger("head").update_one({}, {"$set": {"watermark": ids[-1]}})


def a_plan_is_lost(job: Job) -> None:
    job.ledger("plans").delete_one({"_id.number": 1})


def the_last_plan_is_lost(job: Job) -> None:
    job.ledger("plans").delete_one({"_id.number": head(job)["last"]["number"]})


def a_plan_is_damaged(job: Job) -> None:
    stored = job.ledger("plans").find_one({"_id.number": 1})
    assert stored is not None
    job.ledger("plans").update_one({"_id": stored["_id"]}, {"$set": {"hashes": bytes(len(stored["hashes"]))}})


def a_plan_is_shorter_than_it_says(job: Job) -> None:
    job.ledger("plans").update_one({"_id.number": 1}, {"$inc": {"count": 1}})


def a_plan_follows_another_one(job: Job) -> None:
    job.ledger("plans").update_one({"_id.number": 2}, {"$set": {"previous.fence": 99}})


def the_head_names_another_plan(job: Job) -> None:
    job.ledger("head").update_one({}, {"$set": {"last.fence": 99}})


def a_plan_is_pending(job: Job) -> None:
    job.ledger("head").update_one({}, {"$set": {"pending": {"number": 5, "fence": 2, "version": 0}}})


DIFFERENCES = [
    (a_kept_record_leaves_the_target, {"missing"}),
    (a_keeper_leaves_the_target, {"missing", "keeper_missing"}),
    (a_record_of_the_target_is_changed, {"altered"}),
    (a_keeper_in_the_target_is_changed, {"altered", "keeper_altered"}),
    (a_stranger_is_put_into_the_target, {"foreign"}),
    (a_refused_record_is_put_into_the_target, {"foreign"}),
    (a_dropped_record_is_put_into_the_target, {"duplicate_in_target"}),
    (a_keeper_was_never_decided, {"keeper_unknown", "keeper_missing"}),
    (a_keeper_is_a_duplicate_itself, {"keeper_not_kept", "keeper_missing"}),
    (a_keeper_is_decided_later, {"keeper_later", "similarity_differs"}),
    (an_exact_duplicate_has_another_text, {"text_differs"}),
    (a_record_has_the_digest_of_another_text, {"similarity_differs"}),
    (a_row_of_dropped_is_lost, {"row_missing"}),
    (a_row_of_exceptions_is_lost, {"row_missing"}),
    (a_row_of_dropped_is_added, {"row_superfluous"}),
    (a_row_of_exceptions_is_on_a_kept_record, {"row_superfluous"}),
    (a_restore_is_forgotten, {"restore_forgotten"}),
    (a_restore_is_killed_before_it_inserts, {"restore_unfinished"}),
    (a_restore_is_killed_after_it_has_inserted, {"restore_unfinished"}),
    (a_row_of_dropped_says_another_distance, {"row_differs"}),
    (a_row_of_exceptions_says_another_reason, {"row_differs"}),
    (a_record_is_decided_twice, {"decided_twice"}),
    (a_record_is_inserted_behind_the_watermark, {"undecided"}),
    (a_record_that_had_vanished_is_back, {"returned"}),
    (the_archive_has_a_record_that_no_plan_decided, {"undecided_in_archive"}),
    (the_archive_alone_has_a_kept_and_a_restored_record, {"kept_in_archive"}),
    (the_counters_are_wrong, {"counters"}),
    (the_watermark_is_wrong, {"watermark"}),
    (a_plan_is_lost, {"plan_missing"}),
    (the_last_plan_is_lost, {"plan_missing"}),
    (a_plan_is_damaged, {"plan_damaged"}),
    (a_plan_is_shorter_than_it_says, {"plan_damaged"}),
    (a_plan_follows_another_one, {"chain_broken"}),
    (the_head_names_another_plan, {"chain_broken"}),
    (a_plan_is_pending, {"pending"}),
]


@pytest.mark.parametrize(("plant", "expected"), DIFFERENCES, ids=[plant.__name__ for plant, _ in DIFFERENCES])
def test_a_planted_difference_is_named_and_nothing_else_is(
    decided: Job, plant: Callable[[Job], None], expected: set[str]
) -> None:
    plant(decided)

    found = verified(decided)
    assert kinds(found).keys() == expected
    for difference in found.differences:
        assert 0 < len(difference.samples) <= difference.count
    # A sample of everything sees the same, except what only the whole can tell.
    sample = sampled(decided, EVERYTHING)
    if plant is a_row_of_dropped_is_added:
        expected = {NUMBERS.name}  # a row on nobody is in no sample, but it counts
    assert kinds(sample).keys() - ({NUMBERS.name} - expected) == expected - WHOLE_ALONE
    assert set(sample.left_out) == WHOLE_ALONE


def test_every_kind_of_difference_is_planted_by_a_test() -> None:
    planted = set().union(*(expected for _, expected in DIFFERENCES))
    assert planted == {kind.name for kind in (*LEDGER, *HEAD_CHECKS, *RECORDS, SIMILARITIES)}


def test_the_samples_are_ids_and_say_what_the_source_holds(decided: Job) -> None:
    """So that a person knows whether a lost record can be had again."""
    lost = unused(decided)
    decided.target.delete_one({"_id": lost})
    (difference,) = verified(decided).differences
    assert difference.samples == [{"id": {"$oid": str(lost)}, "source": "as judged"}]

    decided.source.update_one({"_id": lost}, {"$set": {"views": -1}})
    assert verified(decided).differences[0].samples[0]["source"] == "changed"
    decided.source.delete_one({"_id": lost})
    assert verified(decided).differences[0].samples[0]["source"] == "gone"


def test_numbers_that_differ_are_seen_by_the_smallest_sample(decided: Job) -> None:
    decided.target.insert_one({"_id": "stranger"})

    found = sampled(decided, 1)

    assert kinds(found) == {"numbers": 1}
    kept = decided.target.count_documents({}) - 1
    assert found.differences[0].samples == [{"collection": "the target", "records": kept + 1, "ledger": kept}]
    assert found.decisions == 1


@pytest.mark.parametrize("records", [1, 7, 150])
def test_a_sample_of_an_undisturbed_ledger_agrees(decided: Job, records: int) -> None:
    found = sampled(decided, records)
    assert (kinds(found), found.whole) == ({}, False)
    assert found.decisions == records


def test_a_restored_record_agrees_once_a_person_put_it_back(decided: Job) -> None:
    row = decided.ledger("dropped").find_one_and_delete({})
    assert row is not None
    record = decided.source.find_one({"_id": row["_id"]})
    assert record is not None
    decided.target.insert_one(record)
    assert kinds(verified(decided)).keys() == {"duplicate_in_target", "row_missing"}

    word = Override.keep(encode(row), encode(record), "", row["at"])
    decided.ledger("overrides").insert_one(RawBSONDocument(word.row))

    assert kinds(verified(decided)) == kinds(sampled(decided, EVERYTHING)) == {}
    decided.target.delete_one({"_id": row["_id"]})
    assert kinds(verified(decided)) == {"missing": 1}


class BrokenOff(Exception):
    pass


def broken_off(job: Job, state: Path, pages: int) -> int:
    """Verify, and break off after so many pages; returns how many records were read."""
    seen: list[int] = []

    def told(number: int) -> None:
        seen.append(number)
        if len(seen) == pages:
            raise BrokenOff

    with job.context() as context, suppress(BrokenOff):
        verify.verify(context, state, told)
    return sum(seen)


@pytest.mark.long
@pytest.mark.parametrize("plant", [a_keeper_leaves_the_target, the_counters_are_wrong])
def test_a_verification_broken_off_anywhere_goes_on_and_says_the_same(
    decided: Job, tmp_path: Path, plant: Callable[[Job], None]
) -> None:
    plant(decided)
    decided.set("limits", batch_records=40)
    whole, state = verified(decided), tmp_path / "state"
    records = broken_off(decided, state, 0)
    for pages in range(1, 40):
        first = broken_off(decided, state, pages)
        if not state.exists():
            break
        again: list[int] = []
        with decided.context() as context:
            found = verify.verify(context, state, again.append)
        assert (found.differences, found.decisions) == (whole.differences, whole.decisions)
        assert first + sum(again) == records
        assert not state.exists()
    assert pages > 8


@pytest.mark.long
def test_a_verification_that_is_killed_goes_on(decided: Job, tmp_path: Path) -> None:
    a_kept_record_leaves_the_target(decided)
    state = ("--state", str(tmp_path / "state"))
    killed = decided.command("verify", *state, program=(*KILLED, "after", "12"))
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "state").exists()

    done = decided.command("verify", "--json", *state)

    assert done.returncode == 65, done.stderr
    assert "going on with the verification in the state file" in done.stderr
    told = json.loads(done.stdout)
    assert [(name, one["count"]) for name, one in told["differences"].items()] == [("missing", 1)]
    assert not (tmp_path / "state").exists()


def test_a_state_from_before_the_last_run_is_not_gone_on_with(decided: Job, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = broken_off(decided, state, 7)
    decided.source.insert_one({"data": "一条在核对被中断之后才写进来的记录，讲的是山里的雾。"})
    decided.decide("run")

    again: list[int] = []
    with decided.context() as context:
        found = verify.verify(context, state, again.append)

    assert kinds(found) == {}
    assert sum(again) > first + 231


@pytest.mark.parametrize("content", [b"someone's notes", b"", "database"])
def test_a_file_that_is_no_state_is_left_as_it_is(decided: Job, tmp_path: Path, content: Any) -> None:
    state = tmp_path / "notes"
    if content == "database":
        with closing(sqlite3.connect(state)) as other:
            other.execute("CREATE TABLE notes (text)")
    else:
        state.write_bytes(content)
    before = state.read_bytes()
    if before:
        with pytest.raises(UsageError, match="is not the state file of a verification"):
            verified(decided, state)
        assert state.read_bytes() == before
    else:
        assert kinds(verified(decided, state)) == {}


def test_a_state_that_is_damaged_is_named_as_such(tmp_path: Path) -> None:
    state = tmp_path / "state"
    AuditDatabase(state).close()
    whole = state.read_bytes()
    state.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with (
        closing(AuditDatabase(state)) as book,
        pytest.raises(UsageError, match="is damaged; delete it"),
        book.page(),
    ):
        book.enter_undecided("undecided", [encode({"_id": 1})])


def test_a_state_that_cannot_be_written_is_named(decided: Job, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name a file in an existing folder"):
        verified(decided, tmp_path / "nowhere" / "state")


def test_nothing_is_said_while_a_run_works(decided: Job) -> None:
    lease = {"host": "elsewhere", "boot": "", "pid": 1, "until": datetime.now(UTC) + timedelta(minutes=1)}
    decided.ledger("head").update_one({}, {"$set": {"lease": lease}})
    with pytest.raises(LeaseHeld, match="a run is in progress on this target"):
        verified(decided)

    lease["until"] = datetime.now(UTC) - timedelta(minutes=1)
    decided.ledger("head").update_one({}, {"$set": {"lease": lease}})
    assert kinds(verified(decided)) == {}


def test_nothing_is_said_when_a_run_worked_meanwhile(decided: Job) -> None:
    def told(_: int) -> None:
        decided.ledger("head").update_one({}, {"$inc": {"fence": 1}})

    settings = config.check_settings(decided.tables, "test")
    with Context(settings) as context, pytest.raises(LeaseHeld, match="during the verification"):
        verify.verify(context, None, told)


@pytest.mark.parametrize("page", [1, 3, 1000])
def test_ids_of_every_type_agree(job: Job, page: int) -> None:
    job.source.insert_many(texts_as_records(raw_ids()))
    job.set("limits", batch_records=20)
    job.decide("backfill")
    job.set("limits", batch_records=page)

    assert kinds(verified(job)) == kinds(sampled(job, EVERYTHING)) == {}

    removed = job.target.find_one_and_delete({"_id": MaxKey()})
    assert removed is not None
    assert kinds(verified(job)) == {"missing": 1}


@pytest.mark.parametrize("page", [1, 2, 3, 7, 1000])
def test_a_scan_sees_every_id_once_from_anywhere_to_anywhere(job: Job, page: int) -> None:
    job.source.insert_many(texts_as_records(raw_ids()))
    scan = Pages(retrying(job.source), lambda: BatchSize(page))
    ids = [id_of(bytes(found.raw)) for found in job.source.with_options(RAW).find().sort("_id", 1)]

    assert [id_of(raw) for found in scan.records_after(None) for raw in found] == ids
    for place in range(0, len(ids), 5):
        assert [raw for found in scan.ids_after(ids[place]) for raw in found] == ids[place + 1 :]
        before = scan.within(Window(before=ids[place]), IDS)
        assert [raw for found in before for raw in found] == ids[:place]
    between = scan.within(Window(after=ids[3], before=ids[9]), IDS)
    assert [raw for found in between for raw in found] == ids[4:9]


def test_a_plan_that_an_undo_removes_meanwhile_is_the_work_of_another_command(job: Job) -> None:
    job.source.insert_one({"_id": 1, "text": "x"})
    job.decide("backfill")
    reader = AuditReader(job.database, "unique", RetryPolicy())
    head = reader.head()
    assert head is not None
    (plan_id,) = reader.chain(head)
    assert plan_id is not None
    job.ledger("plans").delete_many({})
    with pytest.raises(LeaseHeld, match="another command has removed plan 0 meanwhile; verify again"):
        reader.audited_plan(plan_id)


def test_a_scan_sees_records_that_fill_an_answer_of_the_server_alone(job: Job) -> None:
    job.source.insert_many({"_id": n, "rest": "x" * ((16 << 20) - 1_000)} for n in range(3))
    pages = list(Pages(retrying(job.source)).records_after(None))
    assert [id_of(raw) for found in pages for raw in found] == [encode({"_id": n}) for n in range(3)]


def test_records_that_a_filter_leaves_out_need_no_decision(job: Job) -> None:
    job.source.insert_many([{"_id": n, "lang": "zh" if n % 2 else "en", "text": f"t{n}"} for n in range(10)])
    job.set("source", filter='{"lang": "zh"}')
    job.decide("backfill")
    assert kinds(verified(job)) == {}

    job.source.insert_many([{"_id": 4.5, "lang": "zh", "text": "t"}, {"_id": 5.5, "lang": "en", "text": "t"}])
    assert verified(job).waiting == 1


@pytest.mark.parametrize("last", [False, True])
def test_every_record_that_is_back_is_named_also_the_last_of_a_backfill(decided: Job, last: bool) -> None:
    """The backfill's watermark is its last id."""
    backfilled = list(decided.source.find().sort("_id", 1).limit(200))
    gone = backfilled[-1:] if last else backfilled
    decided.set("limits", max_vanished_share=1.0)
    decided.source.delete_many({"_id": {"$in": [record["_id"] for record in gone]}})
    up_to_date(decided)
    assert decided.differences() == {}
    decided.source.insert_many(gone)

    assert decided.differences() == {"returned": len(gone)}

    up_to_date(decided)
    assert decided.differences() == {}


def test_a_record_that_a_sync_found_vanished_and_that_is_back_is_named_until_a_sync_decides_it(
    decided: Job,
) -> None:
    first = decided.source.find_one_and_delete({}, sort={"_id": 1})
    up_to_date(decided)
    assert kinds(verified(decided)) == {}
    decided.source.insert_one(first)
    decided.decide("run")

    assert kinds(verified(decided)) == {"returned": 1}

    up_to_date(decided)
    assert kinds(verified(decided)) == {}


def test_a_record_above_the_watermark_is_not_due_yet(decided: Job) -> None:
    decided.source.insert_one({"_id": ObjectId("f" * 24), "data": "下一个夜里才轮到的记录，讲的是海边的雾。"})
    assert kinds(verified(decided)) == {}


@pytest.mark.long
def test_a_killed_and_resumed_backfill_agrees(job: Job) -> None:
    job.set("source", fields=["data"])
    job.source.insert_many(list(generate(200, seed=9)))
    for number in ("20", "30"):
        killed = job.command("backfill", program=(*KILLED, "before", number))
        assert killed.returncode == -signal.SIGKILL
    if (found := kinds(verified(job))).keys() != {"pending"}:
        assert found == {}

    job.decide("backfill")

    assert kinds(verified(job)) == kinds(sampled(job, EVERYTHING)) == {}


def test_a_plan_that_a_killed_run_left_is_told_from_the_one_that_counts(decided: Job) -> None:
    stored = decided.ledger("plans").find_one({"_id.number": 2})
    assert stored is not None
    stored["_id"]["fence"] = 99
    decided.ledger("plans").insert_one(stored)
    assert kinds(verified(decided)) == {}

    stored = decided.ledger("plans").find_one({"_id.number": 4})
    assert stored is not None
    stored["_id"]["fence"] = 99
    decided.ledger("plans").insert_one(stored)
    assert kinds(verified(decided)) == {}


def test_refused_keepers_and_what_was_promoted_for_them_agree(job: Job) -> None:
    copies = [f"第{number}个驿站的马夫在雪夜里等来了{number * 7919}封没有署名的信。" for number in range(30)]
    job.database.create_collection("unique", validator={"n": {"$gte": 15}})
    job.source.insert_many([{"n": n, "text": text} for n, text in enumerate(copies)])
    job.source.insert_many([{"n": 100 + n, "text": text} for n, text in enumerate(copies)])
    job.set("limits", batch_records=100)

    report = job.decide("backfill")

    assert report.counts.refused == {"validator": 15}
    assert (report.counts.unique, report.counts.exact) == (30, 15)
    assert kinds(verified(job)) == kinds(sampled(job, EVERYTHING)) == {}


def test_a_record_with_a_refused_conflict_is_somebody_elses(job: Job) -> None:
    job.source.insert_one({"_id": 0, "text": "最早的"})
    job.decide("backfill")
    job.target.insert_one({"_id": 1, "text": "另一个"})
    job.source.insert_many([{"_id": 1, "text": "一个"}, {"_id": 2, "text": "两个"}])
    assert job.decide("backfill").counts.refused == {"conflict": 1}

    assert kinds(verified(job)) == kinds(sampled(job, EVERYTHING)) == {}


def test_verify_says_that_it_does_not_look_for_edits_in_the_source(decided: Job) -> None:
    decided.source.update_one({"data": {"$type": "string"}}, {"$set": {"data": "another text"}})
    result = verified(decided)
    assert result.agrees
    assert "not compared in full; to find edits: dedup-job changes --content" in result.as_text()


def test_verify_prints_no_text_and_leaves_the_database_as_it_is(decided: Job) -> None:
    a_keeper_leaves_the_target(decided)
    a_record_of_the_target_is_changed(decided)
    before = decided.hash()

    done = decided.command("verify")

    assert done.returncode == 65
    assert all(" progress mode=" in line for line in done.stderr.splitlines())
    lines = done.stdout.splitlines()
    assert lines[0].endswith(": 230 decisions compared")
    assert {line.split()[0] for line in lines[1:] if line[:3].strip()} == {
        "missing",
        "altered",
        "keeper_missing",
        "contents",
        "state",
    }
    texts = [record["data"] for record in decided.source.find({"data": {"$type": "string"}})]
    assert not [text for text in texts if len(text) > 10 and text[:10] in done.stdout]
    assert decided.hash() == before


@pytest.mark.long
def test_verify_works_for_a_user_who_may_only_read(prepared: Copies, tmp_path: Path) -> None:
    with LocalMongod(auth=True) as server, MongoClient[dict[str, Any]](server.uri) as root:
        job = Job(root.shop, server.uri_as("reader", "canary"), tmp_path)
        job.set("source", fields=["data"])
        for name, records in filter(all, prepared.items()):
            root.shop[name].with_options(RAW).insert_many(records)
        moved = {"$set": {"source": "shop.pages"}, "$unset": {"places": ""}}
        root.shop["unique.dedup.head"].update_one({}, moved)
        roles = [{"role": "read", "db": "shop"}]
        root.admin.command("createUser", "reader", pwd="canary", roles=roles)

        done = [job.command("verify", *more) for more in ((), ("--sample", "50"))]

    assert [one.returncode for one in done] == [0, 0], done[0].stderr
    assert "all agrees" in done[0].stdout
    assert "not checked: counters, watermark" in done[1].stdout


def test_a_target_without_a_ledger_is_named(job: Job) -> None:
    job.source.insert_one({"text": "x"})
    with pytest.raises(ConfigError, match="nothing was decided for"):
        verified(job)


def test_a_sample_has_no_state(tmp_path: Path) -> None:
    arguments = ["verify", "-c", str(tmp_path / "none.toml"), "--sample", "5", "--state", "x"]
    with pytest.raises(UsageError, match="--sample has no state"):
        commands(arguments, standalone_mode=False)
