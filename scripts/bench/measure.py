"""Shared by the benchmarks: fill collections, run and measure commands, print tables.

Processor time and memory are read from /proc while a command runs, so they need Linux; processor time is
exact to a tenth of a second per process. Memory that processes share is counted once. The system counts it
page by page, so it is read once a second: ten times a second took 8 % of two processors.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from itertools import count, islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from pymongo import MongoClient

from dedup_job.pipeline.measure_and_limit_memory import family, resident_bytes
from scripts.dev.local_mongod import Server

DATABASE = "bench"
SETTINGS = """
[source]
database = "bench"
collection = "pages"
fields = ["data"]
[recipe]
profile = "{profile}"
[target]
{target}
"""
# Contents of [target].
COPY, IN_PLACE = 'database = "bench"\ncollection = "unique"', "copy = false"
POLL_SECONDS = 0.1
POLLS_FOR_MEMORY = 10
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of a command: seconds, processor seconds of its processes and of mongod, and peak bytes.

    Attributes:
        own_cpu: Processor seconds of its first process, which decides.
        worker_peak: Peak bytes of the largest of its other processes, with its part of shared memory.
    """

    seconds: float
    cpu: float
    server_cpu: float
    peak: int
    own_cpu: float
    worker_peak: int

    @classmethod
    def median(cls, usages: Sequence[Usage]) -> Usage:
        """Return the median of each figure."""
        columns = zip(*map(astuple, usages), strict=True)
        seconds, cpu, server, peak, own, worker_peak = (median(column) for column in columns)
        return cls(seconds, cpu, server, int(peak), own, int(worker_peak))


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of JSON lines, gzipped or not."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open() as lines:
        yield from map(json.loads, lines)


def fill(records: Iterable[dict[str, Any]], client: MongoClient[dict[str, Any]]) -> int:
    """Replace the contents of the source's database by these records; return their number."""
    client.drop_database(DATABASE)
    stream = iter(records)
    while batch := list(islice(stream, 1000)):
        client[DATABASE].pages.insert_many(batch, ordered=False)
    return client[DATABASE].pages.estimated_document_count()


def forget(client: MongoClient[dict[str, Any]]) -> None:
    """Drop the target and the ledger, so that all records are undecided again."""
    for name in client[DATABASE].list_collection_names():
        if name.startswith("unique"):
            client[DATABASE].drop_collection(name)


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs the job's commands with a settings file on a server, from this checkout by default.

    Attributes:
        folder: Working directory; workers import modules there before installed modules.
    """

    server: Server
    settings: Path
    program: Sequence[str] = (sys.executable, "-m", "dedup_job")
    folder: Path | None = None

    def run(self, name: str, *options: str, codes: Collection[int] = (0,)) -> tuple[Usage, dict[str, Any]]:
        """Run a command and measure it; return its usage, and the JSON object that it printed.

        An exit code that is not in `codes` ends the benchmark.
        """
        command = [*self.program, name, "-c", str(self.settings), "--json", *options]
        environment = {**os.environ, "DEDUP_SOURCE_URI": self.server.uri}
        # Where the job is installed, Python caches its bytecode; the benchmark's job may do so, too.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return watched(command, environment, mongod_of(self.server), self.folder, codes)


def settings_text(profile: str = "default", target: str = COPY) -> str:
    """Return a settings file for the source that `fill` makes; `target` is the content of [target]."""
    return SETTINGS.format(profile=profile, target=target)


@contextmanager
def job_commands(server: Server, profile: str = "default", target: str = COPY) -> Iterator[Commands]:
    """Return the job's commands with settings for a server; `target` is the content of [target]."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "bench.toml"
        settings.write_text(settings_text(profile, target))
        yield Commands(server, settings)


def mongod_of(server: Server) -> int | None:
    """Return the process id of a server that was started here."""
    return getattr(server, "pid", None)


def watched(
    command: Sequence[str],
    environment: dict[str, str] | None = None,
    mongod: int | None = None,
    folder: Path | None = None,
    codes: Collection[int] = (0,),
) -> tuple[Usage, dict[str, Any]]:
    """Run a command to its end and measure its processes; it must print one JSON object."""
    before = cpu_seconds(mongod) if mongod else 0.0
    started = perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        watcher = Watcher(process.pid)
        watcher.start()
        printed, _ = process.communicate()
        seconds = perf_counter() - started
        watcher.stop()
    if process.returncode not in codes:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    server_cpu = cpu_seconds(mongod) - before if mongod else 0.0
    usage = Usage(seconds, watcher.cpu, server_cpu, watcher.peak, watcher.own_cpu, watcher.worker_peak)
    return usage, json.loads(printed)


class Watcher(threading.Thread):
    """Measures a process and its descendants: processor time often, memory once a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._ended = threading.Event()
        self._cpu: dict[int, float] = {}
        self.peak = self.worker_peak = 0

    @property
    def cpu(self) -> float:
        """Processor seconds of all processes seen so far."""
        return sum(self._cpu.values())

    @property
    def own_cpu(self) -> float:
        """Processor seconds of the first process."""
        return self._cpu.get(self._pid, 0.0)

    def run(self) -> None:
        for poll in count():
            if self._ended.wait(POLL_SECONDS):
                return
            processes = (self._pid, *family(self._pid))
            for pid in processes:
                self._cpu[pid] = max(self._cpu.get(pid, 0.0), cpu_seconds(pid))
            if poll % POLLS_FOR_MEMORY == 0:
                held = [resident_bytes(pid) or 0 for pid in processes]
                self.peak = max(self.peak, sum(held))
                self.worker_peak = max(self.worker_peak, *held[1:], 0)

    def stop(self) -> None:
        """Stop measuring."""
        self._ended.set()
        self.join()


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far; 0 if it has ended."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def table(*header: str) -> None:
    """Print the header of a table."""
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header), flush=True)


def row(*cells: object) -> None:
    """Print a row; numbers are rounded to a suitable number of digits."""
    print("| " + " | ".join(map(cell, cells)) + " |", flush=True)


def cell(value: object) -> str:
    """Format a number for people; return other values as strings."""
    if isinstance(value, float):
        return (
            f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
        )
    return f"{value:,}" if isinstance(value, int) else str(value)


def numbers(text: str) -> list[int]:
    """Parse a list such as `50000,200000`."""
    return [int(part) for part in text.split(",") if part]
