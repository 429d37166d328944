"""SIGINT and SIGTERM: end the run cleanly if it reacts within five seconds, otherwise end the process.

A signal only sets a flag.  The run checks the flag before each command to the server and while it waits for
another thread; then it releases the lease and ends.  A thread ends the process five seconds after the signal,
or at a second signal.  Nothing is lost by that: a run may be killed at any moment.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import get_ident, main_thread
from types import FrameType
from typing import TypeVar

from dedup_job.errors import Stopped
from dedup_job.start_threads_and_count_processors import start_thread

# Time for a run to release the lease and stop the workers.
GRACE_SECONDS = 5.0
# Interval of checking the flag while the main thread waits.
CHECK_SECONDS = 0.1

T = TypeVar("T")
Warn = Callable[[Stopped], object]


class ShutdownRequest:
    """The first signal received, if any."""

    def __init__(self) -> None:
        self._signum: int | None = None
        self._is_raised = False

    def set(self, signum: int, frame: FrameType | None = None) -> None:
        """Store a signal; a handler for `signal.signal`."""
        self._signum = self._signum or signum

    def check(self) -> None:
        """Raise Stopped if a signal was received.

        Raises:
            Stopped: Only in the main thread, and only once.
        """
        # Only once, because cleanup talks to the server too, and so checks the flag.
        # `current_thread()` would register a dummy for each thread that `start_thread` started.
        if self._signum is not None and not self._is_raised and get_ident() == main_thread().ident:
            self._is_raised = True
            raise Stopped(self._signum)

    def result(self, future: Future[T]) -> T:
        """Wait for a result, and check the flag while waiting.

        Raises:
            Stopped: As `check` does.
        """
        # A wait without timeout would not return at a signal: the handler only sets the flag.
        while not future.done():
            self.check()
            wait([future], CHECK_SECONDS)
        return future.result()


SHUTDOWN = ShutdownRequest()


def install_handlers(warn: Warn) -> None:
    """Install handlers that set the flag, and a thread that ends the process if the run does not.

    Args:
        warn: Called from that thread before it ends the process after the grace period.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    # Python writes each signal's number to this socket at once, even while the main thread is in C code and
    # its handlers cannot run.
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    start_thread(_end_process, reader, writer, warn)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, SHUTDOWN.set)


# `_writer` is passed only to keep it open: a closed one would end the wait for signals.
def _end_process(reader: socket.socket, _writer: socket.socket, warn: Warn) -> None:
    """Wait for a signal, then end the process at the second one or after the grace period."""
    first = Stopped(reader.recv(1)[0])
    reader.settimeout(GRACE_SECONDS)
    try:
        reader.recv(1)
    except TimeoutError:
        warn(first)
    # Not sys.exit, which would wait for the threads and workers that hang.
    os._exit(first.exit_code)
