"""Run the command line many times a second: one warm process forks a child for each run.

As a program it reads one run per line from stdin, `{"arguments": [...], "environment": {...}}`. It answers
with the child's pid, and then with its exit code (-9 if it was killed) and its output on stdout and stderr.
The children fingerprint in their own process: workers have no database connection, and starting them takes a
second.

`Forks` is the client.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, Self

from bson import encode
from pymongo import common

import dedup_job
from dedup_job import __main__, config, run_and_exit
from dedup_job.index.keepers import Keepers
from dedup_job.mongo.ids import id_of
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.pipeline.job import KeepFirst
from dedup_job.recipe_from_settings import make_recipe
from dedup_job.records import Batch
from scripts.bench.corpus import generate
from tests.support.inline_engine import without_workers
from tests.support.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a run: exit code (-n if signal n killed it), and output."""

    code: int
    printed: str
    said: str


class Forks:
    """Starts runs in a warm process; use it as a context manager."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.forked_commands"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        # The first line says that the process is warm.
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.stdout.close()  # type: ignore[union-attr]
        self._process.wait(HANG_SECONDS)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start `dedup-job` with these arguments and environment, one run at a time; return its pid."""
        request = json.dumps({"arguments": list(arguments), "environment": dict(environment)})
        assert self._process.stdin
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def ended(self) -> Ended:
        """Wait for the end of the run; one that hangs ends itself."""
        return Ended(**self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())


def main() -> None:
    """Serve runs until stdin ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    warm_up()
    _tell("warm")
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as said:
            pid = os.fork()
            if pid == 0:
                # A run that hangs says where, and ends with 1.
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=said)
                request = json.loads(line)
                nothing = os.open(os.devnull, os.O_RDONLY)
                files = (nothing, printed.fileno(), said.fileno())
                os._exit(run_command(request["arguments"], request["environment"], files))
            _tell(pid)
            _, status = os.waitpid(pid, 0)
            printed.seek(0)
            said.seek(0)
            code = os.waitstatus_to_exitcode(status)
            _tell({"code": code, "printed": printed.read(), "said": said.read()})


def _tell(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def run_command(arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int]) -> int:
    """Act as `python -m dedup_job` with these arguments, input and outputs; return the exit code."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for stream, file in enumerate(files):
        os.dup2(file, stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.modules["__main__"] = __main__
    sys.argv[:] = [str(__main__.__file__), *arguments]
    code = 70
    with suppress(BaseException):
        try:
            run_and_exit.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return code


class EmptyTarget:
    """A target that lacks no record, and has no other records."""

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        return set()

    def conflicting(self, records: Iterable[bytes]) -> set[bytes]:
        return set()


def warm_up() -> None:
    """Load and compile everything that a command needs, and replace the workers."""
    without_workers(setattr)
    for module in walk_packages(dedup_job.__path__, "dedup_job."):
        import_module(module.name)
    # Check often whether the server is back.
    common.MIN_HEARTBEAT_INTERVAL = 0.02
    source = {"database": "warm", "collection": "up", "fields": ["data"]}
    target = {"database": "warm", "collection": "on"}
    recipe = make_recipe(config.check_settings({"source": source, "target": target}, "warm up"))
    raws = [encode(record) for record in generate(60)]
    with FingerprintWorkers(recipe) as engine:
        halves = [Batch([id_of(raw) for raw in half], half) for half in (raws[:30], raws[30:])]
        keepers = Keepers(recipe, 1 << 20)
        KeepFirst(recipe.matching, keepers, EmptyTarget()).decide_batches(
            engine.fingerprint_batches(halves), lambda plan, raws: plan, lambda plan: None
        )


if __name__ == "__main__":
    main()
