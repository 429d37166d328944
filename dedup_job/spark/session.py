"""A Spark session, and Spark's failures as the job's own errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dedup_job import errors
from dedup_job.errors import ConfigError, DedupError, StorageFull
from dedup_job.pipeline.process_memory import available_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 15.0

log = logging.getLogger("dedup_job")


@contextmanager
def warn_no_workers(context: SparkContext) -> Iterator[None]:
    """Warn while this is open when a stage stands still because no worker takes its tasks."""
    ended = threading.Event()
    threading.Thread(target=_look, args=(context, ended), name="waiting", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _look(context: SparkContext, ended: threading.Event) -> None:
    """Look now and then; one look finds nothing out, since between two tasks nobody works either."""
    from py4j.protocol import Py4JError

    before: dict[int, int] = {}
    is_told = False
    with suppress(Py4JError, OSError):  # Spark has ended; the command learns it by itself
        while not ended.wait(LOOK_SECONDS):
            now = _without_workers(context)
            is_waiting = bool(now) and now == before
            if is_waiting and not is_told:
                log.warning(
                    "no worker of the Spark cluster takes the tasks that are ready: has it workers, and are "
                    "their memory and cores free? The run waits for one"
                )
            before, is_told = now, is_waiting


def _without_workers(context: SparkContext) -> dict[int, int]:
    """Return how many tasks of each stage that has begun are done; none while any task runs."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    if any(stage is None or stage.numActiveTasks for stage in stages):
        return {}
    return {stage.stageId: stage.numCompletedTasks for stage in stages if stage}


NEEDED = ("pyspark", "pandas", "pyarrow")
OURS = re.compile(r"dedup_job\.errors\.(\w+): (.*)")
SHORT_OF_MEMORY = re.compile(r"OutOfMemoryError|Not enough memory to build and broadcast")
# The last ones win: what a cluster or `conf` says.
USUAL: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
}
# The driver and its executors are one process, which nobody else has to reach.
ALONE: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Spark runs.

    master      as Spark names it; None for what spark-submit says, else all processors of this machine
    conf        further settings of Spark
    partitions  that a stage has at least; None for four a processor
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether the executors are threads of the driver."""
        return self.master is not None and self.master.startswith("local")


@contextmanager
def session(cluster: Cluster, name: str) -> Iterator[SparkSession]:
    """Start Spark, or join what runs in this process; raises ConfigError where it cannot be had.

    What was started here is ended with the session; spark-submit has started Java, not Spark.
    """
    _check_installed()
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if running := SparkSession.getActiveSession():
        yield running
        return
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not is_submitted:
        cluster = Cluster(cluster.master or "local[*]", cluster.conf, cluster.partitions)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if cluster.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    bar = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    parts = {"spark.sql.shuffle.partitions": str(cluster.partitions)} if cluster.partitions else {}
    alone = {**ALONE, **_heap()} if cluster.is_local else {}
    for key, value in {**USUAL, **bar, **parts, **alone, **cluster.conf}.items():
        builder = builder.config(key, value)
    if cluster.master is not None:
        builder = builder.master(cluster.master)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError:
        raise ConfigError(
            "Spark does not start: it needs Java 17 or newer; see what Java says above"
        ) from None
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with warn_no_workers(spark.sparkContext):
            yield spark
    finally:
        spark.stop()


def _heap() -> Mapping[str, str]:
    """Let Java take half of the memory that is free, rather than the gigabyte that it takes by itself."""
    free = available_bytes()
    return {} if free is None else {"spark.driver.memory": f"{max(1 << 30, free // 2) >> 20}m"}


def _check_installed() -> None:
    """Raise ConfigError where the extra or Java is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"[engine] kind: Spark needs {', '.join(missing)}; run pip install 'dedup-job[spark]'"
        )
    if "PYSPARK_GATEWAY_PORT" not in os.environ and not _java():
        raise ConfigError(
            "[engine] kind: Spark needs Java 17 or newer, and there is none on PATH or in JAVA_HOME; install "
            "a Java runtime (openjdk-17-jre-headless in Debian), or set kind to local"
        )


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")


@contextmanager
def named_errors(stage: str) -> Iterator[None]:
    """Turn what Spark says of a failed stage into our own errors, without what may hold document text."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        if found := OURS.search(str(error)):
            kind = getattr(errors, found[1], DedupError)
            raise (kind if issubclass(kind, DedupError) else DedupError)(found[2]) from None
        if SHORT_OF_MEMORY.search(str(error)):
            raise StorageFull(
                f"stage {stage}: Spark has too little memory; set spark.driver.memory and "
                "spark.executor.memory in [engine.conf] (a gigabyte each if nobody says more), and run again"
            ) from None
        raise DedupError(
            f"stage {stage} failed on Spark: {_class_of(error)}; its own log says more"
        ) from None


def _class_of(error: Exception) -> str:
    """Return the name of the innermost class that Spark tells of, and nothing of its message."""
    names = re.findall(r"(?:Caused by: |^(?:: )?)([\w.$]+(?:Exception|Error))", str(error), re.MULTILINE)
    return names[-1] if names else type(error).__name__
