"""SIGINT and SIGTERM: a run breaks off at once, and its process ends soon after; at a second signal, now."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from threading import Thread, current_thread, main_thread
from types import FrameType

from dedup_job.errors import Stopped

GRACE_SECONDS = 5.0  # for giving the lease back and stopping the workers

Tell = Callable[[Stopped], object]


def end_soon(tell: Tell) -> None:
    """Raise Stopped in the main thread at a signal; where that does not end the process, end it.

    An exception may be swallowed where the interpreter cannot raise one, and cleaning up may wait for a
    server that is gone.  A run may be ended at any moment, so nothing is lost by not waiting.  `tell` is
    called from another thread before the process is ended like that.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    Thread(target=_watch, args=(reader, writer, tell), name="signals", daemon=True).start()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, SHIELD.stop)


class Shield:
    """What the main thread must not be broken off in: a signal that comes meanwhile is raised at its end.

    Holds may be nested; those of other threads count for nothing, because no signal is raised there.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._is_closed = False
        self._came: int | None = None

    def hold(self) -> None:
        """Begin what must not be broken off."""
        if current_thread() is main_thread():
            self._depth += 1

    def let_go(self) -> None:
        """End it; raise Stopped for the signal that came meanwhile."""
        if current_thread() is main_thread():
            self._depth -= 1
            if self._came is not None:
                self.stop(self._came)

    def close(self) -> None:
        """Let nothing be raised any more."""
        self._is_closed = True

    def stop(self, signum: int, _: FrameType | None = None) -> None:
        """Raise Stopped now, or as soon as nothing forbids it; once, for what comes then is the end."""
        self._came = signum if self._depth else None
        if not self._depth and not self._is_closed:
            self.close()
            raise Stopped(signum)


SHIELD = Shield()


def _watch(reader: socket.socket, _writer: socket.socket, tell: Tell) -> None:
    """End the process at the second signal, or a while after the first.  Holds both sockets open."""
    first = Stopped(reader.recv(1)[0])
    reader.settimeout(GRACE_SECONDS)
    try:
        reader.recv(1)
    except TimeoutError:
        tell(first)
    os._exit(first.exit_code)
