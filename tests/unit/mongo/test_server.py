from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from dedup_job.mongo.server import kind_of_deployment, lag_of

NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    ("hello", "kind"),
    [
        ({"setName": "rs0"}, "replica set rs0"),
        ({"msg": "isdbgrid"}, "sharded cluster"),
        ({}, "standalone server"),
    ],
)
def test_a_deployment_says_of_which_kind_it_is(hello: dict[str, Any], kind: str) -> None:
    assert kind_of_deployment(hello) == kind


def test_how_far_the_majority_is_behind_is_told_where_there_is_one() -> None:
    assert lag_of({}) == 0
    assert lag_of({"lastWrite": {"lastWriteDate": NOON}}) == 0
    for behind, lag in ((0, 0), (30, 30), (-1, 0)):
        dates = {"lastWriteDate": NOON, "majorityWriteDate": NOON - timedelta(seconds=behind)}
        assert lag_of({"lastWrite": dates}) == lag
