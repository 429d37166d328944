"""A signal ends a run, whatever it is doing, and no process stays behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pymongo import MongoClient

from scripts.bench.corpus import generate
from scripts.dev.local_mongod import LocalMongod
from tests.support.job import ROOT, Job
from tests.support.waiting import HANG_SECONDS, becomes

HOUR = 3600.0  # no test waits for what lasts as long
TIME = re.compile(r"^\d{4}-\S+ \S+ ")
LINE = "dedup-job: stopped by {}; it is safe to run again\n"


@pytest.fixture(autouse=True)
def _hangups_are_not_ignored() -> Iterator[None]:
    """Let runs end at SIGHUP also where `nohup` started the tests: a child ignores what its parent does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@contextmanager
def halted(job: Job, number: int, grace: str = "5") -> Iterator[subprocess.Popen[str]]:
    """Give a backfill that is about to send its n-th command."""
    with started(job, "-m", "tests.support.halt_at_command", str(number), grace) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process


@contextmanager
def started(job: Job, *program: str, uri: str = "") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *program, "backfill", "-c", str(job.config_file())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DEDUP_SOURCE_URI": uri or job.uri},
        cwd=ROOT,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def ended(process: subprocess.Popen[str], paused: Iterable[int] = ()) -> tuple[int, str]:
    """Wait for the end, let paused processes go on, and return the exit code and what was said on stderr.

    Without times, and without what tells of progress.
    """
    code = process.wait(HANG_SECONDS)
    for pid in filter(is_alive, paused):
        os.kill(pid, signal.SIGCONT)
    assert becomes(lambda: not any(map(is_alive, paused)))
    lines = process.communicate()[1].splitlines(keepends=True)
    return code, "".join(TIME.sub("", line) for line in lines if " progress mode=" not in line)


def descendants(pid: int) -> set[int]:
    children = {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return children.union(*map(descendants, children))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_pending(process: subprocess.Popen[str], signum: signal.Signals) -> bool:
    """Return whether a signal was sent that the process has not got yet; a second one would be lost then."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(re.findall(r"^ShdPnd:\s*(\w+)", status, re.MULTILINE)[0], 16) >> signum - 1 & 1)


@pytest.fixture
def filled(job: Job) -> Job:
    job.set("source", fields=["data"])
    job.set("limits", batch_records=10)
    job.source.insert_many(list(generate(150, seed=11)))
    return job


@pytest.mark.long
def test_a_signal_at_any_moment_leaves_what_the_next_run_finishes(
    filled: Job, another_job: Callable[[], Job]
) -> None:
    undisturbed = another_job()
    undisturbed.decide("backfill")
    random = Random(7)

    for signum in (signal.SIGTERM, signal.SIGINT):
        with halted(filled, random.randint(8, 40)) as process:
            go_on(process)
            time.sleep(random.random() * 0.05)
            process.send_signal(signum)
            assert ended(process) == (128 + signum, LINE.format(signum.name))

    run = filled.ledger("runs").find_one({"exit_code": 143})
    assert run is None or run["ended"] >= run["started"]
    filled.decide("backfill")
    assert filled.outcome() == undisturbed.outcome()


@contextmanager
def without_server(filled: Job, how: signal.Signals, grace: str = "5") -> Iterator[subprocess.Popen[str]]:
    """Give a run whose server is killed or stopped."""
    with LocalMongod() as server:
        with MongoClient[dict[str, Any]](server.uri) as client:
            client["lost"]["pages"].insert_many(list(generate(50, seed=11)))
        filled.set("source", database="lost")
        filled.set("target", database="lost")
        filled.set("limits", retry_seconds=HOUR, connect_seconds=HOUR)
        filled.uri = server.uri
        with halted(filled, 25, grace) as process:
            os.kill(server.pid, how)
            go_on(process)
            time.sleep(0.5)
            yield process
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_signal_ends_a_run_whose_server_is_gone(filled: Job, how: signal.Signals) -> None:
    """SIGKILL: it is waiting for the next try; SIGSTOP: for an answer."""
    with without_server(filled, how) as process:
        process.send_signal(signal.SIGTERM)
        code, stderr = ended(process)
    assert code == 143
    assert stderr.endswith(LINE.format("SIGTERM"))
    assert "Traceback" not in stderr


@pytest.mark.long
@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_that_is_not_waited_for_ends_a_run_like_a_kill(
    filled: Job, another_job: Callable[[], Job], signum: signal.Signals
) -> None:
    """Its terminal has gone, or somebody pressed Ctrl-\\ in it."""
    undisturbed = another_job()
    undisturbed.decide("backfill")

    with halted(filled, 40) as process:
        others = descendants(process.pid)
        process.send_signal(signum)
        assert process.wait(HANG_SECONDS) == -signum  # the kernel ends it, in its own time
        assert process.communicate()[1] == ""
        assert becomes(lambda: not any(map(is_alive, others)))

    assert filled.ledger("head").find_one({"lease": {"$ne": None}})
    filled.decide("backfill")
    assert filled.outcome() == undisturbed.outcome()


def test_a_second_signal_does_not_wait_for_the_cleaning_up(filled: Job) -> None:
    with without_server(filled, signal.SIGSTOP, str(HOUR)) as process:
        process.send_signal(signal.SIGTERM)
        assert becomes(lambda: not is_pending(process, signal.SIGTERM))
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 143


@pytest.mark.long
def test_a_signal_ends_a_run_that_is_connecting(filled: Job) -> None:
    filled.set("limits", connect_seconds=HOUR)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"mongodb://127.0.0.1:{silent.getsockname()[1]}/"
        with started(filled, "-m", "dedup_job", uri=uri) as process, silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            assert ended(process) == (130, LINE.format("SIGINT"))


def pause(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.long
def test_a_signal_ends_a_run_whose_workers_hang(filled: Job) -> None:
    filled.set("limits", record_seconds=HOUR)
    with halted(filled, 50) as process:
        assert becomes(lambda: len(descendants(process.pid)) >= 3)
        workers = descendants(process.pid)
        pause(workers)
        go_on(process)
        process.send_signal(signal.SIGTERM)
        assert ended(process, workers) == (143, LINE.format("SIGTERM"))


@pytest.mark.long
def test_workers_die_with_a_parent_that_is_killed(filled: Job) -> None:
    """Even those that do not come to look at the pipe from it."""
    with halted(filled, 70) as process:
        every = descendants(process.pid)
        workers = {pid for child in every for pid in descendants(child)}
        assert len(workers) == 2
        pause(workers)
        process.kill()
        assert becomes(lambda: not any(map(is_alive, every)))
