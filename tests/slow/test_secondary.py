"""On a replica set of three: a source that is read from secondaries, whose lag changes no outcome."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from dedup_job.commands.backfill_and_run import decide
from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.commands.status import status
from dedup_job.errors import Unreachable
from dedup_job.pipeline.command_context import Context
from dedup_job.report.status_history_doctor_text import status_text
from scripts.bench.corpus import generate
from scripts.dev.local_replica_set import LocalReplicaSet, Member
from tests.support.command_recorder import Recorder
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.waiting import becomes

pytestmark = pytest.mark.long

RECORDS = 120


@pytest.fixture
def set_job(replica_set: LocalReplicaSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job of 24 batches in a database of its own on the set; every other record is not there yet."""
    replica_set.whole()
    # The driver takes any member, also one that answers late because the machine is busy.
    monkeypatch.setenv("DEDUP_SOURCE_URI", f"{replica_set.uri}&localThresholdMS=60000")
    monkeypatch.delenv("DEDUP_TARGET_URI", raising=False)
    with MongoClient[dict[str, Any]](replica_set.uri, w="majority", readConcernLevel="majority") as client:
        job = Job(client[f"set_{uuid.uuid4().hex}"], replica_set.uri, tmp_path)
        job.set("source", fields=["data"])
        # The driver asks the members every half second.
        job.set("limits", batch_records=5, connect_seconds=1)
        job.source.insert_many(list(generate(RECORDS, seed=8))[::2])
        yield job
        for member in replica_set.members:
            replicate(member)
        replica_set.whole()
        client.drop_database(job.database)


def fall_behind(member: Member) -> None:
    """Make a member answer, but replicate nothing more."""
    member.command("configureFailPoint", "stopReplProducer", mode="alwaysOn")


def replicate(member: Member) -> None:
    """Let a member catch up."""
    member.command("configureFailPoint", "stopReplProducer", mode="off")


def insert_the_rest(job: Job) -> None:
    """Insert the other half, which a majority has when this returns."""
    job.source.insert_many(list(generate(RECORDS, seed=8))[1::2])


def replicate_when_waited_for(member: Member) -> threading.Thread:
    """Let a member catch up as soon as a read of the job waits for it, in a thread."""
    # Until it has caught up, the server does not say in `ns` which collection the read is for.
    waiting = {"command.find": "pages", "command.readConcern.afterClusterTime": {"$exists": True}}

    def work() -> None:
        with member.client() as client:
            assert becomes(lambda: client.admin.command("currentOp", active=True, **waiting)["inprog"])
        replicate(member)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def answer_of_primary(job: Job) -> Any:
    """Return the outcome of a run that reads the primary, and forget the run."""
    job.decide("backfill")
    outcome = job.outcome()
    for name in job.database.list_collection_names():
        if name != "pages":
            job.database.drop_collection(name)
    return outcome


@pytest.mark.parametrize("preference", ["secondary", "secondaryPreferred", "nearest"])
def test_a_record_that_a_secondary_lacks_is_not_skipped(
    set_job: Job, replica_set: LocalReplicaSet, monkeypatch: pytest.MonkeyPatch, preference: str
) -> None:
    recorder = Recorder()
    install(monkeypatch, recorder)
    late = replica_set.secondaries()[0]
    fall_behind(late)
    insert_the_rest(set_job)
    expected = answer_of_primary(set_job)
    recorder.commands.clear()
    set_job.set("source", read_preference=preference)

    thread = replicate_when_waited_for(late)
    summary = set_job.decide("backfill")

    assert summary.counts.read == RECORDS
    assert set_job.outcome() == expected
    thread.join()
    # Only whole records are read from other members.
    elsewhere = [
        (name, command)
        for name, command in recorder.commands
        if command.get("$readPreference", {"mode": "primary"})["mode"] != "primary"
    ]
    assert {name for name, _ in elsewhere} - {"endSessions"} == {"find"}
    finds = [command for name, command in elsewhere if name == "find"]
    assert {command["find"] for command in finds} == {"pages"}
    assert {command["readConcern"]["level"] for command in finds} == {"majority"}


