"""Run the command line and kill it at one of its MongoDB commands.

    kill_at_command.py WHEN NUMBER ARGUMENT ...

WHEN is `before` or `after`; NUMBER counts the commands that the job sends, from 1. With NUMBER 0 nothing is
killed, and the number of commands is written to the file in DEDUP_TEST_COUNT.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pymongo import monitoring

from tests.support.quiet_listener import QuietListener

COUNTED = {"find", "insert", "update", "delete", "findAndModify", "listCollections", "aggregate"}


class Killer(QuietListener):
    """Counts commands, and kills this process at one of them as the OOM killer would."""

    def __init__(self, when: str, number: int) -> None:
        self.when, self.number, self.sent = when, number, 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in COUNTED:
            self.sent += 1
            if "DEDUP_TEST_COUNT" in os.environ:
                Path(os.environ["DEDUP_TEST_COUNT"]).write_text(str(self.sent))
            self.strike("before")

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        if event.command_name in COUNTED:
            self.strike("after")

    def strike(self, when: str) -> None:
        if (when, self.sent) == (self.when, self.number):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    killer = Killer(sys.argv[1], int(sys.argv[2]))
    del sys.argv[1:3]
    monitoring.register(killer)
    from dedup_job.__main__ import main

    main()
