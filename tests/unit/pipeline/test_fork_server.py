"""The fork server is started early only where that helps, and its failure is told later."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from dedup_job.config import check_settings
from dedup_job.errors import ConfigError
from dedup_job.pipeline import fork_server
from dedup_job.pipeline.fork_server import preload_workers

TABLES = {
    "source": {"database": "wiki", "collection": "pages", "fields": ["body"]},
    "target": {"database": "wiki", "collection": "unique"},
}


def failing(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize("error", [ConfigError("no room for a socket"), OSError("no more processes")])
def test_what_hinders_the_start_of_workers_is_told_when_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(fork_server, "fork_server", failing(error))
    monkeypatch.setattr(fork_server, "has_spare_processor", lambda: True)
    preload_workers(check_settings(TABLES, "test"))


def test_a_current_directory_that_the_user_may_not_enter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "chdir", failing(PermissionError(13, "Permission denied")))
    with pytest.raises(ConfigError, match="may not enter the current directory"):
        fork_server.fork_server()


def test_on_spark_no_worker_of_this_machine_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "fork_server", failing(AssertionError("begun")))
    monkeypatch.setattr(fork_server, "has_spare_processor", lambda: True)
    preload_workers(check_settings({**TABLES, "engine": {"kind": "spark"}}, "test"))
    with pytest.raises(AssertionError):
        preload_workers(check_settings(TABLES, "test"))


@pytest.mark.parametrize(
    ("told", "is_begun"),
    [("0.31 2.22 3.29 2/180 5\n", True), ("0.31 2.22 3.29 3/180 5\n", False), ("?\n", True), (None, True)],
)
def test_where_all_processors_are_busy_no_worker_is_begun_before_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str | None, is_begun: bool
) -> None:
    if told is not None:
        (tmp_path / "loadavg").write_text(told)
    monkeypatch.setattr(fork_server, "LOAD", tmp_path / "loadavg")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    begun: list[bool] = []
    monkeypatch.setattr(fork_server, "fork_server", lambda: begun.append(True))
    preload_workers(check_settings(TABLES, "test"))
    assert bool(begun) is is_begun


PROGRAM = """
import logging, multiprocessing, os
from contextlib import suppress
from dedup_job.pipeline import fork_server
logging.getLogger("dedup_job").setLevel({level!r})
multiprocessing.set_executable({python!r})
fork_server.fork_server()
with suppress(ChildProcessError):
    while os.wait():
        pass
os.write(2, b"own words")
"""


@pytest.mark.parametrize("part", ["forkserver", "resource_tracker"])
@pytest.mark.parametrize(("level", "is_printed"), [("INFO", False), ("DEBUG", True)])
def test_what_a_fork_server_prints_as_it_fails_is_shown_with_debug_lines_only(
    tmp_path: Path, level: str, is_printed: bool, part: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncase $* in *{part}*) echo Traceback >&2;; esac\nexit 1\n")
    python.chmod(0o755)
    program = PROGRAM.format(level=level, python=str(python))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ("Traceback" in done.stderr) is is_printed
    assert done.stderr.endswith("own words")
