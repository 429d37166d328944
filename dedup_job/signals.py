"""SIGINT and SIGTERM: a flag that the work looks at, and a watch that ends what does not look.

The work looks before each command to the server and while it waits for another thread; it gives the lease
back and ends.  What hangs is ended five seconds after the signal, or at the second one: a run may be ended at
any moment, so nothing is lost by not waiting.
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
from dedup_job.threads import start_thread

GRACE_SECONDS = 5.0  # for giving the lease back and stopping the workers
LOOK_SECONDS = 0.1  # between two looks while the main thread waits

T = TypeVar("T")
Tell = Callable[[Stopped], object]


class Flag:
    """The signal that came, if one did."""

    def __init__(self) -> None:
        self._came: int | None = None
        self._is_raised = False

    def set(self, signum: int, frame: FrameType | None = None) -> None:
        """Note a signal; a handler for `signal.signal`."""
        self._came = self._came or signum

    def check(self) -> None:
        """Raise Stopped if a signal came: in the main thread, and once, for what cleans up looks too."""
        if self._came is not None and not self._is_raised and get_ident() == main_thread().ident:
            self._is_raised = True
            raise Stopped(self._came)

    def result(self, future: Future[T]) -> T:
        """Wait for a result, looking at the flag meanwhile."""
        while not future.done():
            self.check()
            wait([future], LOOK_SECONDS)
        return future.result()


FLAG = Flag()


def end_soon(tell: Tell) -> None:
    """Set the flag at a signal; where that does not end the process, end it.

    `tell` is called from another thread before the process is ended like that.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    start_thread(_watch, reader, writer, tell)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, FLAG.set)


def _watch(reader: socket.socket, _writer: socket.socket, tell: Tell) -> None:
    """End the process at the second signal, or a while after the first.  Holds both sockets open."""
    first = Stopped(reader.recv(1)[0])
    reader.settimeout(GRACE_SECONDS)
    try:
        reader.recv(1)
    except TimeoutError:
        tell(first)
    os._exit(first.exit_code)
