"""An engine without processes, for tests that are not about workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import Any

from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.pipeline import fingerprint_workers, fork_server, worker_tasks
from dedup_job.pipeline.pool import Work


class InlinePool:
    """Does a pool's work immediately, in this process."""

    def __init__(self, recipe: Recipe, _workers: int, _context: object) -> None:
        vars(worker_tasks)["_fingerprinter"] = _fingerprinter(recipe)

    def submit(self, work: Work[Any], raws: Sequence[bytes], _seconds: float, **_: bool) -> Future[Any]:
        """Return a future with the result or the error."""
        future: Future[Any] = Future()
        try:
            future.set_result(work(raws))
        except Exception as error:
            future.set_exception(error)
        return future

    def stop(self) -> None:
        """No-op: there are no processes."""


def without_workers(put: Callable[[object, str, object], object]) -> None:
    """Make engines work in this process from now on; `put` is `setattr`, or the method of a monkeypatch."""
    put(fingerprint_workers, "Pool", InlinePool)
    for module in (fork_server, fingerprint_workers):
        put(module, "fork_server", lambda: None)


@lru_cache(maxsize=4)
def _fingerprinter(recipe: Recipe) -> Fingerprinter:
    return Fingerprinter(recipe)
