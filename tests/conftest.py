"""Fixtures that every test may use: a real MongoDB server, and a database of one's own in it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pymongo import MongoClient
from pymongo.database import Database

from scripts.dev.local_mongod import Server, ServerError, find_mongod, open_server
from tests.support.monitor import SECRET, Monitor
from tests.support.waiting import HANG_SECONDS

# The same examples in every run, and no limits of time: a slow machine is no fault of the code.
settings.register_profile(
    "project", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run two short tests at once on each processor, as they wait for servers; long ones need it alone."""
    processors = os.cpu_count() or 1
    return 2 * processors if config.option.markexpr.startswith("not long") else processors


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
    with open_server() as server:
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
