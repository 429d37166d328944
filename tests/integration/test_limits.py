"""Backfills under limits on the address space."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.job import ROOT


@pytest.mark.longest
def test_under_each_limit_a_backfill_gives_the_right_answer_or_says_that_memory_is_short() -> None:
    """`python -m scripts.memory_limits` alone tries every ten megabytes."""
    command = [sys.executable, "-m", "scripts.memory_limits"]
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
