"""A process that is stopped before one of its MongoDB commands, and wakes when others have done their work.

Played inside the test's own process, where another run may take the lease at once, as that of a process whose
lease is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import monitoring

from dedup_job.ledger import head, leased_ledger
from dedup_job.mongo import client
from dedup_job.mongo.limited_client import LimitedClient
from tests.support.kill_in_process import COUNTED

Event = monitoring.CommandStartedEvent
# In place of thirty. Who is not stopped must remove within it, also on a busy machine.
REMOVAL_SECONDS = 10


def hurry_removals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process have ten seconds to remove and replace what it means to, not thirty."""
    monkeypatch.setattr(leased_ledger, "MARGIN", head.SECONDS - REMOVAL_SECONDS)


def sleep_past_removals() -> None:
    """Sleep until the server refuses a removal that was meant for before."""
    time.sleep(REMOVAL_SECONDS + 0.1)


class Sleeper(monitoring.CommandListener):
    """Stops once, while something else happens, before the first command for which it is time.

    That is told by the command's number, from 1, and what it says.  No thread of the process goes on then.
    """

    def __init__(self, is_time: Callable[[int, Event], bool], meanwhile: Callable[[Event], object]) -> None:
        self.is_time, self.meanwhile = is_time, meanwhile
        self.sent, self.has_slept = 0, False
        self._awake = threading.Lock()

    def started(self, event: Event) -> None:
        if event.command_name in COUNTED and threading.current_thread().name != "lease":
            with self._awake:
                self.sent += 1
                if not self.has_slept and self.is_time(self.sent, event):
                    self.has_slept = True
                    self.meanwhile(event)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


def stopped(
    work: Callable[[], object], is_time: Callable[[int, Event], bool], meanwhile: Callable[[Event], object]
) -> None:
    """Do something that is stopped at its time until `meanwhile` has happened."""
    with pytest.MonkeyPatch.context() as patch:

        def others(event: Event) -> None:
            patch.setattr(client, "LimitedClient", LimitedClient)
            meanwhile(event)

        sleeper = Sleeper(is_time, others)

        def connect(*arguments: Any, **options: Any) -> LimitedClient:
            return LimitedClient(*arguments, **options, event_listeners=[sleeper])

        patch.setattr(client, "LimitedClient", connect)
        try:
            work()
        finally:
            assert sleeper.has_slept
