"""Compiling once: said before it begins, and not done again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dedup_job.pipeline import compile_code as module
from dedup_job.pipeline.compile_code import compile_code, ensure_compiled, is_compiled


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


def test_each_made_up_record_is_decided_once(folder: Path) -> None:
    decided: list[int] = []
    assert compile_code(decided.append) > 0
    assert sum(decided) == module.RECORDS


def test_without_a_folder_for_the_code_nothing_is_compiled_ahead(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CACHE_FOLDER", None)
    ensure_compiled()
    assert caplog.text == ""
