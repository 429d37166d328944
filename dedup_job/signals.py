"""SIGINT and SIGTERM: a run breaks off at once, and its process ends soon after; at a second signal, now."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from threading import Thread, current_thread, main_thread
from types import FrameType

from dedup_job.errors import Stopped

GRACE_SECONDS = 5.0  # for giving the lease back and stopping the workers
COMPILER = {"numba", "llvmlite"}

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

    That is what lies between `hold` and `let_go`, which may be nested; those of other threads count for
    nothing, because no signal is raised there.  And it is the compiler's own Python code: what machine code
    calls on its way back, to make a named tuple for one, or LLVM while it loads some.  The C code around it
    goes on with what it did not get, and the process crashes.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._is_closed = False
        self._came: int | None = None
        self.raised: Stopped | None = None

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

    def stop(self, signum: int, frame: FrameType | None = None) -> None:
        """Raise Stopped now, or as soon as nothing forbids it; once, for what comes then is the end."""
        caller = _compiler_caller(frame)
        self._came = signum if self._depth or caller else None
        if caller and not self._is_closed:
            caller.f_trace = self._returned
            sys.settrace(lambda *_: None)  # else no frame is traced
        elif not self._depth and not self._is_closed:
            self.close()
            self.raised = Stopped(signum)
            raise self.raised

    def _returned(self, frame: FrameType, *_: object) -> None:
        """Called when the compiler has returned, as a debugger would be."""
        sys.settrace(None)
        frame.f_trace = None
        if self._came is not None:
            self.stop(self._came, frame)


def _compiler_caller(frame: FrameType | None) -> FrameType | None:
    """Return the frame that called the compiler, when this one is of the compiler or was called by it."""
    caller = None
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in COMPILER:
            caller = frame.f_back
        frame = frame.f_back
    return caller


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
