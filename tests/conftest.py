"""Fixtures that every test may use: a real MongoDB server, a database, and a job in it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pymongo import MongoClient
from pymongo.database import Database

from scripts.dev.local_mongod import Server, ServerError, find_mongod, open_server
from scripts.dev.local_replica_set import LocalReplicaSet
from tests.support.forked_commands import Forks
from tests.support.job import RAW, Job
from tests.support.monitor import SECRET, Monitor
from tests.support.waiting import HANG_SECONDS

# The same examples in every run, and no limits of time: a slow machine is no fault of the code.
settings.register_profile(
    "project", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run three short tests at once on two processors, as they wait for servers; long ones need one each."""
    processors = os.cpu_count() or 1
    return -(-3 * processors // 2) if config.option.markexpr.startswith("not long") else processors


def pytest_report_header() -> str:
    if "DEDUP_TEST_URI" in os.environ:
        return "mongod: the server of DEDUP_TEST_URI"
    try:
        return f"mongod: {find_mongod()}"  # MongoDB 6.0 or 7.0, as it was started
    except ServerError as error:
        return f"mongod: {error}"


@pytest.fixture(scope="session")
def mongod() -> Iterator[Server]:
    """One server for the whole run; without one the tests that need it fail and say what to do."""
    with open_server(is_quick=True) as server:
        yield server


@pytest.fixture(scope="session")
def mongo_uri(mongod: Server) -> str:
    return mongod.uri


@pytest.fixture(scope="session")
def _client(mongo_uri: str) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongo_uri, tz_aware=True) as client:
        yield client


@pytest.fixture
def database(_client: MongoClient[dict[str, Any]]) -> Iterator[Database[dict[str, Any]]]:
    """A fresh database under a name of its own, dropped afterwards."""
    fresh = _client[f"test_{uuid.uuid4().hex}"]
    yield fresh
    _client.drop_database(fresh)


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, type[Monitor]]]:
    monkeypatch.setattr("dedup_job.report.monitoring.PING_SECONDS", HANG_SECONDS)

    class OfThisTest(Monitor):
        asked: list[str] = []  # noqa: RUF012

    with ThreadingHTTPServer(("127.0.0.1", 0), OfThisTest) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{SECRET}", OfThisTest
        server.shutdown()


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Give a warm process that commands are forked from, for the whole run."""
    with Forks() as warm:
        yield warm


@pytest.fixture
def job(
    database: Database[Any],
    mongo_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Job:
    monkeypatch.setenv("DEDUP_SOURCE_URI", mongo_uri)
    monkeypatch.delenv("DEDUP_TARGET_URI", raising=False)
    return Job(database, mongo_uri, tmp_path, lambda: request.getfixturevalue("forks"))


@pytest.fixture
def another_job(job: Job) -> Iterator[Callable[[], Job]]:
    """Make further jobs with the same source records, each with a database of its own."""
    made: list[Job] = []

    def make() -> Job:
        database = job.database.client[f"{job.database.name}_{len(made)}"]
        other = Job(database, job.uri, job.folder, job.forks)
        other.tables = {**job.tables, "source": {**job.tables["source"], "database": database.name}}
        other.tables["target"] = {**job.tables["target"], "database": database.name}
        records = list(job.source.with_options(RAW).find())
        if records:
            other.source.with_options(RAW).insert_many(records)
        made.append(other)
        return other

    yield make
    for other in made:
        other.database.client.drop_database(other.database)


@pytest.fixture(scope="session")
def replica_set() -> Iterator[LocalReplicaSet]:
    """Three servers for the whole run, started by the first test that needs them."""
    with LocalReplicaSet() as replica_set:
        yield replica_set


@pytest.fixture
def twin(job: Job) -> Iterator[Callable[[], Job]]:
    """Make jobs on the same source, each with a copy of the target and its ledger."""
    client = job.database.client
    made: list[Database[Any]] = []

    def make() -> Job:
        database: Database[Any] = client[f"{job.database.name}_{len(made)}"]
        made.append(database)
        for name in job.database.list_collection_names(filter={"name": {"$regex": "^unique"}}):
            # An empty one, too: the ledger names all of its collections.
            database.create_collection(name)
            if records := list(job.database[name].with_options(RAW).find()):
                database[name].with_options(RAW).insert_many(records)
        database["unique.dedup.head"].update_one({}, {"$unset": {"places": ""}})  # a copy is elsewhere
        twin = Job(database, job.uri, job.folder, job.forks)
        twin.tables = {**job.tables, "target": {**job.tables["target"], "database": database.name}}
        return twin

    yield make
    for database in made:
        client.drop_database(database)
