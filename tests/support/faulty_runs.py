"""Runs in this process, without workers, with actions at chosen commands."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import monitoring

from dedup_job.mongo import connect_and_retry
from dedup_job.mongo.comments_and_time_limits import JobClient
from tests.support.inline_engine import without_workers
from tests.support.quiet_listener import QuietListener

Action = Callable[[monitoring.CommandStartedEvent], object]


def of_kind(event: monitoring.CommandStartedEvent) -> str:
    """Return the step of a command in the commit protocol, otherwise the command's name."""
    name, command = event.command_name, event.command
    collection = str(command.get(name, ""))
    if name == "findAndModify":
        after = command["update"][0]["$set"]
        return "advance" if "last" in after else "accept" if after.get("pending") else "lease"
    if name == "insert":
        return "note" if ".dedup." in collection else "insert"
    if name == "update" and collection.endswith("plans"):
        return "store"
    return "read" if name == "find" and collection == "pages" else str(name)


class Moments(QuietListener):
    """Calls an action before the n-th command of a kind is sent; `due` has the actions still to come."""

    def __init__(self, due: dict[tuple[str, int], Action]) -> None:
        self.due = due
        self.seen: dict[str, int] = {}

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        kind = of_kind(event)
        self.seen[kind] = self.seen.get(kind, 0) + 1
        if action := self.due.pop((kind, self.seen[kind]), None):
            action(event)


def install(monkeypatch: pytest.MonkeyPatch, *listeners: Any) -> None:
    """Run jobs of this process without workers, and call these listeners for their commands.

    Logging, which a command line configures, is restored afterwards.
    """
    without_workers(monkeypatch.setattr)
    listening = functools.partial(JobClient, event_listeners=listeners)
    monkeypatch.setattr(connect_and_retry, "JobClient", listening)
    log = logging.getLogger("dedup_job")
    for name in ("handlers", "propagate", "level"):
        monkeypatch.setattr(log, name, getattr(log, name))
