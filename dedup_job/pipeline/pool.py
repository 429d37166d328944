"""A pool of worker processes, each with its own pipe, so that a failed worker affects no other."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
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

from dedup_job.errors import NO_MEMORY, DedupError, StorageFull, is_shortage
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.pipeline import worker_tasks
from dedup_job.pipeline.fork_server import ensure_server
from dedup_job.pipeline.measure_and_limit_memory import cpu_seconds
from dedup_job.start_threads_and_count_processors import Threads, start_thread

# A busy worker that uses no processor time for this long is replaced.
STALL_SECONDS = 30.0
# Interval of the watchdog.
CHECK_SECONDS = 0.5
# Pause before a worker that died at its start is replaced.
PAUSE_SECONDS = 0.2
# Time limit for a killed process to end.
END_SECONDS = 5.0
# Workers that may die in a row as they start.
MOST_LOST = 3

# Signals that end a process because of its work.  The kernel sends SIGPROF when the processor time is used
# up; the others are crashes.  C++ and Rust also abort when they get no memory, but `check_room` in
# `worker_tasks` rules that out.  SIGKILL is not among them: it comes from the kernel when memory is short,
# or from the watchdog.
CAUSED_BY_WORK = (signal.SIGPROF, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
# The size of a part of a message, or the number of parts.
NUMBER = struct.Struct("<Q")

T = TypeVar("T")
Work = Callable[[Sequence[bytes]], T]


class WorkerLost(Exception):
    """A worker crashed, was killed, or got no memory.

    Attributes:
        is_caused_by_work: Whether the work may be the cause; otherwise something else on this machine is.
    """

    def __init__(self, is_caused_by_work: bool = False) -> None:
        super().__init__(is_caused_by_work)
        self.is_caused_by_work = is_caused_by_work


class Pool:
    """Worker processes for a recipe, which stay until `stop`."""

    def __init__(self, recipe: Recipe, workers: int, context: ForkServerContext) -> None:
        self._workers = [_Worker(context, recipe) for _ in range(workers)]
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._stopped = Event()
        # One thread per worker, which waits for its answer.
        self._threads = Threads(workers)
        try:
            start_thread(self._watch)
        except BaseException:
            self._threads.stop()
            raise
        for worker in self._workers:
            self._idle.put(worker)
            self._threads.submit(self._prepare)

    def submit(
        self,
        work: Work[T],
        raws: Sequence[bytes],
        seconds: float,
        *,
        is_fresh: bool = False,
        is_urgent: bool = False,
    ) -> Future[T]:
        """Send work to the next idle worker.

        Args:
            work: A function of a module, which the worker calls.
            raws: Raw records, its argument.
            seconds: Limit on the processor time.
            is_fresh: Whether to use a process that has done no work before.
            is_urgent: Whether it goes before the work that waits.

        Returns:
            A future of the result. It raises WorkerLost if the worker was lost, and DedupError if it failed.
        """
        submit = self._threads.submit_urgent if is_urgent else self._threads.submit
        return submit(self._ask, work, raws, seconds, is_fresh)

    def stop(self) -> None:
        """Kill the workers, busy or not, and cancel all waiting work."""
        self._stopped.set()
        self._threads.stop()
        for worker in self._workers:
            worker.stop()

    def _prepare(self) -> None:
        """Start a process before there is work for it; an error shows at the first work."""
        worker = self._idle.get()
        try:
            worker.prepare()
        finally:
            self._idle.put(worker)

    def _ask(self, work: Work[T], raws: Sequence[bytes], seconds: float, is_fresh: bool) -> T:
        worker = self._idle.get()
        try:
            answer: T = worker.ask((work, raws, seconds), is_fresh)
        except (WorkerLost, DedupError):
            raise
        except Exception as error:
            if is_shortage(error):
                raise StorageFull(NO_MEMORY) from error
            raise DedupError(
                f"the answer of a worker was lost: {type(error).__name__}; please report this bug"
            ) from error
        finally:
            self._idle.put(worker)
        if isinstance(answer, DedupError):
            raise answer
        return answer

    def _watch(self) -> None:
        while not self._stopped.wait(CHECK_SECONDS):
            for worker in self._workers:
                worker.kill_if_stalled()


class _Worker:
    """A worker process and the pipe to it; a lost process is replaced."""

    def __init__(self, context: ForkServerContext, recipe: Recipe) -> None:
        self._context, self._recipe = context, recipe
        self._process: BaseProcess | None = None
        self._is_stopped = self._is_ready = False
        # Two threads must not wait for the process at once: only the first would get its exit code.
        self._lock = Lock()
        self._talk: _Progress | None = None

    def ask(self, question: object, is_fresh: bool) -> Any:
        """Send a question, and return the answer.

        Args:
            question: The arguments of `_serve`'s loop: work, records and seconds.
            is_fresh: Whether to use a process that has done no work before.

        Raises:
            WorkerLost: If the process dies, or uses no processor time for too long.
            StorageFull: If several processes in a row die as they start.
        """
        if is_fresh:
            self._end()
        for _ in range(MOST_LOST):
            try:
                self.prepare()
                break
            except WorkerLost:
                # The fork server may be dying as well.
                time.sleep(PAUSE_SECONDS)
        else:
            raise StorageFull(
                f"the worker processes die as they start; if this user can run {sys.executable}, {NO_MEMORY}"
            )
        try:
            return self._exchange(question)
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Kill the process, and start no other; a waiting `ask` raises WorkerLost."""
        self._is_stopped = True
        with self._lock:
            self._kill_now()

    def kill_if_stalled(self) -> None:
        """Kill the process if it is busy and has used no processor time for too long."""
        talk, process = self._talk, self._process
        if talk and process and process.pid and talk.is_stalled(process.pid):
            with self._lock:
                # It may have answered since.
                if self._talk is talk:
                    self._kill_now()

    def prepare(self) -> None:
        """Start a process if there is none, and wait until it is ready.

        Raises:
            WorkerLost: If it cannot be started, or dies before it is ready.
        """
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
            self._exchange()
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
            ensure_server()
            process.start()
            # Now only the worker has this end, so its death closes the pipe.
            end.close()
        except (OSError, EOFError, TypeError) as error:
            # Too little memory, or the fork server is gone; a TypeError comes from multiprocessing while
            # another thread restarts that server.
            raise WorkerLost from error
        self._process, self._is_ready = process, False

    def _exchange(self, question: object = None) -> Any:
        """Send a question, if there is one, and wait for an answer, under the watchdog.

        A kill ends it wherever it waits.

        Raises:
            WorkerLost: If the pipe was closed.
        """
        self._talk = _Progress()
        try:
            if question is not None:
                send(self._pipe, question)
            return receive(self._pipe)
        except (OSError, EOFError):
            pass
        finally:
            with self._lock:
                self._talk = None
        raise WorkerLost(self._is_ended_by_work())

    def _is_ended_by_work(self) -> bool:
        """Return whether the process, whose pipe was closed, ended by a signal that its work may cause."""
        with self._lock:
            if self._process is None:
                return False
            self._process.join(END_SECONDS)
            # -n for signal n, and None if it still runs.
            return -(self._process.exitcode or 0) in CAUSED_BY_WORK

    def _kill_now(self) -> None:
        # The id of a process that has ended may belong to another process by now.
        if self._process and self._process.is_alive():
            self._process.kill()

    def _end(self) -> None:
        """Kill the process, and release its pipe and its exit code."""
        with self._lock:
            self._kill_now()
            process, self._process = self._process, None
        if process:
            self._pipe.close()
            process.join(END_SECONDS)
            # Raised if the process has not ended in time.
            with suppress(ValueError):
                process.close()


