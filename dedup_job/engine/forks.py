"""Where workers come from: a process that has loaded what they need, and is forked for each."""

from __future__ import annotations

import signal
from multiprocessing import context, forkserver, get_context, resource_tracker

PRELOAD = "dedup_job.engine.preload"


def fork_server() -> context.ForkServerContext:
    """Return the context for worker processes, its server running.

    Signals are the parent's business, from the server's first moment on.
    """
    server = get_context("forkserver")
    server.set_forkserver_preload([PRELOAD])
    resource_tracker.ensure_running()  # which touches the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return server
