"""A head start: the process that workers are forked from loads their code while the parent loads its own."""

from __future__ import annotations

from multiprocessing import context, forkserver, get_context

PRELOAD = "dedup_job.engine.preload"


def warmed() -> context.ForkServerContext:
    """Return the context for worker processes, its server running; calling it again costs nothing."""
    server = get_context("forkserver")
    server.set_forkserver_preload([PRELOAD])
    forkserver.ensure_running()
    return server
