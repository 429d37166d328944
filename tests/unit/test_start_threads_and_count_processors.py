from __future__ import annotations

import _thread
import subprocess
import sys
from concurrent.futures import CancelledError
from threading import Event, get_ident

import pytest

from dedup_job import start_threads_and_count_processors
from dedup_job.errors import StorageFull
from dedup_job.start_threads_and_count_processors import Threads, start_thread


def test_work_is_done_in_order_by_threads_that_were_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Threads(1)
    monkeypatch.setattr(_thread, "start_new_thread", None)
    done: list[int] = []
    for future in [workers.submit(done.append, number) for number in range(9)]:
        assert future.result() is None
    assert done == list(range(9))
    assert workers.submit(get_ident).result() != get_ident()
    assert list(workers.map(abs, [-2, 1, -3])) == [2, 1, 3]
    workers.stop()


def test_an_error_reaches_whoever_waits_and_the_thread_goes_on() -> None:
    workers = Threads(1)
    with pytest.raises(ZeroDivisionError):
        workers.submit(lambda: 1 // 0).result()
    assert workers.submit(abs, -1).result() == 1
    workers.stop()


def test_work_that_has_not_begun_when_the_threads_are_stopped_is_cancelled() -> None:
    workers, begun, go_on = Threads(1), Event(), Event()
    first = workers.submit(lambda: (begun.set(), go_on.wait())[1])
    second = workers.submit(abs, -1)
    begun.wait()
    workers.stop()
    go_on.set()
    assert first.result()
    with pytest.raises(CancelledError):
        second.result()


def test_urgent_work_goes_before_the_work_that_waits_in_the_order_of_submission() -> None:
    workers, begun, go_on = Threads(1), Event(), Event()
    done: list[int] = []
    workers.submit(lambda: (begun.set(), go_on.wait()))
    begun.wait()
    waiting = [workers.submit(done.append, number) for number in (3, 4)]
    urgent = [workers.submit_urgent(done.append, number) for number in (1, 2)]
    go_on.set()
    for future in urgent + waiting:
        future.result()
    assert done == [1, 2, 3, 4]
    workers.stop()


def test_a_thread_that_dies_before_it_begins_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", lambda run, arguments: 1)
    monkeypatch.setattr(start_threads_and_count_processors, "LOOK_SECONDS", 0.0001)
    with pytest.raises(StorageFull, match=r"did not start within .* seconds: there is not enough memory"):
        start_thread(abs, -1)


PAUSED = """
import _thread, os, signal, subprocess, sys, time
from threading import Event
from dedup_job import start_threads_and_count_processors
start_threads_and_count_processors.LOOKS = 20
start_new_thread = _thread.start_new_thread
go_on = f"sleep 3; kill -CONT {os.getpid()}"

def late(run, arguments):
    subprocess.Popen(["sh", "-c", go_on])
    start_new_thread(lambda: (time.sleep(0.3), run()), ())
    os.kill(os.getpid(), signal.SIGSTOP)

_thread.start_new_thread = late
start_threads_and_count_processors.start_thread(print, "started")
"""


def test_a_process_that_is_paused_as_it_starts_a_thread_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", PAUSED], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_system_that_starts_no_more_threads_is_short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    with pytest.raises(StorageFull, match=r"too many processes \(ulimit -u\), or there is not"):
        Threads(2)
