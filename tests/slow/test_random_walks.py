"""Random walks, as in `make soak`, and that a walk notices what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.results import DeleteResult, UpdateResult

from tests.support.fault_proxy import Wire
from tests.support.forked_commands import Forks
from tests.support.random_walk import BrokenPromise, Walk

pytestmark = pytest.mark.long

STEPS = 15
# Ends with a target and with dropped records.
SEED_WITH_COPIES = 16


@pytest.fixture
def wire(mongo_uri: str) -> Iterator[Wire]:
    with Wire(mongo_uri) as wire:
        yield wire


@pytest.mark.parametrize("seed", range(8))
def test_a_random_walk_breaks_no_promise(
    database: Database[Any], tmp_path: Path, wire: Wire, forks: Forks, seed: int
) -> None:
    Walk(database, tmp_path, wire, forks, Random(seed)).go(STEPS)


@pytest.mark.parametrize(
    "harm",
    [
        lambda database: database["pages"].delete_one({}),
        lambda database: database["unique"].delete_one({}),
        lambda database: database["unique"].update_one({}, {"$set": {"text": "another"}}),
        lambda database: database["unique.dedup.dropped"].update_one({}, {"$set": {"keeper": 0}}),
    ],
    ids=["lost in the source", "lost in the target", "altered in the target", "another keeper"],
)
def test_a_walk_notices_harm(
    database: Database[Any],
    tmp_path: Path,
    wire: Wire,
    forks: Forks,
    harm: Callable[[Database[Any]], UpdateResult | DeleteResult],
) -> None:
    walk = Walk(database, tmp_path, wire, forks, Random(SEED_WITH_COPIES))
    walk.go(STEPS)
    harm(database)

    with pytest.raises(BrokenPromise):
        walk.check()
