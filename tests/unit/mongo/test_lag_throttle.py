"""How far secondaries lag, as the driver knows them, and the pause of a run while they lag too much."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo.hello import Hello
from pymongo.server_description import ServerDescription

from dedup_job.errors import ConfigError
from dedup_job.mongo import lag_throttle
from dedup_job.mongo.connect_and_retry import RetryPolicy
from dedup_job.mongo.lag_throttle import LagThrottle, lag_of_members

NOON = datetime(2026, 1, 2, 12)
HOSTS = ["db:1", "db:2", "db:3"]


def member(number: int, behind: float | None, asked: float = 0.0, **reply: Any) -> ServerDescription:
    """A member whose last write was so many seconds before noon, and which was asked at this second."""
    wrote = {} if behind is None else {"lastWriteDate": NOON - timedelta(seconds=behind)}
    said = {"ok": 1, "setName": "x", "hosts": HOSTS, "maxWireVersion": 17, "lastWrite": wrote, **reply}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymongo.server_description.time.monotonic", lambda: asked)
        return ServerDescription(("db", number), Hello(said))


PRIMARY = member(1, 0, isWritablePrimary=True)


def test_the_slowest_secondary_counts() -> None:
    assert lag_of_members([PRIMARY, member(2, 3, secondary=True), member(3, 40, secondary=True)]) == 40


def test_the_moments_at_which_members_were_asked_count() -> None:
    # Thirty seconds before the primary was asked, it was up to date.
    assert lag_of_members([PRIMARY, member(2, 30, asked=-30.0, secondary=True)]) == 0


def test_members_that_are_no_secondaries_do_not_count() -> None:
    gone = ServerDescription(("db", 2), error=OSError("x"))
    arbiter = member(3, None, arbiterOnly=True)
    hidden = member(3, 900, secondary=True, hidden=True)
    assert lag_of_members([PRIMARY, member(2, 3, secondary=True), arbiter]) == 3
    assert lag_of_members([PRIMARY, gone, hidden]) is None
    assert lag_of_members([member(2, 3, secondary=True)]) is None


class Servers:
    """A client of a replica set whose lags are as given, one after another."""

    def __init__(self, *lags: float, kind: dict[str, Any] | None = None) -> None:
        self.lags = list(lags)
        self.admin = SimpleNamespace(command=lambda _: {"setName": "x"} if kind is None else kind)

    @property
    def topology_description(self) -> Any:
        lag = self.lags.pop(0) if len(self.lags) > 1 else self.lags[0]
        members = {1: PRIMARY, 2: member(2, lag, secondary=True)}
        return SimpleNamespace(server_descriptions=lambda: members)


def throttle(*clients: Any, limit: float | None = 20.0) -> LagThrottle:
    named = {f"server {number}": client for number, client in enumerate(clients)}
    return LagThrottle(named, limit, RetryPolicy(1.0))


def test_a_run_waits_until_all_secondaries_have_caught_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lag_throttle, "CHECK_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "dedup_job")
    source, target = Servers(0.0), Servers(50.0, 40.0, 30.0, 10.0)

    throttle(source, target).wait()

    assert target.lags == [10.0]
    assert [record.getMessage() for record in caplog.records] == [
        "paused: secondaries lag",
        "secondaries have caught up",
    ]
    fields: dict[str, Any] = caplog.records[0].__dict__["fields"]
    assert (fields["lag_seconds"], fields["max_lag_seconds"]) == (40.0, 20.0)


def test_a_run_does_not_wait_below_the_limit_or_without_one(caplog: pytest.LogCaptureFixture) -> None:
    throttle(Servers(19.0)).wait()
    throttle(Servers(900.0), limit=None).wait()
    assert not caplog.records


@pytest.mark.parametrize("kind", [{}, {"msg": "isdbgrid"}])
def test_a_limit_is_refused_where_the_lag_is_unknown(kind: dict[str, Any]) -> None:
    alone = Servers(0.0, kind=kind)
    with pytest.raises(ConfigError, match="max_lag_seconds: neither source nor target is a replica set"):
        throttle(alone, alone)
    throttle(alone, Servers(0.0))
    throttle(alone, limit=None)
