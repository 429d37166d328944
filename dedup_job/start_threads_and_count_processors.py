"""Start threads, or fail with a clear error when memory is short; how many processors there are for them.

`threading.Thread.start` waits until the new thread has started.  If the thread dies before, because it gets
no memory, that wait never ends.  An executor of `concurrent.futures` also starts its threads late, when a run
already uses most of its memory.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import count
from queue import Empty, PriorityQueue
from threading import Event
from typing import Any, ParamSpec, TypeAlias, TypeVar

from dedup_job.errors import NO_MEMORY, StorageFull

# Looks at a thread that has not started yet, and seconds between them.
LOOKS, LOOK_SECONDS = 300, 0.1
# Ranks of work: the lower one comes first.
URGENT, ORDINARY = 0, 1

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_Work: TypeAlias = tuple[Future[Any], Callable[[], Any]]


def count_processors() -> int:
    """Return the number of processors that this process may use: a container can be limited to some."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_thread(work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run work in a daemon thread, and return when the thread has started.

    Raises:
        StorageFull: If the thread does not start.
    """
    begun = Event()

    def run() -> None:
        begun.set()
        work(*args, **kwargs)

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as error:
        raise StorageFull(
            f"the system refuses to start a thread: there are too many processes (ulimit -u), or {NO_MEMORY}"
        ) from error
    # Not one long wait: it would be over when a paused process wakes, before the thread could start.
    if not any(begun.wait(LOOK_SECONDS) for _ in range(LOOKS)):
        raise StorageFull(f"a thread did not start within {LOOKS * LOOK_SECONDS:g} seconds: {NO_MEMORY}")


class Threads:
    """A pool of daemon threads that are all started at once.

    They do urgent work first, and work of the same urgency in the order of submission.
    """

    def __init__(self, threads: int) -> None:
        """Start this number of threads.

        Raises:
            StorageFull: If a thread does not start.
        """
        # Urgency, number of the work, and the work itself; the numbers keep work from being compared.
        self._work: PriorityQueue[tuple[int, int, _Work | None]] = PriorityQueue()
        self._numbers = count()
        self._count = threads
        try:
            for _ in range(threads):
                start_thread(self._run)
        except BaseException:
            self.stop()
            raise

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue work for the next free thread; return a future of its result."""
        return self._put(ORDINARY, lambda: work(*args, **kwargs))

    def submit_urgent(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue work before all that is not urgent; return a future of its result."""
        return self._put(URGENT, lambda: work(*args, **kwargs))

    def _put(self, urgency: int, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._work.put((urgency, next(self._numbers), (future, work)))
        return future

    def map(self, work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        """Yield the results for all items, in order; the work on all of them is submitted first."""
        for future in [self.submit(work, item) for item in items]:
            yield future.result()

    def stop(self) -> None:
        """Cancel waiting work; each thread ends after its current work."""
        try:
            while (waiting := self._work.get_nowait()[-1]) is not None:
                waiting[0].cancel()
        except Empty:
            pass
        for _ in range(self._count):
            self._work.put((ORDINARY, next(self._numbers), None))

    def _run(self) -> None:
        while (waiting := self._work.get()[-1]) is not None:
            future, work = waiting
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:
                # The caller that waits for the result must get every error.
                future.set_exception(error)
            # Otherwise the last result stays in memory while the thread waits.
            del waiting, future, work
