"""Simulate, inside the test's process, a process that is killed at one of its MongoDB commands.

From then on no command that reads or writes data reaches the server, which is all that a server can observe
of a kill. The next process may take the lease at once, because its holder has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any, TypeVar

import pytest
from pymongo import monitoring

from dedup_job.mongo import connect_and_retry
from dedup_job.mongo.comments_and_time_limits import JobClient
from tests.support.job import Job
from tests.support.quiet_listener import QuietListener

COUNTED = {"find", "insert", "update", "delete", "findAndModify", "listCollections", "aggregate"}
COUNTED |= {"renameCollection"}
T = TypeVar("T")


class Died(BaseException):
    """Simulates the kill; no Exception, so that no code can catch it and continue."""


class Mortal(QuietListener):
    """Counts commands, and dies after the first command that is fatal according to `is_fatal`.

    Its arguments are the command's number, from 1, and its event. After one command is the same as before the
    next: the server sees no difference.
    """

    def __init__(self, is_fatal: Callable[[int, monitoring.CommandStartedEvent], bool]) -> None:
        self.is_fatal, self.sent, self.is_dead = is_fatal, 0, False
        # Its own number, because commands may overlap.
        self.last: int | None = None

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        # A renewal of the lease comes from another thread at no fixed time. It may continue, as the lease's
        # holder is gone.
        if event.command_name in COUNTED and threading.current_thread().name != "lease":
            if self.is_dead:
                raise Died
            self.sent += 1
            if self.last is None and self.is_fatal(self.sent, event):
                self.last = event.request_id

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        if event.request_id == self.last:
            self.is_dead = True
            raise Died


@contextmanager
def mortal(listener: monitoring.CommandListener) -> Iterator[None]:
    """Let connections that are opened in this block die with the listener."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as connections:

        def connect(*arguments: Any, **options: Any) -> JobClient:
            made = JobClient(*arguments, **options, event_listeners=[listener])
            return connections.enter_context(made)

        patch.setattr(connect_and_retry, "JobClient", connect)
        yield


def commands_of(work: Callable[[], object]) -> int:
    """Call a function undisturbed, and return the number of its commands."""
    counter = Mortal(lambda number, event: False)
    with mortal(counter):
        work()
    return counter.sent


def killed(work: Callable[[], object], number: int) -> None:
    """Call a function, and die after its command with this number."""
    _die(work, Mortal(lambda sent, event: sent == number))


def killed_after_setting(name: str, work: Callable[[], object], times: int = 1) -> None:
    """Call a function, and die after a value of the head is set for this number of times."""
    left = count(times, -1)

    def sets(_: int, event: monitoring.CommandStartedEvent) -> bool:
        update: Any = event.command.get("update")
        if event.command_name != "findAndModify" or not update[0]["$set"].get(name, {}).get("$literal"):
            return False
        return next(left) == 1

    _die(work, Mortal(sets))


def free_lease(job: Job) -> None:
    """Free the lease of a killed process for commands outside of the test's process, which has not ended."""
    job.ledger("head").update_one({}, {"$set": {"lease": None}})


def killed_after_inserting_into(collection: str, work: Callable[[], object]) -> None:
    """Call a function, and die after it first inserts records into a collection."""
    _die(work, Mortal(lambda _, event: event.command.get("insert") == collection))


def killed_after(
    is_fatal: Callable[[monitoring.CommandStartedEvent], bool], work: Callable[[], object]
) -> None:
    """Call a function, and die after its first command for which `is_fatal` is true."""
    _die(work, Mortal(lambda _, event: is_fatal(event)))


class Listener(QuietListener):
    """Calls a function before each command that reads or writes data."""

    def __init__(self, act: Callable[[monitoring.CommandStartedEvent], object]) -> None:
        self._act = act

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in COUNTED and threading.current_thread().name != "lease":
            self._act(event)


def at_command(number: int, act: Callable[[], object], work: Callable[[], T]) -> T:
    """Call `work`, and `act` before its command with this number, from 1."""
    numbers = count(1)
    with mortal(Listener(lambda _: act() if next(numbers) == number else None)):
        return work()


def at_rename(act: Callable[[], object], work: Callable[[], T]) -> T:
    """Call `work`, and `act` before it first renames a collection."""
    renames = count()

    def act_once(event: monitoring.CommandStartedEvent) -> None:
        if event.command_name == "renameCollection" and next(renames) == 0:
            act()

    with mortal(Listener(act_once)):
        return work()


def _die(work: Callable[[], object], listener: Mortal) -> None:
    with mortal(listener), suppress(Died):
        work()
    assert listener.is_dead
