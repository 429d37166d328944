"""Compiling once: said before it begins, and not done again."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dedup_job.cli import commands
from dedup_job.errors import ConfigError
from dedup_job.pipeline import compile_after_install as module
from dedup_job.pipeline.compile_after_install import compile_code, ensure_compiled, is_compiled
from dedup_job.records import Plan


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "CACHE_FOLDER", tmp_path)
    return tmp_path


def test_the_first_use_says_that_it_compiles_and_the_second_does_not(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dedup_job")
    assert not is_compiled()
    ensure_compiled()
    assert is_compiled()
    ensure_compiled()
    assert [record.message for record in caplog.records] == [
        "compiling code, once after an installation; this takes up to 90 seconds"
    ]


def test_each_made_up_record_is_fingerprinted_once(folder: Path) -> None:
    fingerprinted: list[int] = []
    assert compile_code(fingerprinted.append) > 0
    assert sum(fingerprinted) == module.RECORDS


def test_where_the_other_process_fails_this_one_compiles_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = SimpleNamespace(start=lambda: None, join=lambda: None, exitcode=1)
    monkeypatch.setattr(module, "get_context", lambda method: SimpleNamespace(Process=lambda **_: failed))
    decided: list[Plan] = []
    decide = module.job.decide_in_memory
    monkeypatch.setattr(
        module.job, "decide_in_memory", lambda *of: decided.append(plan := decide(*of)) or plan
    )
    compile_code()
    assert {verdict.reason for plan in decided for verdict in plan.verdicts} == {"", "exact", "near"}
    assert is_compiled()


def test_without_a_folder_for_the_code_nothing_is_compiled_ahead(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CACHE_FOLDER", None)
    ensure_compiled()
    assert caplog.text == ""


def test_a_chosen_folder_that_cannot_be_used_is_named_by_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/nocache")
    error = CliRunner().invoke(commands, ["compile"], standalone_mode=False).exception
    assert isinstance(error, ConfigError)
    assert "NUMBA_CACHE_DIR: /proc/nocache cannot hold the compiled code" in str(error)
