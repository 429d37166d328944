"""A pool of worker processes, each with a pipe of its own: what befalls one of them touches no other.

Pools whose workers share a pipe wait for ever when one is killed or stopped while it holds the pipe's lock
(pebble, issue 163; `concurrent.futures` alike), which the kernel does when memory is short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from threading import Timer
from typing import Any, TypeVar

from dedup_job.engine import worker
from dedup_job.errors import DedupError
from dedup_job.fingerprint.recipe import Recipe

BEGIN_SECONDS = 60.0  # a worker that is not ready by then is replaced
PAUSE_SECONDS = 0.2  # before another one is started
END_SECONDS = 1.0  # until a killed process is gone
MOST_LOST = 3  # processes in a row that were lost before they had anything to do

T = TypeVar("T")
Work = Callable[[Sequence[bytes]], T]


class WorkerLost(Exception):
    """A worker died over its work, or took too long and was killed."""


class Pool:
    """So many workers for a recipe; threads start their processes at once, which stay until `stop`."""

    def __init__(self, recipe: Recipe, workers: int, context: ForkServerContext) -> None:
        self._threads = ThreadPoolExecutor(workers, "worker")  # each talks to one worker at a time
        self._workers = [_Worker(context, recipe) for _ in range(workers)]
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        for one in self._workers:
            self._idle.put(one)
            self._threads.submit(self._prepare)

    def submit(self, work: Work[T], raws: Sequence[bytes], seconds: float) -> Future[T]:
        """Give records to the next idle worker, and no more than so many seconds to be done with them.

        The future raises WorkerLost for a worker that died or was too slow, DedupError for one that failed.
        """
        return self._threads.submit(self._ask, work, raws, seconds)

    def stop(self) -> None:
        """Kill the workers, whatever they are doing; what waits for them is cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in self._workers:
            one.stop()

    def _prepare(self) -> None:
        """Start a process before there is a question for it; the first question finds what went wrong."""
        prepared = self._idle.get()
        try:
            prepared.prepare()
        finally:
            self._idle.put(prepared)

    def _ask(self, work: Work[T], raws: Sequence[bytes], seconds: float) -> T:
        asked = self._idle.get()
        try:
            answer: T = asked.ask((work, raws), seconds)
        except (WorkerLost, DedupError):
            raise
        except Exception as error:
            raise DedupError(
                f"a worker's answer was lost: {type(error).__name__}; please report this"
            ) from error
        finally:
            self._idle.put(asked)
        if isinstance(answer, DedupError):
            raise answer
        return answer


class _Worker:
    """A process at the other end of a pipe; when it is lost, another one takes its place."""

    def __init__(self, context: ForkServerContext, recipe: Recipe) -> None:
        self._context, self._recipe = context, recipe
        self._process: BaseProcess | None = None
        self._is_stopped = self._is_ready = False

    def ask(self, question: object, seconds: float) -> Any:
        """Return the answer to a question; raise WorkerLost when there is none in time."""
        for _ in range(MOST_LOST):
            try:
                self.prepare()
                break
            except WorkerLost:
                time.sleep(PAUSE_SECONDS)  # what they are forked from may be dying as well
        else:
            raise DedupError("the workers die as soon as they start; is there enough memory?")
        try:
            return self._within(seconds, lambda: self._answer(question))
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Kill the process; whoever talks to it gets no answer, and nobody will any more."""
        self._is_stopped = True
        self._kill()

    def _start(self) -> None:
        try:
            self._pipe, end = self._context.Pipe()
            process = self._context.Process(
                target=_serve, args=(end, self._recipe), name="dedup-worker", daemon=True
            )
            process.start()
            end.close()  # the worker has the only one: its death is the end of the pipe
        except (OSError, EOFError) as error:  # no room for it, or nothing to fork it from
            raise WorkerLost from error
        except TypeError as error:  # so multiprocessing tells that another thread starts the server anew
            raise WorkerLost from error
        self._process, self._is_ready = process, False

    def prepare(self) -> None:
        """Have a process that waits for a question; raises WorkerLost where there is none."""
        try:
            self._begin()
        except WorkerLost:
            self._end()
            raise

    def _begin(self) -> None:
        if self._process is None and not self._is_stopped:
            self._start()
        if self._is_stopped:
            raise WorkerLost
        if not self._is_ready:
            self._within(BEGIN_SECONDS, self._pipe.recv)
            self._is_ready = True
        if self._process and not self._process.is_alive():
            raise WorkerLost

    def _answer(self, question: object) -> Any:
        self._pipe.send(question)
        return self._pipe.recv()

    def _within(self, seconds: float, talk: Callable[[], Any]) -> Any:
        """Talk to the process; killing it when the time is over ends the talk, wherever it got stuck."""
        timer = Timer(seconds, self._kill)
        timer.daemon = True
        timer.start()
        try:
            return talk()
        except (OSError, EOFError):
            pass
        finally:
            timer.cancel()
        raise WorkerLost

    def _kill(self) -> None:
        process = self._process
        with suppress(ValueError):  # it is closed
            if process and process.is_alive():  # else its number may be another's by now
                process.kill()

    def _end(self) -> None:
        """Let nothing remain of a process."""
        self._kill()
        process, self._process = self._process, None
        if process:
            self._pipe.close()
            process.join(END_SECONDS)
            with suppress(ValueError):  # still there
                process.close()


def _serve(pipe: Connection, recipe: Recipe) -> None:
    """Be a worker: answer until nobody asks any more."""
    worker.begin(recipe)
    try:
        pipe.send(None)
        while True:
            work, raws = pipe.recv()
            pipe.send(_answered(work, raws))
    except (OSError, EOFError):
        pass


def _answered(work: Work[object], raws: Sequence[bytes]) -> object:
    try:
        return work(raws)
    except DedupError as error:
        return error
    except Exception as error:
        return DedupError(f"a worker failed with {type(error).__name__}; please report this")
