"""Runs the command line many times a second: one warm process that forks a child for each run.

As a program it reads one run a line from stdin, `{"arguments": [...], "environment": {...}}`, and answers
with the child's pid, and then with its exit code (-9 when it was killed) and what it said on stderr.  The
children fingerprint in their own process: workers know no database, and starting them takes a second.

`Forks` is the other end.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from bson import encode
from pymongo import common

from dedup_job import __main__, config, job
from dedup_job.commands import context as opening
from dedup_job.document import Batch, Fingerprints
from dedup_job.engine.local import Capacity
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.match.keepers import Keepers, Recollection
from dedup_job.mongo.ids import id_of
from scripts.corpus import generate

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: its exit code, -n when signal n killed it, and what it said."""

    code: int
    said: str


class Forks:
    """Starts runs in a warm process; use it as a context manager."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.integration.forks"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()  # it is warm
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.stdout.close()  # type: ignore[union-attr]
        self._process.wait(30)

    def start(self, arguments: Sequence[str], uri: str) -> int:
        """Start `dedup-job` with these arguments; returns its pid.  One run at a time."""
        environment = {"DEDUP_SOURCE_URI": uri, "DEDUP_TARGET_URI": uri}
        request = json.dumps({"arguments": list(arguments), "environment": environment})
        assert self._process.stdin
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def ended(self) -> Ended:
        """Wait for the end of the run."""
        return Ended(**self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())


def main() -> None:
    """Serve runs until stdin ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _warm_up()
    _tell("warm")
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as output:
            pid = os.fork()
            if pid == 0:
                _run(json.loads(line), output.fileno())
            _tell(pid)
            _, status = os.waitpid(pid, 0)
            output.seek(0)
            _tell({"code": os.waitstatus_to_exitcode(status), "said": output.read()})


def _tell(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _run(request: dict[str, Any], output: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    code = 70
    with suppress(BaseException):
        try:
            __main__.main()
        except SystemExit as end:
            code = int(end.code or 0)
    os._exit(code)


class InlineEngine:
    """Fingerprints in this process."""

    def __init__(self, recipe: Recipe, capacity: Capacity | None = None) -> None:
        self.fingerprint = _fingerprinter(recipe)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        """Yield each batch with its fingerprints, in order."""
        return ((batch, self.fingerprint(batch.raws)) for batch in batches)


@lru_cache(maxsize=1)
def _fingerprinter(recipe: Recipe) -> Fingerprinter:
    return Fingerprinter(recipe)


def _warm_up() -> None:
    """Load and compile all that a run needs, and put an engine without workers in place of the real one."""
    vars(opening)["LocalEngine"] = InlineEngine
    common.MIN_HEARTBEAT_INTERVAL = 0.02  # look soon whether the server is there again
    source = {"database": "warm", "collection": "up", "fields": ["data"]}
    target = {"database": "warm", "collection": "on"}
    settings = config.check({"source": source, "target": target}, "warm up")
    recipe = settings.make_recipe()
    raws = [encode(record) for record in generate(60)]
    engine = InlineEngine(recipe)
    recall = Recollection(lambda ids: [], engine.fingerprint)
    work = job.Job(
        batches=[Batch([id_of(raw) for raw in half], half) for half in (raws[:30], raws[30:])],
        engine=engine,
        matching=recipe.matching,
        keepers=Keepers(recipe, 1 << 20, recall),
        absent=lambda keepers: set(),
        commit=lambda plan, raws: plan,
        observe=lambda batch, plan: None,
    )
    job.run(work)


if __name__ == "__main__":
    main()
