"""Whole processes, disturbed as in `make soak`, a few times on a small job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from tests.support import process_campaign
from tests.support.campaign import Damage, Material, Result
from tests.support.process_campaign import Storm, storm

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def raging(mongo_uri: str) -> Iterator[Storm]:
    with storm(mongo_uri, Material.made(300, seed=7, batch_records=50), Random(1)) as made:
        yield made


@pytest.mark.parametrize(
    "work", [process_campaign.kills, process_campaign.pauses, process_campaign.worker_losses]
)
def test_what_is_done_to_a_process_changes_nothing_in_the_end(
    raging: Storm, work: Callable[[Storm, int], Result]
) -> None:
    result = work(raging, 1)

    assert result.damage == Damage(), result.worst
    assert result.trials == 1
