"""Make the work folder of a backfill on Spark, also on HDFS or S3, and check that it can be written."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dedup_job.config import WILDCARDS, EngineSettings
from dedup_job.errors import ConfigError, StorageFull, Unreachable
from dedup_job.spark.session import session
from dedup_job.spark.spark_errors import NO_SPACE, java_causes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_ANSWER = ("ConnectException", "SocketTimeoutException", "NoRouteToHostException")


def escape_wildcards(path: str) -> str:
    r"""Escape the characters that Spark reads as a pattern when it reads a path, but not when it writes it.

    >>> escape_wildcards("file:///data/[1]")
    'file:///data/\\[1\\]'
    """
    return WILDCARDS.sub(r"\\\g<0>", path)


def pattern_of(uri: str) -> str:
    """Convert a percent-encoded URI, as Spark lists files, to the pattern that reads this file alone.

    >>> pattern_of("file:///data/a%20b/part-0.parquet")
    'file:///data/a b/part-0.parquet'
    """
    return escape_wildcards(unquote(uri))


def make_work_folder(spark: SparkSession, folder: str) -> list[Any]:
    """Make the work folder, and check that a file can be written there.

    Args:
        spark: The session.
        folder: A URI; Spark's settings say how its file system is reached.

    Returns:
        The folders that were made, as Hadoop paths: the work folder first, then its parents.

    Raises:
        ConfigError: If no file can be written there.
        StorageFull: If its disk is full.
        Unreachable: If its file system does not answer.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    jvm: Any = spark._jvm
    try:
        path = jvm.org.apache.hadoop.fs.Path(f"{folder}/")
        files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        made, parent = [], path
        while parent is not None and not files.exists(parent):
            made.append(parent)
            parent = parent.getParent()
        # False without an exception is how the local file system says no.
        if not files.mkdirs(path):
            raise ConfigError(_refusal(folder, "it cannot be made"))
        probe = jvm.org.apache.hadoop.fs.Path(path, f".probe-{secrets.token_hex(4)}")
        files.create(probe).close()
        files.delete(probe, False)
    except (PySparkException, Py4JError) as error:
        kind, message = (java_causes(error) or [(type(error).__name__, "")])[-1]
        name, text = kind.rpartition(".")[2], message.partition("\n")[0]
        if NO_SPACE.search(f"{kind}: {text}"):
            raise StorageFull(
                f"[engine] work: the disk of {folder} is full; make room, and run again"
            ) from None
        if name in NO_ANSWER:
            raise Unreachable(
                f"[engine] work: the server of {folder} does not answer ({name}: {text})"
            ) from None
        raise ConfigError(_refusal(folder, f"{name}: {text}")) from None
    return made


def _refusal(folder: str, reason: str) -> str:
    return (
        f"[engine] work: {folder} cannot be written ({reason}); name a folder that the driver and all "
        "executors can write"
    )


def check_work_folder(engine: EngineSettings) -> None:
    """Check the work folder as a backfill does, but leave no folder behind.

    Spark starts on this machine only, with the settings of the backfill.

    Raises:
        DedupError: As `session` and `make_work_folder`.
    """
    with session(EngineSettings(master="local[1]", conf=engine.conf), "dedup-job doctor") as spark:
        for path in make_work_folder(spark, engine.work_folder):
            # Not recursively: a folder in which somebody has begun to write stays.
            path.getFileSystem(spark._jsc.hadoopConfiguration()).delete(path, False)
