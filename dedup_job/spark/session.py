"""Start a Spark session, and warn if no worker takes its tasks."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dedup_job.config import EngineSettings
from dedup_job.errors import ConfigError, DedupError, StorageFull, Unreachable
from dedup_job.pipeline.measure_and_limit_memory import available_bytes
from dedup_job.spark.spark_errors import class_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Seconds between two checks for a stage without workers.
LOOK_SECONDS = 15.0
# Seconds that Java may take to end after its connections are lost.
ENDING_SECONDS = 3.0
LEAST_JAVA = 17
JAVA_ENDED = (
    "Spark's Java process has ended: it was killed, or had too little memory or too few open files (ulimit "
    "-n); run again, nothing is lost"
)
NEEDED = ("pyspark", "pandas", "pyarrow")
# Defaults; the settings of a cluster and `conf` override them.
USUAL: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # How long Java waits for this process to fetch a result.  After the usual 15 seconds, a process that was
    # paused, or a machine that was suspended, would wait for ever.
    "spark.python.authenticate.socketTimeout": "7d",
    # A damaged file of a stage must not decide anything.
    "spark.hadoop.parquet.page.write-checksum.enabled": "true",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
}
# Without a cluster, the driver and its executors are one process, which no other machine has to reach.
ALONE: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}

log = logging.getLogger("dedup_job")


@contextmanager
def session(engine: EngineSettings, name: str) -> Iterator[SparkSession]:
    """Start a Spark session, or use the session that is already active in this process.

    A session that is started here is stopped at the end; an active one is left running.

    Args:
        engine: The settings. Without `master`, Spark runs where spark-submit says or, without spark-submit,
            on all processors of this machine.
        name: Name of the application, as Spark's pages show it.

    Raises:
        ConfigError: If a package or Java is missing, or is too old.
        Unreachable: If no master answers.
        StorageFull: If the Java process of the driver ends, at the start or later.
    """
    _check_installed()
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    if running := SparkSession.getActiveSession():
        yield running
        return
    spark = _start(engine, name)
    try:
        with name_end_of_java(spark), warn_no_workers(spark.sparkContext):
            yield spark
    finally:
        # Without Java there is nothing to stop.
        with suppress(Py4JError, OSError):
            spark.stop()


@contextmanager
def name_end_of_java(spark: SparkSession) -> Iterator[None]:
    """Turn what Spark raises once its Java process has ended into one error.

    Raises:
        StorageFull: If the Java process of the driver has ended.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, OSError, DedupError) as error:
        is_named = isinstance(error, DedupError) and error.exit_code != DedupError.exit_code
        if is_named or not _has_java_ended(spark):
            raise
        raise StorageFull(JAVA_ENDED) from error


def _start(engine: EngineSettings, name: str) -> SparkSession:
    """Start a session; the errors are those of `session`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    master = engine.master
    # spark-submit sets this variable: it has started Java, but not a session.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = master or "local[*]"
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The executors are threads of the driver.
    is_local = master is not None and master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    bar = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    parts = {"spark.sql.shuffle.partitions": str(engine.partitions)} if engine.partitions else {}
    alone = {**ALONE, **_heap()} if is_local else {}
    for key, value in {**USUAL, **bar, **parts, **alone, **engine.conf}.items():
        builder = builder.config(key, value)
    if master is not None:
        builder = builder.master(master)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError:
        if 0 < _java_version() < LEAST_JAVA:
            raise ConfigError(
                "Spark does not start: it needs Java 17 or newer; see what Java says above"
            ) from None
        raise StorageFull(f"{JAVA_ENDED}; see what Java says above, if it says anything") from None
    except (Py4JError, OSError) as error:
        if is_local:
            raise StorageFull(
                f"Spark does not start ({class_of(error)}); see what it says above: can this user write to "
                "its folder for temporary files (spark.local.dir, SPARK_LOCAL_DIRS), is there room, and is "
                "spark.driver.memory in [engine.conf] at least 450m?"
            ) from None
        raise Unreachable(
            f"Spark does not start on {master or 'the master of spark-submit'} ({class_of(error)}): "
            "is the address in [engine] master right, and does a master run there?"
        ) from None
    spark.sparkContext.setLogLevel("ERROR")
    _silence_lost_connections(spark)
    return spark


def _silence_lost_connections(spark: SparkSession) -> None:
    """Keep PySpark's accumulator server from printing a traceback when Java has ended, unless logging debug.

    The main thread notices the end by itself, and says it in one line.
    """

    def log_lost_connection(request: object, address: object) -> None:
        log.debug("a connection of Spark's accumulators was lost", exc_info=True)

    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = log_lost_connection


def _has_java_ended(spark: SparkSession) -> bool:
    """Return whether the Java process that this process started has ended; False for spark-submit's."""
    java = getattr(spark.sparkContext._gateway, "proc", None)
    if java is None:
        return False
    # A killed process loses its connections a moment before it has ended.
    with suppress(subprocess.TimeoutExpired):
        java.wait(ENDING_SECONDS)
    return java.poll() is not None


def _java_version() -> int:
    """Return the first number of Java's version, 8 or less for old ones; 0 if Java does not tell it."""
    java = _java()
    try:
        told = subprocess.run([java or "java", "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', told.stderr)
    return int(found[1]) if found else 0


def _heap() -> Mapping[str, str]:
    """Return the setting that gives Java half of the free memory; Spark's default is one gigabyte."""
    free = available_bytes()
    return {} if free is None else {"spark.driver.memory": f"{max(1 << 30, free // 2) >> 20}m"}


def _check_installed() -> None:
    """Raise ConfigError if a package of the `spark` extra or Java is missing."""
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
def warn_no_workers(context: SparkContext) -> Iterator[None]:
    """Log a warning if a stage makes no progress because no worker takes its tasks.

    A daemon thread checks the stages until the context manager exits.
    """
    ended = threading.Event()
    threading.Thread(target=_look, args=(context, ended), name="waiting", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _look(context: SparkContext, ended: threading.Event) -> None:
    """Check the stages every `LOOK_SECONDS`, and warn once per period without workers.

    A stage counts as waiting if two checks in a row find the same progress and no running task: between two
    tasks, too, no task runs for a moment.
    """
    from py4j.protocol import Py4JError

    before: dict[int, int] = {}
    is_told = False
    # Such an error means that Spark has ended, which the main thread notices by itself.
    with suppress(Py4JError, OSError):
        while not ended.wait(LOOK_SECONDS):
            now = _without_workers(context)
            is_waiting = bool(now) and now == before
            if is_waiting and not is_told:
                log.warning(
                    "no worker of the Spark cluster takes the tasks that are ready: are its master and its "
                    "workers there, and their memory and cores free? The run waits for one"
                )
            before, is_told = now, is_waiting


def _without_workers(context: SparkContext) -> dict[int, int]:
    """Return the number of completed tasks by active stage; an empty dict while any task runs."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    if any(stage is None or stage.numActiveTasks for stage in stages):
        return {}
    return {stage.stageId: stage.numCompletedTasks for stage in stages if stage}
