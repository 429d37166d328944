"""Record the MongoDB commands that a job sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo import monitoring

from tests.support.quiet_listener import QuietListener

READING = {
    "aggregate", "buildInfo", "collStats", "count", "endSessions", "find", "getMore", "hello", "killCursors",
    "listCollections", "ping", "saslContinue", "saslStart",
}  # fmt: skip


class Recorder(QuietListener):
    """Records the commands that are sent."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, Mapping[str, Any]]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.commands.append((event.command_name, event.command))

    def writing(self) -> list[str]:
        """Return the names of the commands that may write."""
        return [
            name
            for name, command in self.commands
            if name not in READING
            or any({"$out", "$merge"} & stage.keys() for stage in command.get("pipeline", ()))
        ]