def test_a_later_run_finds_what_arrived_while_a_secondary_was_read(
    set_job: Job, replica_set: LocalReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the records arrive, with ids between the others, when a run has begun to read."""
    install(monkeypatch)
    set_job.set("source", read_preference="secondary")
    still_absent = [True]

    def arrive(*_: object) -> None:
        if still_absent:
            still_absent.clear()
            fall_behind(replica_set.secondaries()[0])
            insert_the_rest(set_job)

    with set_job.context() as context:
        first = decide(context, "backfill", arrive).counts.read
    assert RECORDS // 2 <= first < RECORDS
    for member in replica_set.members:
        replicate(member)
    # As after `full_scan_days`, as the ids have no time.
    second = set_job.decide("run").counts.read

    assert first + second == RECORDS
    decided = set_job.target.count_documents({}) + set_job.ledger("dropped").count_documents({})
    assert decided == RECORDS


def test_a_nightly_run_and_everything_that_finds_late_records_reads_the_primary(
    set_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    install(monkeypatch, recorder)
    set_job.set("source", read_preference="secondary")
    set_job.decide("backfill")
    insert_the_rest(set_job)
    recorder.commands.clear()

    assert set_job.decide("run").counts.read == RECORDS // 2

    modes = {
        command.get("$readPreference", {}).get("mode")
        for name, command in recorder.commands
        if name != "endSessions"
    }
    assert modes <= {None, "primary"}


def test_a_dry_run_reads_secondaries_too(set_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    install(monkeypatch, recorder)
    set_job.set("source", read_preference="secondary", max_staleness_seconds=90)
    with set_job.context() as context:
        assert dry_run(context, DryRun(), lambda plan: None).counts.read == RECORDS // 2
    preferences = [command.get("$readPreference") for name, command in recorder.commands if name == "find"]
    assert {"mode": "secondary", "maxStalenessSeconds": 90} in preferences


@contextmanager
def hidden(replica_set: LocalReplicaSet, members: list[Member]) -> Iterator[None]:
    """Hide members, so that clients do not see them as secondaries, but the majority does not change."""
    hosts = {f"127.0.0.1:{member.port}" for member in members}

    def hide(is_hidden: bool) -> None:
        primary = replica_set.primary()
        configuration = primary.command("replSetGetConfig")["config"]
        configuration["version"] += 1
        for member in configuration["members"]:
            if member["host"] in hosts:
                member |= {"hidden": is_hidden, "priority": 0 if is_hidden else 1}
        primary.command("replSetReconfig", configuration)

    hide(True)
    try:
        yield
    finally:
        hide(False)


def test_without_a_secondary_a_run_says_so(
    set_job: Job, replica_set: LocalReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    set_job.set("source", read_preference="secondary")
    set_job.set("limits", retry_seconds=2.0)
    with hidden(replica_set, replica_set.secondaries()):
        with pytest.raises(Unreachable, match=r"no secondary fits \[source\] read_preference"):
            set_job.decide("backfill")
        set_job.set("source", read_preference="secondaryPreferred")
        assert set_job.decide("backfill").counts.read == RECORDS // 2


def test_a_run_pauses_while_a_secondary_lags(
    set_job: Job,
    replica_set: LocalReplicaSet,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    install(monkeypatch)
    caplog.set_level(logging.INFO, "dedup_job")
    set_job.set("limits", max_lag_seconds=10)
    late = replica_set.secondaries()[0]
    states: list[dict[str, Any]] = []

    def is_paused() -> bool:
        return any(record.getMessage() == "paused: secondaries lag" for record in caplog.records)

    def end_pause() -> None:
        assert becomes(is_paused)
        with set_job.context() as context:
            context.throttle.limit = 2.0
            states.append(status(context))
        replicate(late)

    with set_job.context() as context:
        # Less than the settings allow, as a test must not take so long.
        context.throttle.limit = 2.0
        fall_behind(late)
        assert becomes(lambda: keeps_lagging(set_job, context))
        thread = threading.Thread(target=end_pause, daemon=True)
        thread.start()
        summary = decide(context, "backfill", lambda *_: None)
        thread.join()

    assert summary.counts.read == RECORDS // 2
    messages = [record.getMessage() for record in caplog.records]
    assert messages.index("paused: secondaries lag") < messages.index("secondaries have caught up")
    replication = states[0]["replication"]
    assert replication["is_over"]
    assert replication["lag_seconds"] >= 2
    assert "the limit is 2; runs pause until they have caught up" in status_text(states[0])


def keeps_lagging(job: Job, context: Context) -> bool:
    """Write something, and return whether a secondary lags more than the limit."""
    job.database["others"].insert_one({})
    return context.throttle.is_over(context.throttle.measure())
