"""A replica set of three: elections, lost connections and refused commands change no outcome."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import Binary
from pymongo import MongoClient, WriteConcern
from pymongo.read_concern import ReadConcern

from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.errors import NotPermitted, StorageFull, Unreachable
from dedup_job.mongo.collection_checks import OF_LEDGER
from scripts.bench.corpus import generate
from scripts.dev.local_replica_set import LocalReplicaSet, Member
from tests.support.elections import elections
from tests.support.faulty_runs import Moments, install
from tests.support.job import Job

pytestmark = pytest.mark.long

RECORDS = 120
STEPS = ("read", "store", "accept", "insert", "note", "advance")


@pytest.fixture
def set_job(replica_set: LocalReplicaSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job of 8 chunks in a database of its own on the set."""
    replica_set.whole()
    monkeypatch.setenv("DEDUP_SOURCE_URI", replica_set.uri)
    monkeypatch.delenv("DEDUP_TARGET_URI", raising=False)
    install(monkeypatch)
    with MongoClient[dict[str, Any]](replica_set.uri, w="majority", readConcernLevel="majority") as client:
        job = Job(client[f"set_{uuid.uuid4().hex}"], replica_set.uri, tmp_path)
        job.set("source", fields=["data"])
        job.set("limits", batch_records=15)
        job.source.insert_many(list(generate(RECORDS, seed=8)))
        yield job
        replica_set.whole()
        fail(replica_set, "off")
        client.drop_database(job.database)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    """What the first test that asks for it found without any fault."""
    return {}


@pytest.fixture
def expected(set_job: Job, undisturbed: dict[str, Any]) -> Any:
    """The outcome without any fault; the source is left, and everything else is as before the run."""
    if not undisturbed:
        set_job.decide("backfill")
        undisturbed["outcome"] = set_job.outcome()
        for name in set_job.database.list_collection_names():
            if name != "pages":
                set_job.database.drop_collection(name)
    return undisturbed["outcome"]


def fail(replica_set: LocalReplicaSet, mode: Any, **data: Any) -> None:
    """Make commands of the job fail on whichever member is primary."""
    about = {"appName": "dedup-job", **data} if data else {"failCommands": []}
    for member in replica_set.members:
        member.command("configureFailPoint", "failCommand", mode=mode, data=about)


def check(job: Job, expected: Any) -> None:
    """Every id is decided once, keepers are in the target, and all is as in an undisturbed run."""
    assert job.outcome() == expected
    head = job.ledger("head").find_one()
    assert head is not None
    assert (head["pending"], head["lease"]) == (None, None)
    counts = head["counts"]
    assert counts["unique"] + counts["exact"] + counts["near"] + sum(counts["unchecked"].values()) == RECORDS
    decided = job.source.count_documents({})
    assert job.target.count_documents({}) + job.ledger("dropped").count_documents({}) == decided
    keepers = job.ledger("dropped").distinct("keeper")
    assert job.target.count_documents({"_id": {"$in": keepers}}) == len(keepers) > 0


@pytest.mark.parametrize(("how", "steps"), [("step down", STEPS), ("kill", ("accept", "insert", "advance"))])
def test_an_election_at_the_steps_of_a_commit_changes_nothing(
    set_job: Job,
    expected: Any,
    replica_set: LocalReplicaSet,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    steps: tuple[str, ...],
) -> None:
    def election(_: object) -> None:
        replica_set.whole()
        if how == "kill":
            replica_set.kill_primary()
        else:
            replica_set.step_down()

    # The n-th step in the n-th chunk; `note` comes for every chunk with a duplicate.
    moments = Moments({(step, number): election for number, step in enumerate(steps, 1)})
    install(monkeypatch, moments)

    set_job.decide("backfill")

    assert not moments.due
    check(set_job, expected)


HANG_UP = {"closeConnection": True}
NOT_REPLICATED = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}
NO_LONGER_PRIMARY = {"writeConcernError": {"code": 11602, "errmsg": "operation was interrupted"}}


def code(number: int) -> dict[str, Any]:
    return {"errorCode": number}


@pytest.mark.parametrize(
    ("step", "command", "fault", "times"),
    [
        ("read", "find", HANG_UP, 3),
        ("read", "find", code(11600), 3),  # InterruptedAtShutdown
        ("read", "find", code(262), 2),  # ExceededTimeLimit
        ("read", "find", code(134), 2),  # ReadConcernMajorityNotAvailableYet
        ("insert", "insert", HANG_UP, 3),
        ("insert", "insert", code(10107), 3),  # NotWritablePrimary
        ("insert", "insert", NOT_REPLICATED, 2),
        ("note", "insert", NO_LONGER_PRIMARY, 2),
        ("store", "update", HANG_UP, 3),
        ("store", "update", code(91), 3),  # ShutdownInProgress
        ("lease", "findAndModify", NOT_REPLICATED, 2),
        ("accept", "findAndModify", HANG_UP, 3),
        ("accept", "findAndModify", NOT_REPLICATED, 2),
        ("advance", "findAndModify", code(189), 3),  # PrimarySteppedDown
    ],
)
def test_a_passing_fault_is_waited_out_and_changes_nothing(
    set_job: Job,
    expected: Any,
    replica_set: LocalReplicaSet,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    command: str,
    fault: dict[str, Any],
    times: int,
) -> None:
    mode = {"times": times}
    moments = Moments({(step, 1): lambda _: fail(replica_set, mode, failCommands=[command], **fault)})
    install(monkeypatch, moments)

    set_job.decide("backfill")

    assert not moments.due
    check(set_job, expected)


