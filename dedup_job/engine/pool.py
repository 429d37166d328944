"""A pool of worker processes, each with a pipe of its own: what befalls one of them touches no other.

Pools whose workers share a pipe wait for ever when one is killed or stopped while it holds the pipe's lock
(pebble, issue 163; `concurrent.futures` alike), which the kernel does when memory is short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from queue import SimpleQueue
from threading import Lock, Timer
from typing import Any, TypeVar

from dedup_job.engine import worker
from dedup_job.errors import DedupError
from dedup_job.fingerprint.recipe import Recipe

BEGIN_SECONDS = 60.0  # a worker that is not ready by then is replaced
MOST_LOST = 3  # workers in a row that were lost before they had anything to do

T = TypeVar("T")
Work = Callable[[Sequence[bytes]], T]


class Lost(Exception):
    """A worker died over its work, or took too long and was killed."""


class Pool:
    """So many workers for a recipe; they are there from the start, and stay until `stop`."""

    def __init__(self, recipe: Recipe, workers: int, context: ForkServerContext) -> None:
        self._recipe, self._context = recipe, context
        self._threads = ThreadPoolExecutor(workers, "worker")
        self._lock = Lock()  # for the next two
        self._is_stopped = False
        self._all: set[_Worker] = set()
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(workers):
            self._idle.put(self._new())

    def submit(self, work: Work[T], raws: Sequence[bytes], seconds: float) -> Future[T]:
        """Give records to the next idle worker, and no more than so many seconds to be done with them.

        The future raises Lost for a worker that died or was too slow, DedupError for one that failed.
        """
        return self._threads.submit(self._ask, work, raws, seconds)

    def stop(self) -> None:
        """Kill the workers, whatever they are doing; futures that wait are cancelled."""
        with self._lock:
            self._is_stopped = True
            for worker_ in self._all:
                worker_.kill()
        self._threads.shutdown(cancel_futures=True)

    def _ask(self, work: Work[T], raws: Sequence[bytes], seconds: float) -> T:
        asked = self._ready()
        try:
            answer: T = asked.ask((work, raws), seconds)
        except Lost:
            self._idle.put(self._instead_of(asked))
            raise
        self._idle.put(asked)
        if isinstance(answer, DedupError):
            raise answer
        return answer

    def _ready(self) -> _Worker:
        """Return an idle worker that has begun; one that was lost in the meantime has done no harm."""
        next_ = self._idle.get()
        for _ in range(MOST_LOST):
            try:
                next_.begin()
            except Lost:
                next_ = self._instead_of(next_)
            else:
                return next_
        self._idle.put(next_)
        raise DedupError("the workers die as soon as they start; is there memory enough?")

    def _instead_of(self, lost: _Worker) -> _Worker:
        with self._lock:
            self._all.discard(lost)
            lost.kill()
            return lost if self._is_stopped else self._new()

    def _new(self) -> _Worker:
        new = _Worker(self._context, self._recipe)
        self._all.add(new)
        return new


class _Worker:
    """A process at the other end of a pipe."""

    def __init__(self, context: ForkServerContext, recipe: Recipe) -> None:
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end, recipe), name="dedup-worker", daemon=True)
        self._process.start()
        end.close()  # the worker has the only one: its death is the end of the pipe
        self._has_begun = False

    def begin(self) -> None:
        """Wait until the worker is ready; raise Lost for one that is not to be had."""
        if not self._has_begun:
            self._within(BEGIN_SECONDS, self._pipe.recv)
            self._has_begun = True
        if not self._process.is_alive():
            raise Lost

    def ask(self, question: object, seconds: float) -> Any:
        """Return the answer to a question; raise Lost when there is none in time."""

        def exchanged() -> Any:
            self._pipe.send(question)
            return self._pipe.recv()

        return self._within(seconds, exchanged)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def _within(self, seconds: float, exchange: Callable[[], Any]) -> Any:
        """Talk to the worker; killing it when the time is over ends the talk, wherever it got stuck."""
        timer = Timer(seconds, self.kill)
        timer.daemon = True
        timer.start()
        try:
            return exchange()
        except (OSError, EOFError) as error:
            raise Lost from error
        finally:
            timer.cancel()


def _serve(pipe: Connection, recipe: Recipe) -> None:
    """Be a worker: answer until nobody asks any more."""
    worker.begin(recipe)
    try:
        pipe.send(None)
        while True:
            work, raws = pipe.recv()
            pipe.send(_answer(work, raws))
    except (OSError, EOFError):
        pass


def _answer(work: Work[object], raws: Sequence[bytes]) -> object:
    try:
        return work(raws)
    except DedupError as error:
        return error
    except Exception as error:
        return DedupError(f"a worker failed with {type(error).__name__}; please report this")
