"""A process that dies at one of its MongoDB commands, played inside the test's own process.

From the moment it dies no command that reads or writes data reaches the server any more, which is all that a
server can tell of a kill.  The next one may take its lease at once, as that of a process that is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from pymongo import monitoring

from dedup_job.mongo import client
from dedup_job.mongo.limited_client import LimitedClient

COUNTED = {"find", "insert", "update", "delete", "findAndModify", "listCollections", "aggregate"}


class Died(BaseException):
    """Not an Exception: nothing may catch it and go on."""


class Mortal(monitoring.CommandListener):
    """Counts commands, and dies after the first that is fatal by its number, from 1, and what it says.

    After one command is before the next: the server sees no difference.
    """

    def __init__(self, is_fatal: Callable[[int, monitoring.CommandStartedEvent], bool]) -> None:
        self.is_fatal, self.sent, self.is_dead = is_fatal, 0, False
        self.last: int | None = None  # commands may overlap, so it is known by its own number

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        # What renews the lease beside the work comes at no certain time, and may go on: the holder is gone.
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

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


@contextmanager
def mortal(listener: Mortal) -> Iterator[None]:
    """Let the connections that are made in here die with the listener."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as connections:

        def connect(*arguments: Any, **options: Any) -> LimitedClient:
            made = LimitedClient(*arguments, **options, event_listeners=[listener])
            return connections.enter_context(made)

        patch.setattr(client, "LimitedClient", connect)
        yield


def commands_of(work: Callable[[], object]) -> int:
    """Do something undisturbed and return how many commands it sends."""
    counter = Mortal(lambda number, event: False)
    with mortal(counter):
        work()
    return counter.sent


def killed(work: Callable[[], object], number: int) -> None:
    """Do something, and die after its command of this number."""
    _die(work, Mortal(lambda sent, event: sent == number))


def killed_after_setting(name: str, work: Callable[[], object]) -> None:
    """Do something, and die when a value of the head is set."""

    def sets(_: int, event: monitoring.CommandStartedEvent) -> bool:
        update: Any = event.command.get("update")
        return event.command_name == "findAndModify" and bool(update[0]["$set"].get(name, {}).get("$literal"))

    _die(work, Mortal(sets))


def _die(work: Callable[[], object], listener: Mortal) -> None:
    with mortal(listener), suppress(Died):
        work()
    assert listener.is_dead
