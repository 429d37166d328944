"""Threads that have begun when the call returns, or an error that says that there is no memory for them.

`threading.Thread.start` waits for the new thread to say that it has begun.  One that dies before that, as it
gets no memory, leaves the starter waiting for ever; and an executor of `concurrent.futures` starts its
threads late, when a run already holds most of its memory.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, ParamSpec, TypeVar

from dedup_job.errors import NO_MEMORY, StorageFull

BEGIN_SECONDS = 30.0

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def start_thread(work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run work in a thread that ends with the process at the latest; raises StorageFull where none begins."""
    begun = Event()

    def run() -> None:
        begun.set()
        work(*args, **kwargs)

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as error:
        raise StorageFull(f"the system starts no more threads: {NO_MEMORY}") from error
    if not begun.wait(BEGIN_SECONDS):
        raise StorageFull(f"a thread does not begin: {NO_MEMORY}")


class Threads:
    """So many threads, all started at once, that take work in the order in which it comes."""

    def __init__(self, count: int) -> None:
        """Start them; raises StorageFull where that fails."""
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._count = count
        try:
            for _ in range(count):
                start_thread(self._run)
        except BaseException:
            self.stop()
            raise

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have the next thread that is free do the work; the future holds the result or the error."""
        future: Future[T] = Future()
        self._work.put((future, lambda: work(*args, **kwargs)))
        return future

    def map(self, work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        """Yield the results for all items, in order; the work on all of them is submitted first."""
        for future in [self.submit(work, item) for item in items]:
            yield future.result()

    def stop(self) -> None:
        """Cancel the work that no thread has begun, and let each thread end with what it does now."""
        try:
            while (waiting := self._work.get_nowait()) is not None:
                waiting[0].cancel()
        except Empty:
            pass
        for _ in range(self._count):
            self._work.put(None)

    def _run(self) -> None:
        while (waiting := self._work.get()) is not None:
            future, work = waiting
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:  # whoever waits for the result must learn of any error
                future.set_exception(error)
            del waiting, future, work  # else the last result stays in memory while the thread waits
