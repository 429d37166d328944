"""A replica set of three on the loopback address; members can be killed, paused, stepped down and restarted.

In a program::

    with LocalReplicaSet() as replica_set:
        client = MongoClient(replica_set.uri)
        replica_set.primary().stop(signal.SIGKILL)

All files are in temporary directories, which are removed at the end. A new primary is elected within seconds,
so a test can have many elections.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from scripts.dev.local_mongod import SET_NAME, Local, LocalMongod, ServerError

MEMBERS = 3
PRIMARY_SECONDS = 300.0
# Seconds before a member that stepped down can be elected again.
STEPPED_DOWN_SECONDS = 2
# In milliseconds and seconds: a tenth or less of MongoDB's defaults, for fast elections.
SETTINGS = {"electionTimeoutMillis": 1_500, "heartbeatIntervalMillis": 300, "heartbeatTimeoutSecs": 1}


T = TypeVar("T")


class Member(LocalMongod):
    """One mongod of the set; `start` returns when it listens, and the set elects the primary."""

    cache_gb = 0.25

    @property
    def is_running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None

    def start(self) -> None:
        """Start or restart.

        Raises:
            ServerError: If another process has its port; the other members know it by its port.
        """
        port = self.port
        super().start()
        if port not in (0, self.port):
            raise ServerError(f"port {port} is taken, so the others do not find this member any more")

    def pause(self) -> None:
        """Stop answering but leave connections open, like a machine whose network was cut."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Answer again."""
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def client(self) -> Iterator[MongoClient[dict[str, Any]]]:
        """Return a client of this member alone."""
        with MongoClient[dict[str, Any]](
            "127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=2_000
        ) as client:
            yield client

    def command(self, name: str, value: Any = 1, **options: Any) -> dict[str, Any]:
        """Send an administrative command to this member, and return the reply."""
        with self.client() as client:
            return client.admin.command(name, value, **options)

    def _options(self) -> list[str]:
        return [*super()._options(), "--oplogSize", "64"]

    def _prepare(self, deadline: float, first: bool) -> None:
        """No-op: the set is initiated when all members listen."""


class LocalReplicaSet(Local):
    """Three mongods on 127.0.0.1; when ``with`` begins, one of them is primary."""

    def __init__(self) -> None:
        self.members = [Member() for _ in range(MEMBERS)]
        # Members live as long as the thread that starts them.
        self._holder = ThreadPoolExecutor(1, "holder")

    def start(self) -> None:
        """Start all members and initiate the set.

        Raises:
            ServerError: If they do not start.
        """
        for member in self.members:
            self._holder.submit(member.start).result()
        hosts = [
            {"_id": number, "host": f"127.0.0.1:{member.port}"} for number, member in enumerate(self.members)
        ]
        configuration = {"_id": SET_NAME, "members": hosts, "settings": SETTINGS}
        self.members[0].command("replSetInitiate", configuration)
        self.whole()

    @property
    def uri(self) -> str:
        """Connection string with all members."""
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"mongodb://{hosts}/?replicaSet={SET_NAME}"

    def primary(self) -> Member:
        """Wait for the member that the others acknowledge as primary.

        Raises:
            ServerError: If there is none after 300 s.
        """
        return _waited(self._primary, "no member became primary")

    def secondaries(self) -> list[Member]:
        """Wait for a primary, and return the other running members."""
        primary = self.primary()
        return [member for member in self.members if member.is_running and member is not primary]

    def step_down(self) -> None:
        """Make the primary step down, without waiting for the next primary."""
        # The primary may close the connection instead of replying, or may no longer be primary.
        with contextlib.suppress(PyMongoError):
            self.primary().command("replSetStepDown", STEPPED_DOWN_SECONDS, secondaryCatchUpPeriodSecs=1)

    def kill_primary(self) -> Member:
        """Kill the primary with SIGKILL, and return it so that it can be restarted."""
        primary = self.primary()
        primary.stop(signal.SIGKILL)
        return primary

    def whole(self) -> None:
        """Restart all stopped members, and wait until each is primary or secondary."""
        for member in self.members:
            if member.is_running:
                member.resume()
            else:
                self._holder.submit(member.start).result()
        _waited(self._is_whole, "a member did not come back")

    def close(self) -> None:
        """Stop all members for good."""
        for member in self.members:
            if member.is_running:
                member.resume()
            member.close()
        self._holder.shutdown()

    def _primary(self) -> Member | None:
        for member in self.members:
            if member.is_running and _hello(member).get("isWritablePrimary"):
                return member
        return None

    def _is_whole(self) -> bool:
        states = [_hello(member) for member in self.members]
        return sum(state.get("isWritablePrimary", False) for state in states) == 1 and all(
            state.get("isWritablePrimary") or state.get("secondary") for state in states
        )


def _hello(member: Member) -> dict[str, Any]:
    """Return a member's reply to `hello`; empty if it does not answer soon."""
    try:
        with MongoClient[dict[str, Any]](
            "127.0.0.1",
            member.port,
            directConnection=True,
            serverSelectionTimeoutMS=500,
            connectTimeoutMS=500,
            socketTimeoutMS=500,
        ) as client:
            return client.admin.command("hello")
    except PyMongoError:
        return {}


def _waited(ask: Callable[[], T | None], otherwise: str) -> T:
    deadline = time.monotonic() + PRIMARY_SECONDS
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
        time.sleep(0.05)
    raise ServerError(f"{otherwise} within {PRIMARY_SECONDS:.0f} s")
