"""When a signal is raised, and what it must not break off."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dedup_job import __main__, signals
from dedup_job.errors import Stopped
from dedup_job.signals import Shield

BROKEN_OFF = """
import os
import signal
import threading
import time

import numpy as np

from dedup_job import __main__, signals
from dedup_job.errors import Stopped
from dedup_job.match.judge import Near, Own, Rows, judge
from dedup_job.match.similarity import Sets
from dedup_job.signals import Shield

n = 20_000
none, zeros, shingles = np.zeros(0, np.int64), np.zeros(n + 1, np.int64), np.zeros(0, np.uint32)
batch = (
    Rows(np.arange(n), np.ones(n, np.bool_)),
    Near(zeros, none, none, np.zeros(0)),
    Own(np.arange(n), Sets(zeros, shingles)),
    np.zeros(n, np.bool_),
    0.7,
)
judge(*batch)
for moment in range(50):
    signal.signal(signal.SIGINT, Shield().stop)
    try:
        threading.Timer(0.0001 * moment, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            judge(*batch)
    except Stopped:
        pass
"""


@pytest.fixture
def shield() -> Iterator[Shield]:
    """Give a shield that stands before SIGINT."""
    shield = Shield()
    before = signal.signal(signal.SIGINT, shield.stop)
    yield shield
    signal.signal(signal.SIGINT, before)


def test_a_signal_is_raised_at_once_and_once(shield: Shield) -> None:
    with pytest.raises(Stopped, match="SIGINT"):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)  # a second one is for who watches


def test_a_signal_waits_for_what_is_held_as_often_as_it_is(shield: Shield) -> None:
    shield.hold()
    shield.hold()
    signal.raise_signal(signal.SIGINT)
    shield.let_go()
    with pytest.raises(Stopped, match="SIGINT"):
        shield.let_go()


def test_a_signal_waits_for_the_compiler_and_for_what_it_calls(shield: Shield) -> None:
    done = []

    def called() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("called")

    def work() -> None:
        compiler["compile_"]()
        done.append("on")

    compiler: dict[str, Any] = {"__name__": "numba.core", "called": called, "done": done}
    exec("def compile_():\n called()\n done.append('compiled')", compiler)
    with pytest.raises(Stopped, match="SIGINT"):
        work()
    assert done == ["called", "compiled"]
    assert sys.gettrace() is None


def test_a_signal_waits_for_both(shield: Shield) -> None:
    done = []

    def work() -> None:
        shield.hold()
        compiler["compile_"]()
        done.append("held")
        shield.let_go()
        done.append("on")

    compiler: dict[str, Any] = {"__name__": "llvmlite", "signal": signal}
    exec("def compile_(): signal.raise_signal(signal.SIGINT)", compiler)
    with pytest.raises(Stopped, match="SIGINT"):
        work()
    assert done == ["held"]


def test_nothing_is_raised_after_the_end(shield: Shield) -> None:
    shield.hold()
    signal.raise_signal(signal.SIGINT)
    shield.close()
    shield.let_go()
    signal.raise_signal(signal.SIGINT)


def test_an_error_that_others_make_of_a_signal_is_one_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Python 3.12, whatever `__set_name__` raises becomes a RuntimeError."""

    class Descriptor:
        def __set_name__(self, *_: object) -> None:
            signals.SHIELD.stop(signal.SIGTERM)

    def imported(standalone_mode: bool) -> None:
        class Described:
            descriptor = Descriptor()

    monkeypatch.setattr(signals, "SHIELD", Shield())
    monkeypatch.setattr(__main__, "commands", imported)
    with pytest.raises(Stopped, match="SIGTERM"):
        __main__._run()


def test_machine_code_that_returns_a_named_tuple_survives_every_signal() -> None:
    """What makes the tuple is Python code, and numba does not look whether it came back with one."""
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_OFF],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
