"""A run in this process to which something happens: at chosen commands, and without worker processes."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from pymongo import MongoClient, monitoring

from dedup_job.commands import context as parts
from dedup_job.document import Batch, Fingerprints
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.mongo import client

Action = Callable[[monitoring.CommandStartedEvent], object]


def of_kind(event: monitoring.CommandStartedEvent) -> str:
    """Return which step of a run a command is: a step of the commit protocol, or else the command's name."""
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


class Moments(monitoring.CommandListener):
    """Calls an action before the n-th command of a kind is sent; `due` holds what is still to come."""

    def __init__(self, due: dict[tuple[str, int], Action]) -> None:
        self.due = due
        self.seen: dict[str, int] = {}

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        kind = of_kind(event)
        self.seen[kind] = self.seen.get(kind, 0) + 1
        if action := self.due.pop((kind, self.seen[kind]), None):
            action(event)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


@functools.cache
def fingerprinter(recipe: Recipe) -> Fingerprinter:
    return Fingerprinter(recipe)


class Here:
    """An engine without processes, for tests in which the engine is not the subject."""

    def __init__(self, recipe: Recipe, _: object) -> None:
        self._recipe = recipe

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fingerprint(self, raws: Sequence[bytes]) -> Fingerprints:
        return fingerprinter(self._recipe)(raws)

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        return ((batch, self.fingerprint(batch.raws)) for batch in batches)

    def counted_terms(self, batches: Iterable[Batch]) -> Iterator[tuple[int, Counter[str]]]:
        ready = fingerprinter(self._recipe)
        return (ready.document_frequencies(batch.raws) for batch in batches)


def install(monkeypatch: pytest.MonkeyPatch, *listeners: Any) -> None:
    """Run jobs of this process without workers, and let these listeners hear their commands.

    The log, which a command line sets up, is afterwards as before.
    """
    monkeypatch.setattr(parts, "LocalEngine", Here)
    listening = functools.partial(MongoClient, event_listeners=listeners)
    monkeypatch.setattr(client, "MongoClient", listening)
    log = logging.getLogger("dedup_job")
    for name in ("handlers", "propagate", "level"):
        monkeypatch.setattr(log, name, getattr(log, name))
