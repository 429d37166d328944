"""Turn Spark's failures into the job's own errors, without the text that its messages may hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dedup_job import errors
from dedup_job.errors import ConfigError, DedupError, StorageFull

# An error of ours that was raised on an executor, as it appears in the text of Spark's error.
OURS = re.compile(r"dedup_job\.errors\.(\w+): (.*)")
SHORT_OF_MEMORY = re.compile(r"OutOfMemoryError|Not enough memory to build and broadcast")
DAMAGED = re.compile(
    r"ChecksumException|TProtocolException|is not a Parquet file|FAILED_TO_UNCOMPRESS"
    r"|org\.apache\.(?:parquet|thrift)\.\S*Exception"
)
# The innermost exception if a file cannot be read, written or loaded.
NO_ACCESS = re.compile(r"java\.io\.|java\.nio\.file\.|java\.lang\.UnsatisfiedLinkError")
# The innermost exception if the value of a setting is of no use, such as 0 partitions.
REFUSED_VALUE = "org.apache.spark.SparkIllegalArgumentException"
# What Spark says of a folder that is gone.
GONE = "PATH_NOT_FOUND"
PYTHON_ENDED = re.compile(r"Python worker exited unexpectedly")
PYTHON_CLASS = re.compile(r"Traceback \(most recent call last\):\n(?: .*\n)+([\w.]+)")
NO_SPACE = re.compile(
    r"(?:Exception|Error): (?:\[Errno 28\] )?No space left on device"
    r"|Disk quota exceeded|QuotaExceededException"
)


@contextmanager
def named_errors(stage: str, folder: str) -> Iterator[None]:
    """Turn Spark's errors in a stage into errors of this package.

    Spark's messages are left out, since they may contain document text; only the class of the innermost Java
    or Python exception is kept.

    Args:
        stage: Name of the stage, for the message.
        folder: The work folder, for the message.

    Raises:
        ConfigError: If Spark refuses the value of a setting.
        StorageFull: If Spark ran out of memory or disk space, a file is damaged or cannot be read or written,
            or this process was paused.
        DedupError: For other failures; an error of this package that was raised on an executor is raised
            again with its own class.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = "\n".join([str(error), *(f"{name}: {message}" for name, message in java_causes(error))])
        if found := OURS.search(text):
            kind = getattr(errors, found[1], DedupError)
            raise (kind if issubclass(kind, DedupError) else DedupError)(found[2]) from None
        if SHORT_OF_MEMORY.search(text):
            raise StorageFull(
                f"stage {stage}: Spark has too little memory; set spark.driver.memory and "
                "spark.executor.memory in [engine.conf] (a gigabyte each if nobody says more), and run again"
            ) from None
        if NO_SPACE.search(text):
            raise StorageFull(
                f"stage {stage}: the disk of {folder} or of Spark's temporary files (spark.local.dir) is "
                "full; make room, and run again"
            ) from None
        if DAMAGED.search(text):
            raise StorageFull(
                f"stage {stage}: a file in {folder} is damaged ({class_of(error)}); delete this folder and "
                "start again, with --engine local if records were decided already"
            ) from None
        if PYTHON_ENDED.search(text):
            raise StorageFull(
                f"stage {stage}: a Python process of Spark was ended from outside, as the system does when "
                "memory is short; run again, if it happens again with fewer cores or more memory"
            ) from None
        name = class_of(error)
        if name == REFUSED_VALUE:
            raise ConfigError(
                f"stage {stage}: Spark refuses the value of a setting; its own log says which, correct "
                "[engine.conf]"
            ) from None
        if NO_ACCESS.match(name) or GONE in text:
            raise StorageFull(
                f"stage {stage}: Spark cannot read or write a file ({name}); is {folder} still there, can it "
                "write there and to its temporary files (spark.local.dir, java.io.tmpdir), and is there a "
                "limit (ulimit -f, -n)? Its own log says more; run again once this is mended"
            ) from None
        raise DedupError(f"stage {stage} failed on Spark: {name}; its own log says more") from None
    except UnboundLocalError:
        # PySpark raises it where it cannot fetch a result (its `_load_from_socket`).
        raise StorageFull(
            f"stage {stage}: Spark did not wait for this process, which was paused; run again"
        ) from None


def java_causes(error: Exception) -> list[tuple[str, str]]:
    """Return class and message of a Java exception and of its causes, the innermost last.

    The list is empty for an error that is not from Java, such as the loss of its process.
    """
    from py4j.protocol import Py4JError

    # PySpark replaces some Java exceptions by its own, whose text leaves out the causes.
    thrown = getattr(error, "java_exception", None)
    thrown = getattr(error, "_origin", None) if thrown is None else thrown
    found: list[tuple[str, str]] = []
    with suppress(Py4JError, OSError):
        while thrown is not None:
            found.append((thrown.getClass().getName(), str(thrown.getMessage())))
            thrown = thrown.getCause()
    return found


def class_of(error: Exception) -> str:
    """Return the class name of the innermost exception in a Spark error, without its message."""
    if causes := java_causes(error):
        name, message = causes[-1]
        # The class stands below the frames; lines after it are the message, and may be text of a record.
        raised = PYTHON_CLASS.findall(message) if name.endswith(".PythonException") else []
        return raised[-1] if raised else name
    names = re.findall(r"(?:Caused by: |^(?:: )?)([\w.$]+(?:Exception|Error))", str(error), re.MULTILINE)
    return names[-1] if names else type(error).__name__
