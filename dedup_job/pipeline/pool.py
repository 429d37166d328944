"""A pool of worker processes, each with its own pipe, so that one failure affects no other worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any, TypeVar

from dedup_job.background_threads import Threads, start_thread
from dedup_job.errors import NO_MEMORY, DedupError, StorageFull, is_shortage
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.pipeline import worker_process
from dedup_job.pipeline.process_memory import cpu_seconds

STILL_SECONDS = 30.0  # a worker that gets no processor time for so long is replaced
LOOK_SECONDS = 0.5  # between two looks of the watchdog
PAUSE_SECONDS = 0.2  # before another one is started
END_SECONDS = 5.0  # until a killed process is gone
MOST_LOST = 3  # processes in a row that were lost before they had anything to do

# Ends of a process that its work may have caused.  SIGPROF comes when its processor time is used up; the
# others are crashes.  C++ and Rust abort, too, where they get no memory, which `worker.check_room` rules out.
# SIGKILL is the kernel's, when memory is short, or the watchdog's.
CAUSED_BY_WORK = frozenset(
    -one
    for one in (
        signal.SIGPROF,
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
    )
)

T = TypeVar("T")
Work = Callable[[Sequence[bytes]], T]


class WorkerLost(Exception):
    """A worker died over its work, was killed, or got no memory.

    is_of_work  whether the work may be the cause: else something else on this machine is
    """

    def __init__(self, is_of_work: bool = False) -> None:
        super().__init__(is_of_work)
        self.is_of_work = is_of_work


class Pool:
    """So many workers for a recipe, whose processes stay until `stop`."""

    def __init__(self, recipe: Recipe, workers: int, context: ForkServerContext) -> None:
        self._workers = [_Worker(context, recipe) for _ in range(workers)]
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._stopped = Event()
        self._threads = Threads(workers)  # each talks to one worker at a time
        try:
            start_thread(self._watch)
        except BaseException:
            self._threads.stop()
            raise
        for one in self._workers:
            self._idle.put(one)
            self._threads.submit(self._prepare)

    def submit(
        self, work: Work[T], raws: Sequence[bytes], seconds: float, is_fresh: bool = False
    ) -> Future[T]:
        """Give records to the next idle worker, and no more than so much processor time.

        is_fresh  whether a process takes them that has done nothing before

        The future raises WorkerLost for a worker that was lost, DedupError for one that failed.
        """
        return self._threads.submit(self._ask, work, raws, seconds, is_fresh)

    def stop(self) -> None:
        """Kill the workers, whatever they are doing; what waits for them is cancelled."""
        self._stopped.set()
        self._threads.stop()
        for one in self._workers:
            one.stop()

    def _prepare(self) -> None:
        """Start a process before there is a question for it; the first question finds what went wrong."""
        prepared = self._idle.get()
        try:
            prepared.prepare()
        finally:
            self._idle.put(prepared)

    def _ask(self, work: Work[T], raws: Sequence[bytes], seconds: float, is_fresh: bool) -> T:
        asked = self._idle.get()
        try:
            answer: T = asked.ask((work, raws, seconds), is_fresh)
        except (WorkerLost, DedupError):
            raise
        except Exception as error:
            if is_shortage(error):
                raise StorageFull(NO_MEMORY) from error
            raise DedupError(
                f"a worker's answer was lost: {type(error).__name__}; please report this"
            ) from error
        finally:
            self._idle.put(asked)
        if isinstance(answer, DedupError):
            raise answer
        return answer

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            for one in self._workers:
                one.kill_if_still()


class _Worker:
    """A process at the other end of a pipe; when it is lost, another one takes its place."""

    def __init__(self, context: ForkServerContext, recipe: Recipe) -> None:
        self._context, self._recipe = context, recipe
        self._process: BaseProcess | None = None
        self._is_stopped = self._is_ready = False
        self._lock = Lock()  # of the process's end: two that ask how it ended would get half an answer each
        self._talk: _Progress | None = None

    def ask(self, question: object, is_fresh: bool) -> Any:
        """Return the answer to a question; raise WorkerLost when the process dies over it or stands still.

        is_fresh  whether to ask a process that has done nothing before
        """
        if is_fresh:
            self._end()
        for _ in range(MOST_LOST):
            try:
                self.prepare()
                break
            except WorkerLost:
                time.sleep(PAUSE_SECONDS)  # what they are forked from may be dying as well
        else:
            raise StorageFull(f"the workers die as soon as they start; probably {NO_MEMORY}")
        try:
            return self._within(lambda: self._answer(question))
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Kill the process; whoever talks to it gets no answer, and nobody will any more."""
        self._is_stopped = True
        self._kill()

    def kill_if_still(self) -> None:
        """Kill a process that somebody talks to and that has done nothing for too long."""
        talk, process = self._talk, self._process
        if talk and process and process.pid and talk.is_still(process.pid):
            with self._lock:
                if self._talk is talk:  # else it has answered in this moment
                    self._kill_now()

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
            self._within(self._pipe.recv)
            self._is_ready = True
        with self._lock:
            if self._process and not self._process.is_alive():
                raise WorkerLost

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

    def _answer(self, question: object) -> Any:
        self._pipe.send(question)
        return self._pipe.recv()

    def _within(self, talk: Callable[[], Any]) -> Any:
        """Talk to the process under the watchdog's eyes: a kill ends the talk, wherever it got stuck."""
        self._talk = _Progress()
        try:
            return talk()
        except (OSError, EOFError):
            pass
        finally:
            with self._lock:
                self._talk = None
        raise WorkerLost(self._exit_code() in CAUSED_BY_WORK)

    def _exit_code(self) -> int | None:
        """Return how a process ended whose pipe has ended: its code, or -n for signal n."""
        with self._lock:
            if self._process is None:
                return None
            self._process.join(END_SECONDS)
            return self._process.exitcode

    def _kill(self) -> None:
        with self._lock:
            self._kill_now()

    def _kill_now(self) -> None:
        if self._process and self._process.is_alive():  # else its number may be another's by now
            self._process.kill()

    def _end(self) -> None:
        """Let nothing remain of a process."""
        with self._lock:
            self._kill_now()
            process, self._process = self._process, None
        if process:
            self._pipe.close()
            process.join(END_SECONDS)
            with suppress(ValueError):  # still there
                process.close()


