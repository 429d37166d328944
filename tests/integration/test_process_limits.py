"""Backfills with limits on memory and open files, and in a deleted directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.job import ROOT, Job
from tests.support.waiting import HANG_SECONDS


def in_shell(job: Job, before: str) -> subprocess.CompletedProcess[str]:
    """Run a backfill after these shell commands."""
    backfill = f"exec {sys.executable} -m dedup_job backfill -c {job.config_file()}"
    return subprocess.run(
        ["/bin/sh", "-c", f"{before} && {backfill}"],
        env={**os.environ, "DEDUP_SOURCE_URI": job.uri, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_in_a_deleted_directory_one_line_says_so(job: Job, tmp_path: Path) -> None:
    job.source.insert_one({"_id": 1, "text": "x"})

    done = in_shell(job, f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir ../gone")

    assert done.returncode == 78
    assert "the current directory no longer exists; change to another" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_low_limit_on_open_files_is_raised_or_named(job: Job) -> None:
    job.source.insert_one({"_id": 1, "text": "清晨的港口停着三艘货船，工人们把茶叶搬到岸上。"})
    too_low = in_shell(job, "ulimit -n 30")
    assert (too_low.returncode, too_low.stderr.count("\n")) == (74, 1)
    assert "a process may open 30 files (ulimit -n)" in too_low.stderr
    raised = in_shell(job, "ulimit -Sn 30")
    assert raised.returncode == 0, raised.stderr
    assert job.target.count_documents({}) == 1


@pytest.mark.longest
def test_under_each_limit_a_backfill_gives_the_right_answer_or_says_that_memory_is_short() -> None:
    """`python -m scripts.dev.memory_limits` alone tries every ten megabytes."""
    command = [sys.executable, "-m", "scripts.dev.memory_limits"]
    done = subprocess.run(
        [*command, "--from-mb", "600", "--to-mb", "1200", "--step-mb", "100", "--records", "100"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    codes = [line.split("|")[3].strip() for line in done.stdout.splitlines()[2:]]
    assert codes[0] == "74"
    assert codes[-1] == "0"
