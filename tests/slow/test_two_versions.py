"""MongoDB 6.0 and 7.0 as source and target, and a server that is upgraded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from scripts.bench.corpus import generate
from scripts.dev.local_mongod import LocalMongod, ServerError, mongod_of_wheel
from scripts.dev.local_mongod7 import FOLDER
from tests.support.job import Job

MONGOD7 = FOLDER / "bin/mongod"
pytestmark = [
    pytest.mark.longest,
    pytest.mark.skipif(
        not MONGOD7.exists(), reason="MongoDB 7.0 is not installed: make test-mongo7 installs it"
    ),
]

RECORDS = list(generate(120, seed=4))
TEXT = "雨后的竹林里升起一层薄雾，采笋的人早早出了门。"
COMPOUND_WILDCARD = "a_1_b.$**_1"


@pytest.fixture
def mongods() -> dict[str, Path]:
    try:
        return {"6.0": mongod_of_wheel(), "7.0": MONGOD7}
    except ServerError as error:
        pytest.skip(str(error))


Start = Callable[[str], tuple[LocalMongod, MongoClient[Any]]]


@pytest.fixture
def start(mongods: dict[str, Path]) -> Iterator[Start]:
    """Start a server of a version and connect to it."""
    with ExitStack() as stack:

        def begin(version: str) -> tuple[LocalMongod, MongoClient[Any]]:
            server = stack.enter_context(LocalMongod(mongod=mongods[version]))
            client = stack.enter_context(MongoClient[Any](server.uri))
            assert client.server_info()["version"].startswith(version)
            return server, client

        yield begin


def run(job: Job, *arguments: str, target: str = "", code: int = 0) -> None:
    """Run a command, which must end with a code."""
    done = job.command(*arguments, environment={"DEDUP_TARGET_URI": target} if target else {})
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(("of_source", "of_target", "code"), [("6.0", "7.0", 0), ("7.0", "6.0", 3)])
def test_source_and_target_may_be_of_two_versions(
    start: Start, tmp_path: Path, of_source: str, of_target: str, code: int
) -> None:
    source, from_source = start(of_source)
    target, from_target = start(of_target)
    job = Job(from_source["shop"], source.uri, tmp_path)
    job.set("source", fields=["data"])
    job.source.insert_many(RECORDS[:80])
    job.source.create_index("data")
    if of_source == "7.0":  # which alone has such indexes
        job.source.create_index({"a": 1, "b.$**": 1})

    run(job, "backfill", "--copy-indexes", target=target.uri, code=code)
    job.source.insert_many(RECORDS[80:])
    kept = from_target["shop"]["unique"].find_one()
    job.source.update_one({"_id": kept["_id"]}, {"$set": {"data": TEXT}})
    run(job, "run", target=target.uri)
    run(job, "sync", "--yes", target=target.uri)
    assert from_target["shop"]["unique"].find_one({"_id": kept["_id"]}) == {**kept, "data": TEXT}
    run(job, "verify", target=target.uri)
    indexes = from_target["shop"]["unique"].index_information()
    assert ("data_1" in indexes, COMPOUND_WILDCARD in indexes) == (True, False)
    for row in from_target["shop"]["unique.dedup.runs"].find().sort("started", -1):
        run(job, "undo", row["_id"], "--yes", target=target.uri)
    assert from_target["shop"]["unique"].count_documents({}) == 0


def test_a_ledger_goes_on_when_its_server_is_upgraded(mongods: dict[str, Path], tmp_path: Path) -> None:
    data, settings = tmp_path / "db", tmp_path / "settings"
    settings.mkdir()
    for number, mongod in enumerate(mongods.values()):
        with LocalMongod(data, mongod=mongod) as server, MongoClient[Any](server.uri) as client:
            job = Job(client["shop"], server.uri, settings)
            job.set("source", fields=["data"])
            if number:
                run(job, "verify")
                client.admin.command("setFeatureCompatibilityVersion", "7.0", confirm=True)
            job.source.insert_many(RECORDS[80 * number : 80 + 40 * number])
            run(job, "run" if number else "backfill")
            run(job, "verify")
            assert job.ledger("runs").count_documents({"exit_code": 0}) == number + 1
