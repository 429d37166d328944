"""The base of listeners for commands to MongoDB; a class overrides what it listens to."""

from __future__ import annotations

from pymongo import monitoring


class QuietListener(monitoring.CommandListener):
    """Does nothing before a command, after it, and when it fails."""

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        pass

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass
