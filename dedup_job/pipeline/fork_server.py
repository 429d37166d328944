"""The process that worker processes are forked from."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
from contextlib import suppress
from multiprocessing import context, forkserver, get_context, resource_tracker
from pathlib import Path

from dedup_job.errors import ConfigError

PRELOAD = "dedup_job.pipeline.worker_preload"
PR_SET_PDEATHSIG = 1
LOAD = Path("/proc/loadavg")


def fork_server() -> context.ForkServerContext:
    """Return the context for worker processes, its server running.

    Signals are the parent's business, from the server's first moment on.  Raises ConfigError where its socket
    has no room in the temporary directory's name.
    """
    server = get_context("forkserver")
    server.set_forkserver_preload([PRELOAD])
    resource_tracker.ensure_running()  # which touches the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        forkserver.ensure_running()
    except FileNotFoundError:
        # The fork server is started in the current directory.
        raise ConfigError(
            "the current directory does not exist any more; change to another directory and run again"
        ) from None
    except OSError as error:
        if "AF_UNIX path too long" not in str(error):
            raise
        raise ConfigError(
            f"the name of the temporary directory is too long for the workers' socket, which is made in it: "
            f"{tempfile.gettempdir()}; set TMPDIR to one of at most 70 characters, such as /tmp"
        ) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return server


def has_spare_processor() -> bool:
    """Return whether no process waits for a processor just now; True where the system does not tell."""
    with suppress(OSError, IndexError, ValueError):
        running = int(LOAD.read_text().split()[3].partition("/")[0])  # this one among them
        return running <= (os.cpu_count() or 1)
    return True


def end_with_parent() -> None:
    """Let the kernel kill this process when the thread that made it ends, whatever it is doing then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