@pytest.mark.parametrize("fault", [HANG_UP, code(43), code(237), code(175)])
def test_a_cursor_that_dies_is_opened_again(
    set_job: Job, replica_set: LocalReplicaSet, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]
) -> None:
    set_job.source.delete_many({})
    blob = Binary(bytes(1_500_000))  # 16 MB fit into an answer, so that a page takes two
    set_job.source.insert_many([{"_id": n, "data": f"第{n}篇文章", "blob": blob} for n in range(14)])
    set_job.set("limits", batch_mb=64)
    moments = Moments(
        {("read", 1): lambda _: fail(replica_set, {"times": 2}, failCommands=["getMore"], **fault)}
    )
    install(monkeypatch, moments)

    assert set_job.decide("backfill").counts.unique == 14
    assert not moments.due
    assert moments.seen["getMore"] == 3  # two that failed, and one that was answered
    assert set_job.target.count_documents({}) == 14


@pytest.mark.parametrize(
    ("fault", "error"), [(code(14031), StorageFull), (code(13), NotPermitted), (NOT_REPLICATED, Unreachable)]
)
@pytest.mark.parametrize(("step", "command"), [("insert", "insert"), ("accept", "findAndModify")])
def test_a_lasting_fault_ends_the_run_and_the_next_one_finishes(
    set_job: Job,
    expected: Any,
    replica_set: LocalReplicaSet,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    command: str,
    fault: dict[str, Any],
    error: type[Exception],
) -> None:
    def begin(_: object) -> None:
        fail(replica_set, "alwaysOn", failCommands=[command], **fault)

    set_job.set("limits", retry_seconds=1.0)
    install(monkeypatch, Moments({(step, 3): begin}))
    with pytest.raises(error):
        set_job.decide("backfill")

    fail(replica_set, "off")
    set_job.set("limits", retry_seconds=120.0)
    set_job.decide("backfill")
    check(set_job, expected)


