"""Pause a run while secondaries of its servers lag too far behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import MongoClient
from pymongo.server_description import ServerDescription

from dedup_job.errors import ConfigError
from dedup_job.mongo.connect_and_retry import RetryPolicy, named_errors
from dedup_job.signals import SHUTDOWN

# Interval of looking at the lag during a pause, and of saying in the log that the run is still paused.
CHECK_SECONDS, LOG_SECONDS = 0.5, 300.0
# Time that a new client may take to reach all members.
DISCOVERY_SECONDS = 1.0

log = logging.getLogger("dedup_job")


def lag_of_members(members: Sequence[ServerDescription]) -> float | None:
    """Return the lag of the slowest secondary in seconds; None if that is unknown.

    Members that do not answer, hidden members and delayed members do not count: the driver does not know them
    as secondaries.

    Args:
        members: The driver's view of the members of a replica set.  It asks them every few seconds, which
            needs no privilege.
    """
    # As the driver's specification of maxStalenessSeconds: members are asked at different moments.
    ages = {
        kind: [
            member.last_update_time - member.last_write_date
            for member in members
            if member.server_type_name == kind and member.last_write_date is not None
        ]
        for kind in ("RSPrimary", "RSSecondary")
    }
    if not ages["RSPrimary"] or not ages["RSSecondary"]:
        return None
    return max(0.0, max(ages["RSSecondary"]) - ages["RSPrimary"][0])


class LagThrottle:
    """Makes a run wait while secondaries lag more than a limit.

    Attributes:
        limit: The most seconds that secondaries may lag; None for no limit.
    """

    def __init__(
        self, clients: Mapping[str, MongoClient[Any]], limit: float | None, retry: RetryPolicy
    ) -> None:
        """Set the servers and the limit.

        Args:
            clients: The connections to the servers, by name in messages, such as "the source server".
            limit: The most seconds that secondaries may lag; None for no limit.
            retry: How long commands are retried.

        Raises:
            ConfigError: If there is a limit, and none of the servers is a replica set.
        """
        self.limit = limit
        self._clients = list(clients.values())
        self._is_paused = False
        if limit is not None and not any(is_member(name, client, retry) for name, client in clients.items()):
            raise ConfigError(
                "[limits] max_lag_seconds: neither source nor target is a replica set that the job reaches "
                "without a router, so the lag of secondaries is unknown; remove the setting"
            )

    def measure(self) -> float | None:
        """Return the lag of the slowest secondary in seconds; None if that is unknown."""
        lags = [
            lag_of_members([*client.topology_description.server_descriptions().values()])
            for client in self._clients
        ]
        return max((lag for lag in lags if lag is not None), default=None)

    def is_over(self, lag: float | None) -> bool:
        """Return whether a lag is above the limit."""
        return self.limit is not None and lag is not None and lag > self.limit

    def wait(self) -> None:
        """Return at once if no secondary lags more than the limit, or else when none does any longer."""
        if self.limit is None or not self.is_over(self.measure()):
            return
        # The thread that reads and the thread that commits wait at the same time; one of them logs.
        is_logging, self._is_paused = not self._is_paused, True
        began, logged = time.monotonic(), -LOG_SECONDS
        try:
            while self.is_over(lag := self.measure()):
                if is_logging and time.monotonic() - logged >= LOG_SECONDS:
                    logged = time.monotonic()
                    fields = {"lag_seconds": round(lag or 0.0, 1), "max_lag_seconds": self.limit}
                    log.warning("paused: secondaries lag", extra={"fields": fields})
                SHUTDOWN.check()
                time.sleep(CHECK_SECONDS)
        finally:
            if is_logging:
                self._is_paused = False
        if is_logging:
            seconds = round(time.monotonic() - began, 1)
            log.info("secondaries have caught up", extra={"fields": {"paused_seconds": seconds}})

    def describe(self) -> dict[str, Any] | None:
        """Return lag and limit as JSON values, after all members were reached; None without a limit."""
        if self.limit is None:
            return None
        deadline = time.monotonic() + DISCOVERY_SECONDS
        while time.monotonic() < deadline and not self._has_reached_all():
            time.sleep(CHECK_SECONDS / 10)
        lag = self.measure()
        return {
            "lag_seconds": None if lag is None else round(lag, 1),
            "max_lag_seconds": self.limit,
            "is_over": self.is_over(lag),
        }

    def _has_reached_all(self) -> bool:
        return all(
            member.server_type_name != "Unknown"
            for client in self._clients
            for member in client.topology_description.server_descriptions().values()
        )


def is_member(what: str, client: MongoClient[Any], retry: RetryPolicy) -> bool:
    """Return whether the server is a member of a replica set; `what` is its name in messages."""
    with named_errors(what):
        return "setName" in retry(lambda: client.admin.command("hello"))
