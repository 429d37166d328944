"""A job between two collections of one's own on a real server, run in this process or as a command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from scripts.dev.local_replica_set import LocalReplicaSet
from tests.support.forked_commands import Forks
from tests.support.job import LEDGER, RAW, Job


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
        for name in ("unique", *(f"unique.dedup.{part}" for part in LEDGER)):
            if records := list(job.database[name].with_options(RAW).find()):
                database[name].with_options(RAW).insert_many(records)
        database["unique.dedup.head"].update_one({}, {"$unset": {"places": ""}})  # a copy is elsewhere
        twin = Job(database, job.uri, job.folder, job.forks)
        twin.tables = {**job.tables, "target": {**job.tables["target"], "database": database.name}}
        return twin

    yield make
    for database in made:
        client.drop_database(database)
