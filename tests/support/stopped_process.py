"""Simulate, inside the test's process, a process that stops before one of its commands while others work.

Another run may take the lease at once, as if the lease had expired.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import monitoring

from dedup_job.ledger import head, leased_ledger
from dedup_job.mongo import connect_and_retry
from dedup_job.mongo.comments_and_time_limits import JobClient
from tests.support.kill_in_process import COUNTED
from tests.support.quiet_listener import QuietListener

Event = monitoring.CommandStartedEvent
# Instead of thirty. A process that is not stopped must be able to remove records in this time, on a busy
# machine too.
REMOVAL_SECONDS = 10


def hurry_removals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a process ten seconds for removals and replacements, instead of thirty."""
    monkeypatch.setattr(leased_ledger, "MARGIN", head.SECONDS - REMOVAL_SECONDS)


def sleep_past_removals() -> None:
    """Sleep until the server refuses removals with an earlier deadline."""
    time.sleep(REMOVAL_SECONDS + 0.1)


class Sleeper(QuietListener):
    """Stops once, before the first command that `is_time` selects, and calls a function during the stop.

    The arguments of `is_time` are the command's number, from 1, and its event. No thread of the process
    continues during the stop.
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


def stopped(
    work: Callable[[], object], is_time: Callable[[int, Event], bool], meanwhile: Callable[[Event], object]
) -> None:
    """Call a function, and stop it at its time until `meanwhile` has returned."""
    with pytest.MonkeyPatch.context() as patch:

        def others(event: Event) -> None:
            patch.setattr(connect_and_retry, "JobClient", JobClient)
            meanwhile(event)

        sleeper = Sleeper(is_time, others)

        def connect(*arguments: Any, **options: Any) -> JobClient:
            return JobClient(*arguments, **options, event_listeners=[sleeper])

        patch.setattr(connect_and_retry, "JobClient", connect)
        try:
            work()
        finally:
            assert sleeper.has_slept
