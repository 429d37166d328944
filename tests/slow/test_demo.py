"""`make run`: two pairs, their marks, what to do next, and what is left on disk."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import demo
from scripts.dev.local_mongod import LocalMongod
from tests.support.job import ROOT
from tests.support.waiting import HANG_SECONDS


@pytest.mark.longest
def test_the_demonstration_shows_two_pairs_and_lines_that_work_and_says_what_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "RECORDS", 300)
    monkeypatch.chdir(ROOT)
    with LocalMongod() as server:
        monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)

        assert demo.main(tmp_path) == 0

        said = capsys.readouterr().out
        assert re.findall(r"^  (exact|near, similarity 0\.\d{3})$", said, re.MULTILINE)[0] == "exact"
        assert re.search(r"^  near, similarity 0\.[89]\d\d$", said, re.MULTILINE)
        assert len(re.findall(r"^    (?:kept   |dropped) +[0-9a-f]{24}  \S", said, re.MULTILINE)) == 4
        lines = re.findall(r"^  \$on \.venv/bin/dedup-job (.*)$", said, re.MULTILINE)
        assert [line.split()[0] for line in lines] == ["compare", "status", "mark"]
        marks = re.findall(
            r"^  \{'_id': ObjectId\('\w+'\), 'dedup': \{'keeper': .*'reason': '(\w+)'", said, re.MULTILINE
        )
        assert marks == ["exact", "near"]
        for line in lines:
            command = [sys.executable, "-m", "dedup_job", *shlex.split(line)]
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, env=os.environ, timeout=HANG_SECONDS, check=False
            )
            assert done.returncode == 0, done.stderr
        assert f"left on disk: {tmp_path} (" in said
        assert {path.name for path in tmp_path.iterdir()} == {"backfill.toml", "page.html", "reports"}
        assert "open " in said
        assert "Of <b>300</b> records" in (tmp_path / "page.html").read_text("utf-8")
