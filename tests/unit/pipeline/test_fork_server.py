"""The fork server is started early only where that helps, and its failure is told later."""

from __future__ import annotations

import os
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
