"""Run the command line and halt at one of its MongoDB commands.

    halt_at_command.py NUMBER GRACE ARGUMENT ...

At command NUMBER it writes a line to stdout and waits for a line on stdin. GRACE replaces the number of
seconds that a run has for its cleanup after a signal.
"""

from __future__ import annotations

import signal
import sys
from itertools import count

from pymongo import monitoring

from tests.support.quiet_listener import QuietListener


class Halt(QuietListener):
    """Halts once."""

    def __init__(self, number: int) -> None:
        self.number, self.commands = number, count(1)

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if next(self.commands) == self.number:
            sys.stdout.write("here\n")
            sys.stdout.flush()
            sys.stdin.readline()


if __name__ == "__main__":
    # A background job of a shell ignores SIGQUIT, and its children inherit that.
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    monitoring.register(Halt(int(sys.argv[1])))
    from dedup_job import signals
    from dedup_job.__main__ import main

    signals.GRACE_SECONDS = float(sys.argv[2])
    del sys.argv[1:3]
    main()
