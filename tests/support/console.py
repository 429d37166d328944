"""Run a command line in this process, and return its exit code and output."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dedup_job import run_and_exit
from dedup_job.report import logs


@dataclass(frozen=True)
class Said:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON objects of its lines."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Console:
    """Runs commands with a settings file; `typed` is input from a simulated terminal."""

    capsys: pytest.CaptureFixture[str]
    settings: Path

    def __call__(self, *arguments: str, typed: str | None = None, settings: Path | None = None) -> Said:
        stdin = io.StringIO(typed or "")
        self.capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch, _own_log():
            patch.setattr(stdin, "isatty", lambda: typed is not None)
            patch.setattr(sys, "stdin", stdin)
            patch.setattr(sys, "argv", ["dedup-job", *arguments, "-c", str(settings or self.settings)])
            code = run_and_exit._run()
        said = self.capsys.readouterr()
        return Said(code, said.out, said.err)


@contextmanager
def _own_log() -> Iterator[None]:
    """Restore the loggers afterwards: a command configures them for a whole process."""
    loggers = [logging.getLogger(logs.NAME), logging.getLogger("py.warnings")]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    try:
        yield
    finally:
        for one, (handlers, propagate, level) in zip(loggers, before, strict=True):
            one.handlers, one.propagate = handlers, propagate
            one.setLevel(level)
        logging.captureWarnings(False)
