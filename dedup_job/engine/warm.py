"""A head start: the process that workers are forked from loads their code while the parent loads its own."""

from __future__ import annotations

import shutil
import signal
from multiprocessing import context, forkserver, get_context, resource_tracker, util

PRELOAD = "dedup_job.engine.preload"

_is_warm = False


def warmed() -> context.ForkServerContext:
    """Return the context for worker processes, its server running; calling it again costs nothing.

    Signals are the parent's business, from the server's first moment on.
    """
    global _is_warm
    _is_warm = True
    server = get_context("forkserver")
    server.set_forkserver_preload([PRELOAD])
    resource_tracker.ensure_running()  # which touches the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return server


def cooled() -> None:
    """Remove the folder with the server's socket, before an exit that cleans nothing up."""
    if _is_warm:
        shutil.rmtree(util.get_temp_dir(), ignore_errors=True)
