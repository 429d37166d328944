"""A replica set of three on the loopback, whose members can be killed, paused, stepped down and brought back.

In a program::

    with LocalReplicaSet() as replica_set:
        client = MongoClient(replica_set.uri)
        replica_set.primary().stop(signal.SIGKILL)

Everything lives in temporary directories and is gone at the end.  Another member takes over within seconds,
so that many elections fit into a test.
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

from scripts.local_mongod import SET_NAME, Local, LocalMongod, ServerError

MEMBERS = 3
PRIMARY_SECONDS = 300.0
STEPPED_DOWN_SECONDS = 2  # for so long a member that stepped down does not stand again
# Milliseconds, seconds: a tenth or less of what servers do by themselves.
SETTINGS = {"electionTimeoutMillis": 1_500, "heartbeatIntervalMillis": 300, "heartbeatTimeoutSecs": 1}


T = TypeVar("T")


class Member(LocalMongod):
    """One mongod of the set; it is up once it listens, and the set decides who is primary."""

    cache_gb = 0.25

    @property
    def is_running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self._process is not None

    def start(self) -> None:
        """Start or come back; raises ServerError when the port, by which the others know it, is taken."""
        port = self.port
        super().start()
        if port not in (0, self.port):
            raise ServerError(f"port {port} is taken, so the others do not find this member any more")

    def pause(self) -> None:
        """Stop answering with connections left open, as a machine does whose network is cut."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Answer again."""
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def client(self) -> Iterator[MongoClient[dict[str, Any]]]:
        """Give a connection to this member alone."""
        with MongoClient[dict[str, Any]](
            "127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=2_000
        ) as client:
            yield client

    def command(self, name: str, value: Any = 1, **options: Any) -> dict[str, Any]:
        """Send this member an administrator's command and return the answer."""
        with self.client() as client:
            return client.admin.command(name, value, **options)

    def _options(self) -> list[str]:
        return [*super()._options(), "--oplogSize", "64"]

    def _prepare(self, deadline: float, first: bool) -> None:
        """Nothing: the set is made once all members listen."""


class LocalReplicaSet(Local):
    """Three mongods on 127.0.0.1, one of them primary when ``with`` begins."""

    def __init__(self) -> None:
        self.members = [Member() for _ in range(MEMBERS)]
        self._holder = ThreadPoolExecutor(1, "holder")  # members live as long as the thread that starts them

    def start(self) -> None:
        """Start all members and make them one set; raises ServerError where they do not come up."""
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
        """Wait for the member that the others acknowledge as primary; raises ServerError after 300 s."""
        return _waited(self._primary, "no member became primary")

    def secondaries(self) -> list[Member]:
        """Return the running members that are not primary, once there is one."""
        primary = self.primary()
        return [member for member in self.members if member.is_running and member is not primary]

    def step_down(self) -> None:
        """Make the primary give up its place, and do not wait for the next."""
        with contextlib.suppress(PyMongoError):  # it may hang up instead of an answer, or be primary no more
            self.primary().command("replSetStepDown", STEPPED_DOWN_SECONDS, secondaryCatchUpPeriodSecs=1)

    def kill_primary(self) -> Member:
        """Kill the primary with SIGKILL; returns it, to be started again."""
        primary = self.primary()
        primary.stop(signal.SIGKILL)
        return primary

    def whole(self) -> None:
        """Bring back every member, and wait until each is primary or secondary."""
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
    """Return what a member says of itself; nothing when it does not answer soon."""
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