class _Progress:
    """Watches a process's processor time; without /proc, the wall clock decides alone."""

    def __init__(self) -> None:
        self._cpu: float | None = None
        self._since = time.monotonic()

    def is_stalled(self, pid: int) -> bool:
        """Return whether the process has used no processor time for too long."""
        cpu = cpu_seconds(pid)
        if cpu != self._cpu:
            self._cpu, self._since = cpu, time.monotonic()
        return time.monotonic() - self._since > STALL_SECONDS


def _serve(pipe: Connection, recipe: Recipe) -> None:
    """Run a worker: answer questions until the pipe is closed."""
    with suppress(OSError, EOFError):
        try:
            worker_tasks.begin(recipe)
            send(pipe, None)
            while True:
                work, raws, seconds = receive(pipe)
                # The kernel sends SIGPROF when this processor time is used up.
                signal.setitimer(signal.ITIMER_PROF, seconds)
                answer = _do_work(work, raws)
                signal.setitimer(signal.ITIMER_PROF, 0)
                send(pipe, answer)
        except Exception as error:
            if is_shortage(error):
                os._exit(StorageFull.exit_code)
            raise


def _do_work(work: Work[object], raws: Sequence[bytes]) -> object:
    try:
        return work(raws)
    except DedupError as error:
        return error
    except Exception as error:
        if is_shortage(error):
            raise
        return DedupError(f"a worker failed with {type(error).__name__}; please report this bug")


def send(pipe: Connection, value: object) -> None:
    """Send an object through the pipe between a process and its worker; arrays are copied once on each side.

    `Connection.send` and `recv` copy them four times.  Of a run's processor time that is a fortieth
    (`scripts.bench.end_to_end`).

    Raises:
        OSError: If the pipe is closed.
    """
    arrays: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    parts: list[bytes | memoryview] = [pickled, *(array.raw() for array in arrays)]
    _write(pipe, NUMBER.pack(len(parts)))
    for part in parts:
        _write(pipe, NUMBER.pack(len(part)))
        _write(pipe, part)


def receive(pipe: Connection) -> Any:
    """Wait for an object that `send` sends at the other end, and return it.

    Raises:
        OSError, EOFError: If the pipe is closed.
    """
    pickled, *arrays = [_read(pipe, _read_number(pipe)) for _ in range(_read_number(pipe))]
    return pickle.loads(pickled, buffers=arrays)


def _write(pipe: Connection, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(pipe.fileno(), rest) :]


def _read_number(pipe: Connection) -> int:
    number: int = NUMBER.unpack(_read(pipe, NUMBER.size))[0]
    return number


def _read(pipe: Connection, size: int) -> bytearray:
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        count = os.readv(pipe.fileno(), [rest])
        if not count:
            raise EOFError
        rest = rest[count:]
    return content
