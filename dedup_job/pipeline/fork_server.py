"""Start the fork server, the process that worker processes are forked from."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import tempfile
from contextlib import ExitStack, suppress
from multiprocessing import context, forkserver, get_context, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING

from dedup_job.errors import ConfigError

if TYPE_CHECKING:
    from dedup_job.config import Settings

PRELOAD = "dedup_job.pipeline.worker_preload"
# From <sys/prctl.h>.
PR_SET_PDEATHSIG = 1
LOAD = Path("/proc/loadavg")
STDERR = 2

log = logging.getLogger("dedup_job")


def fork_server() -> context.ForkServerContext:
    """Start the fork server, and return the context that creates worker processes.

    Raises:
        ConfigError: If the current directory is gone or closed to this user, or the path of the server's
            socket would be too long.
    """
    _check_current_directory()
    server = get_context("forkserver")
    server.set_forkserver_preload([PRELOAD])
    try:
        ensure_server()
    except OSError as error:
        if "AF_UNIX path too long" not in str(error):
            raise
        raise ConfigError(
            f"the path of the temporary directory is too long for the workers' socket: "
            f"{tempfile.gettempdir()}; set TMPDIR to a path of at most 70 characters, such as /tmp"
        ) from None
    return server


def ensure_server() -> None:
    """Start the fork server if it does not run; without stderr, unless debug lines are logged.

    Without memory, Python and the libraries print tracebacks as they start.  The pool says what happened.
    """
    with ExitStack() as after:
        if not log.isEnabledFor(logging.DEBUG):
            # No line of another thread gets lost.
            for handler in log.handlers:
                handler.acquire()
                after.callback(handler.release)
            own = os.dup(STDERR)
            after.callback(os.close, own)
            null = os.open(os.devnull, os.O_WRONLY)
            after.callback(os.close, null)
            after.callback(os.dup2, own, STDERR)
            os.dup2(null, STDERR)
        # First, because it changes the signal mask.
        resource_tracker.ensure_running()
        # The server inherits the mask, so a signal at its start cannot end it; the parent handles signals.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        after.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        forkserver.ensure_running()


def _check_current_directory() -> None:
    """Raise ConfigError unless the workers can change to this directory, as they do when they start."""
    try:
        os.chdir(os.getcwd())
    except FileNotFoundError:
        raise ConfigError(
            "the current directory no longer exists; change to another directory and run again"
        ) from None
    except PermissionError:
        raise ConfigError(
            "this user may not enter the current directory; change to another directory (cd /) and run again"
        ) from None


def preload_workers(settings: Settings) -> None:
    """Start the fork server early, so that it loads its code while this process loads its own.

    Each takes about a second.  An error is ignored here: it is reported when workers are needed.
    """
    # With all processors busy nothing is gained, and a run that must give way to another would end later.
    if settings.engine.kind == "local" and has_spare_processor():
        with suppress(ConfigError, OSError):
            fork_server()


def has_spare_processor() -> bool:
    """Return whether no process waits for a processor right now; True if the system does not say."""
    with suppress(OSError, IndexError, ValueError):
        # Includes this process.
        running = int(LOAD.read_text().split()[3].partition("/")[0])
        return running <= (os.cpu_count() or 1)
    return True


def end_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that created it ends (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