class _Progress:
    """Whether a process gets on: by the processor time that it takes, or by the clock where nobody tells."""

    def __init__(self) -> None:
        self._cpu: float | None = None
        self._since = time.monotonic()

    def is_still(self, pid: int) -> bool:
        """Return whether the process has taken no processor time for too long."""
        cpu = cpu_seconds(pid)
        if cpu != self._cpu:
            self._cpu, self._since = cpu, time.monotonic()
        return time.monotonic() - self._since > STILL_SECONDS


def _serve(pipe: Connection, recipe: Recipe) -> None:
    """Be a worker: answer until nobody asks any more."""
    with suppress(OSError, EOFError):
        try:
            worker_process.begin(recipe)
            pipe.send(None)
            while True:
                work, raws, seconds = pipe.recv()
                signal.setitimer(signal.ITIMER_PROF, seconds)  # at its end the kernel sends SIGPROF
                answer = _answered(work, raws)
                signal.setitimer(signal.ITIMER_PROF, 0)
                pipe.send(answer)
        except Exception as error:
            if is_shortage(error):
                os._exit(StorageFull.exit_code)
            raise


def _answered(work: Work[object], raws: Sequence[bytes]) -> object:
    try:
        return work(raws)
    except DedupError as error:
        return error
    except Exception as error:
        if is_shortage(error):
            raise
        return DedupError(f"a worker failed with {type(error).__name__}; please report this")
