"""When a signal is noticed, and by whom."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Timer

import pytest

from dedup_job import signals
from dedup_job.errors import Stopped
from dedup_job.mongo.connect_and_retry import RetryPolicy
from dedup_job.signals import ShutdownRequest
from tests.support.waiting import HANG_SECONDS


@pytest.fixture
def flag(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShutdownRequest]:
    """Give a flag of its own that SIGINT sets."""
    flag = ShutdownRequest()
    before = signal.signal(signal.SIGINT, flag.set)
    monkeypatch.setattr("dedup_job.mongo.connect_and_retry.SHUTDOWN", flag)
    yield flag
    signal.signal(signal.SIGINT, before)


def test_a_signal_breaks_nothing_off_by_itself(flag: ShutdownRequest) -> None:
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(Stopped, match="SIGINT"):
        flag.check()


def test_a_signal_is_raised_once(flag: ShutdownRequest) -> None:
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(Stopped):
        flag.check()
    signal.raise_signal(signal.SIGINT)  # a second one is for the watch
    flag.check()


def test_the_first_of_two_signals_is_told(flag: ShutdownRequest) -> None:
    flag.set(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(Stopped, match="SIGTERM"):
        flag.check()


def test_other_threads_go_on(flag: ShutdownRequest) -> None:
    flag.set(signal.SIGTERM)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(flag.check).result() is None
    with pytest.raises(Stopped):
        flag.check()


def test_nothing_is_sent_to_the_server_after_a_signal(flag: ShutdownRequest) -> None:
    sent = []
    flag.set(signal.SIGTERM)
    with pytest.raises(Stopped):
        RetryPolicy()(lambda: sent.append("first"))
    RetryPolicy()(lambda: sent.append("what gives the lease back"))
    assert sent == ["what gives the lease back"]


def test_waiting_for_a_thread_ends_at_a_signal(flag: ShutdownRequest) -> None:
    never: Future[None] = Future()
    Timer(0.05, signal.raise_signal, (signal.SIGINT,)).start()
    with pytest.raises(Stopped, match="SIGINT"):
        flag.result(never)


def test_a_result_that_is_there_is_given_though_a_signal_came(flag: ShutdownRequest) -> None:
    done: Future[int] = Future()
    done.set_result(7)
    flag.set(signal.SIGTERM)
    assert flag.result(done) == 7


def test_a_future_that_failed_raises_what_happened(flag: ShutdownRequest) -> None:
    failed: Future[int] = Future()
    failed.set_exception(KeyError("lost"))
    with pytest.raises(KeyError):
        flag.result(failed)


def test_a_result_is_waited_for(flag: ShutdownRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "CHECK_SECONDS", 0.01)
    may_end = Event()
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(lambda: may_end.wait(HANG_SECONDS) and "done")
        Timer(0.05, may_end.set).start()
        assert flag.result(coming) == "done"


LOADING = """
import os, signal, sys

class Interruption:
    def find_spec(self, name, *_):
        if name == "dedup_job.run_and_exit":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interruption())
from dedup_job.__main__ import main
main()
"""


def test_a_program_that_is_being_loaded_ends_at_sigint_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
