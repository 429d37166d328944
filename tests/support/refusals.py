"""Run a command that must fail, and return its message."""

from __future__ import annotations

import subprocess


def told(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr
