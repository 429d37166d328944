"""Full disks, and shortages of connections, bandwidth and reply size: the next run finishes."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from struct import pack
from typing import Any

import pytest
from bson import Binary, encode
from pymongo import MongoClient

from dedup_job.errors import Unreachable
from scripts.bench.corpus import generate
from scripts.dev.local_mongod import LocalMongod
from tests.support.faulty_runs import Moments, install
from tests.support.job import RAW, Job
from tests.support.restore_cases import restore
from tests.support.slow_proxy import SlowLine
from tests.support.undo_cases import OTHERS, TEXT, undo

RECORDS = 150
MOST_CONNECTIONS = 12
MOST_BYTES = 16 << 20


@pytest.fixture
def filled(job: Job) -> Job:
    job.set("source", fields=["data"])
    job.set("limits", batch_records=20)
    job.source.insert_many(list(generate(RECORDS, seed=11)))
    return job


def elsewhere(
    job: Job, server: LocalMongod, client: MongoClient[Any], monkeypatch: pytest.MonkeyPatch
) -> Job:
    """Return a job with the same source and a target on this server."""
    monkeypatch.setenv("DEDUP_TARGET_URI", server.uri)
    made = Job(client["elsewhere"], job.uri, job.folder)
    made.tables = {**job.tables, "target": {"database": "elsewhere", "collection": "unique"}}
    return made


@pytest.mark.long
def test_a_server_whose_disk_takes_no_more_ends_the_run_and_with_room_the_next_finishes(
    filled: Job, another_job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """mongod ends itself when it cannot write; a limit for its files is a full disk to it."""
    install(monkeypatch)
    calm = another_job()
    calm.decide("backfill")
    with LocalMongod() as server, MongoClient[dict[str, Any]](server.uri) as client:
        job = elsewhere(filled, server, client, monkeypatch)

        def fill_the_disk(_: object) -> None:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, 1))

        install(monkeypatch, Moments({("insert", 3): fill_the_disk}))
        with job.hasty(), pytest.raises(Unreachable, match=r"does not answer: 127\.0\.0\.1:"):
            job.decide("backfill")

        install(monkeypatch)
        server.stop()
        server.start()
        job.decide("backfill")
        assert job.outcome() == calm.outcome()


@pytest.mark.long
def test_a_server_without_free_connections_ends_the_run_and_with_some_the_next_finishes(
    filled: Job, another_job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    calm = another_job()
    calm.decide("backfill")
    with Narrow() as server, ExitStack() as others:
        with MongoClient[dict[str, Any]](server.uri) as client:
            job = elsewhere(filled, server, client, monkeypatch)
        take_connections(server, others, leave=0)
        with job.hasty(), pytest.raises(Unreachable, match="does not answer"):
            job.decide("backfill")

        others.close()
        take_connections(server, others, leave=4)
        job.decide("backfill")

        others.close()
        with MongoClient[dict[str, Any]](server.uri) as client:
            assert elsewhere(filled, server, client, monkeypatch).outcome() == calm.outcome()


class Narrow(LocalMongod):
    """A server with few connections."""

    def _options(self) -> list[str]:
        return [*super()._options(), "--maxConns", str(MOST_CONNECTIONS)]


def take_connections(server: LocalMongod, held: ExitStack, leave: int) -> None:
    """Hold all connections but some, when the server has let go of those that were closed a moment ago."""
    taken = 0
    while taken < MOST_CONNECTIONS - leave:
        line = socket.create_connection(("127.0.0.1", server.port))
        if answers(line):
            held.enter_context(line)
            taken += 1
        else:
            line.close()


def answers(line: socket.socket) -> bool:
    """Whether the server takes this connection: one too many is closed without an answer."""
    message = pack("<IB", 0, 0) + encode({"hello": 1, "$db": "admin"})
    try:
        line.sendall(pack("<iiii", 16 + len(message), 1, 0, 2013) + message)  # OP_MSG, with one section
        return bool(line.recv(1))
    except ConnectionError:
        return False


@pytest.mark.long
def test_a_bad_line_makes_a_run_slow_and_changes_nothing(
    filled: Job, another_job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    calm = another_job()
    calm.decide("backfill")

    with SlowLine(filled.uri, bytes_a_second=200_000, delay=0.01) as line:
        monkeypatch.setenv("DEDUP_SOURCE_URI", line.uri)
        filled.decide("backfill")

    assert filled.outcome() == calm.outcome()


@pytest.mark.long
def test_records_as_large_as_a_document_can_be_are_copied_dropped_verified_and_undone(job: Job) -> None:
    job.set("limits", batch_records=1000, retry_seconds=60.0)
    job.source.insert_one(of_most_bytes({"_id": 1, "text": TEXT}))
    job.source.insert_one(of_most_bytes({"_id": 2, "text": TEXT}))
    job.source.insert_one(of_most_bytes({"_id": 3, "text": ""}))
    job.source.insert_one({"_id": 4, "text": TEXT})

    report = job.decide("backfill")

    assert (report.counts.unique, report.counts.exact, report.counts.unchecked) == (1, 2, {"empty": 1})
    raws = {one["_id"]: one.raw for one in job.source.with_options(RAW).find()}
    assert {one["_id"]: one.raw for one in job.target.with_options(RAW).find()} == {1: raws[1], 3: raws[3]}
    restore(job, "2")
    assert job.target.with_options(RAW).find_one({"_id": 2}).raw == raws[2]
    assert job.differences() == {}
    undo(job, report.run)
    assert job.target.count_documents({}) == 0


def of_most_bytes(record: dict[str, Any]) -> dict[str, Any]:
    """Fill a record up to 16 MiB."""
    return {**record, "pad": Binary(b"\0" * (MOST_BYTES - len(encode({**record, "pad": b""}))))}


def test_records_that_do_not_fit_into_one_reply_are_verified(job: Job) -> None:
    """The first of them alone is a reply; the others come with the next one."""
    pads = {1: 6 << 20, 2: 12 << 20, 3: 1}
    job.source.insert_many([{"_id": n, "text": OTHERS[n], "pad": b"\0" * pads[n]} for n in pads])
    job.decide("backfill")

    assert job.differences() == {}
