"""The commands of the tutorial print what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.dev import run_tutorial
from scripts.dev.local_mongod import LocalMongod


@pytest.mark.longest
def test_the_tutorial_prints_what_its_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = run_tutorial.PAGE.read_text("utf-8")
    with LocalMongod() as server:
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)
        monkeypatch.delenv("DEDUP_TARGET_URI", raising=False)
        for step, output in run_tutorial.run_steps(page, tmp_path):
            assert run_tutorial.agrees(step.output, output), f"$ {step.command}\n{output}"