def test_a_run_waits_for_a_majority_that_comes_back(
    set_job: Job, expected: Any, replica_set: LocalReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    returning = threading.Timer(5.0, replica_set.whole)

    def lose(_: object) -> None:
        lose_majority(replica_set)
        returning.start()

    install(monkeypatch, Moments({("insert", 2): lose}))

    set_job.decide("backfill")

    returning.join()
    check(set_job, expected)


@pytest.mark.longest
def test_without_a_majority_a_run_ends_when_its_patience_does_and_says_why(
    set_job: Job, expected: Any, replica_set: LocalReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_job.set("limits", retry_seconds=5.0)  # longer than a primary needs to notice that it is alone
    moments = Moments({("accept", 2): lambda _: lose_majority(replica_set)})
    install(monkeypatch, moments)

    with pytest.raises(Unreachable, match="the set has no primary; are most of its members up"):
        set_job.decide("backfill")

    install(monkeypatch)
    with pytest.raises(Unreachable, match="the set has no primary; are most of its members up"):
        set_job.decide("backfill")  # now from its beginning

    replica_set.whole()
    set_job.set("limits", retry_seconds=120.0)
    set_job.decide("backfill")
    check(set_job, expected)


def lose_majority(replica_set: LocalReplicaSet) -> None:
    for member in replica_set.secondaries():
        member.stop(signal.SIGKILL)


def test_a_primary_that_falls_silent_is_given_up_and_the_next_one_serves(
    set_job: Job, expected: Any, replica_set: LocalReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay open, so nothing but the missing heartbeat tells: to other members as well."""
    set_job.set("limits", retry_seconds=180.0)  # one of which may wait for it for a minute
    moments = Moments({("accept", 3): lambda _: replica_set.primary().pause()})
    install(monkeypatch, moments)

    set_job.decide("backfill")

    assert not moments.due
    replica_set.whole()
    check(set_job, expected)


def test_indexes_of_records_and_rows_are_built_while_a_member_is_down(
    set_job: Job, replica_set: LocalReplicaSet
) -> None:
    """By default the server would wait for that member, without end."""
    set_job.source.create_index("data")
    set_job.decide("backfill")
    set_job.ledger("dropped").drop_index("keeper_1")
    replica_set.secondaries()[0].stop(signal.SIGKILL)

    set_job.decide("run")
    with set_job.context() as context:
        copied = context.indexes.copy()

    assert "keeper_1" in set_job.ledger("dropped").index_information()
    assert (copied.built, dict(copied.refused)) == (["data_1"], {})


def set_replication(members: Iterable[Member], mode: str) -> None:
    """Make these members answer but fall behind (`alwaysOn`), or replicate again (`off`)."""
    for member in members:
        member.command("configureFailPoint", "stopReplProducer", mode=mode)


def stop_replication(replica_set: LocalReplicaSet) -> Member:
    """Stop one secondary, and let the other one answer but fall behind: there is a primary all the time."""
    down, behind = replica_set.secondaries()
    down.stop(signal.SIGKILL)
    set_replication([behind], "alwaysOn")
    return behind


def replicate(replica_set: LocalReplicaSet, behind: Member) -> None:
    set_replication([behind], "off")
    replica_set.whole()


def test_a_write_that_no_majority_acknowledges_is_not_waited_for_forever(
    set_job: Job, expected: Any, replica_set: LocalReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind: list[Member] = []
    moments = Moments({("accept", 3): lambda _: behind.append(stop_replication(replica_set))})
    set_job.set("limits", retry_seconds=2.0)
    install(monkeypatch, moments)
    with pytest.raises(Unreachable, match="no majority acknowledged in time"):
        set_job.decide("backfill")

    replicate(replica_set, *behind)
    set_job.set("limits", retry_seconds=120.0)
    set_job.decide("backfill")
    check(set_job, expected)


@pytest.mark.parametrize("missing", ["unique.dedup.head", "unique.dedup.left", "unique"])
def test_a_ledger_that_no_majority_has_is_not_waited_for_forever(
    set_job: Job, expected: Any, replica_set: LocalReplicaSet, missing: str
) -> None:
    """A run that nobody acknowledged has made one of its collections; those before were there already."""
    if missing != "unique.dedup.head":
        for name in ("head", *OF_LEDGER):
            if f"unique.dedup.{name}" != missing:
                set_job.database.create_collection(f"unique.dedup.{name}")
    behind = stop_replication(replica_set)
    set_job.set("limits", retry_seconds=2.0)
    with pytest.raises(Unreachable, match="no majority acknowledged in time"):
        set_job.decide("backfill")
    with pytest.raises(Unreachable, match=r"no majority acknowledged in time|MaxTimeMSExpired"):
        set_job.decide("backfill")

    replicate(replica_set, behind)
    set_job.set("limits", retry_seconds=120.0)
    set_job.decide("backfill")
    check(set_job, expected)


def test_a_record_that_an_election_may_still_undo_is_not_read(
    set_job: Job, replica_set: LocalReplicaSet
) -> None:
    set_replication(replica_set.secondaries(), "alwaysOn")
    try:
        pages = set_job.source.with_options(write_concern=WriteConcern(1), read_concern=ReadConcern("local"))
        pages.insert_one({"data": "在多数成员得到它之前，这条记录还不算数。"})
        assert pages.count_documents({}) == RECORDS + 1

        with set_job.context() as context:
            report = dry_run(context, DryRun(), lambda plan: None)

        assert report.counts.read == RECORDS
    finally:
        set_replication(replica_set.members, "off")


def test_a_copy_that_only_a_lost_primary_accepted_is_not_taken_for_inserted(
    set_job: Job, replica_set: LocalReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target refuses copies 1 to 4; an election undoes the insertion of copy 5."""
    set_job.source.delete_many({})
    text = "".join(record["data"] for record in generate(1, seed=8))
    copies = [{"_id": n, "data": text} | ({"is_right": True} if n == 5 else {}) for n in range(1, 9)]
    set_job.source.insert_many(copies)
    set_job.database.create_collection("unique", validator={"is_right": True})
    found: list[int] = []

    def stop_secondaries(_: object) -> None:
        set_replication(replica_set.secondaries(), "alwaysOn")

    def lose_primary(_: object) -> None:
        for member in replica_set.members:
            with member.client() as client:
                found.append(client[set_job.database.name]["unique"].count_documents({}))
        secondaries = replica_set.secondaries()
        replica_set.kill_primary()
        set_replication(secondaries, "off")

    # Insertions 3 to 5 are tries of the copies 3 to 5; the sixth is copy 5 again.
    moments = Moments({("insert", 5): stop_secondaries, ("insert", 6): lose_primary})
    install(monkeypatch, moments)

    try:
        set_job.decide("backfill")
    finally:
        replica_set.whole()
        set_replication(replica_set.members, "off")

    assert not moments.due
    assert sorted(found) == [0, 0, 1]
    assert set_job.target.distinct("_id") == [5]
    assert set_job.ledger("exceptions").distinct("_id") == [1, 2, 3, 4]
    assert set_job.ledger("dropped").distinct("keeper") == [5]


def test_elections_at_random_moments_of_a_run_lose_and_double_nothing(replica_set: LocalReplicaSet) -> None:
    replica_set.whole()
    tally = elections(replica_set, trials=2, records=120)

    assert tally.elections >= 2
    assert (tally.failed, tally.lost, tally.doubled, tally.different) == (0, 0, 0, 0)
