"""A Spark cluster on the loopback address: a standalone master and workers that can be killed and restarted.

In a program::

    with LocalSpark() as cluster:
        SparkSession.builder.master(cluster.master)

Spark comes from PySpark, Java from the machine. All files are in a temporary directory, which is removed at
the end. On Linux all processes end with the thread that started them.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from scripts.dev.local_mongod import GUARD, Local

MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
LISTENS = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED = "Registering worker "
START_SECONDS = 90.0
STOP_SECONDS = 20.0


class SparkError(RuntimeError):
    """Raised if the cluster does not start; the message has its last log lines."""


def spark_home() -> Path:
    """Return the folder of Spark inside PySpark.

    Raises:
        SparkError: If PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkError("PySpark is not installed: pip install 'dedup-job[spark]'")
    return Path(spec.origin).parent


class LocalSpark(Local):
    """A master, and workers with one core each, on 127.0.0.1."""

    def __init__(self, workers: int = 2) -> None:
        self.master = ""
        self._temporary = tempfile.TemporaryDirectory(prefix="dedup-job-spark-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)
        self._count, self._started = workers, 0
        # The master, then the workers.
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the master and its workers.

        Raises:
            SparkError: If they do not start.
        """
        self._processes.append(self._start(MASTER, "--port", "0"))
        self._waited(lambda: LISTENS.search(self._log.read_text()) is not None)
        found = LISTENS.search(self._log.read_text())
        assert found
        self.master = found[1]
        self._processes += [self._worker() for _ in range(self._count)]
        self._waited(lambda: self._registered >= self._count)

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that a driver needs in addition to its own."""
        local = str(self._folder / "local")
        return {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": local}

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors with SIGKILL; workers are counted from 0."""
        _end(self._processes[1 + number], signal.SIGKILL)

    def whole(self) -> None:
        """Restart every worker that was killed, and wait until the master has registered it."""
        before, missing = self._registered, 0
        for place, process in enumerate(self._processes[1:], 1):
            if process.poll() is not None:
                self._processes[place] = self._worker()
                missing += 1
        self._waited(lambda: self._registered >= before + missing)

    def close(self) -> None:
        """Stop all processes for good."""
        for process in reversed(self._processes):
            _end(process, signal.SIGTERM)
        self._processes = []
        self._temporary.cleanup()

    def _worker(self) -> subprocess.Popen[bytes]:
        work = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / "work")]
        return self._start(WORKER, *work, self.master)

    def _start(self, kind: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a process of Spark; the first log is the master's."""
        home = spark_home()
        command = [str(home / "bin" / "spark-class"), kind, "--host", "127.0.0.1", "--webui-port", "0"]
        command += options
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", GUARD, str(os.getpid()), *command]
        own = {"SPARK_DAEMON_MEMORY": "256m", **self.environment}
        with self._log_of(self._started).open("wb") as log:
            self._started += 1
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | own,
                # A session, so that its executors can be signalled too.
                start_new_session=True,
            )

    def _log_of(self, number: int) -> Path:
        return self._folder / f"{number}.log"

    @property
    def _log(self) -> Path:
        return self._log_of(0)

    @property
    def _registered(self) -> int:
        """Return the number of workers registered so far."""
        return self._log.read_text().count(REGISTERED)

    def _waited(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_so():
            if time.monotonic() > deadline or any(one.poll() is not None for one in self._processes):
                raise SparkError(f"the cluster does not come up: {self._log.read_text()[-500:]}")
            time.sleep(0.1)


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Signal a process and its descendants, and wait."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
