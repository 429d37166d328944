"""What is said of a stage that failed: a class, and nothing of a message that may hold text."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib.metadata import version

import pytest
from py4j.protocol import Py4JError

from dedup_job.errors import ConfigError, DedupError, StorageFull
from dedup_job.spark.spark_errors import named_errors

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

FAILED = "An error occurred while calling o42.parquet.\n: "


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("java.lang.StackOverflowError: a text\n\tat a.B.c(B.scala:1)", "java.lang.StackOverflowError"),
        ("a.SparkException: Job aborted\n\tat x\nCaused by: b.IOException: a text\n\tat y", "b.IOException"),
        ("something else: a text", "Py4JError"),
    ],
)
def test_the_innermost_class_is_named(said: str, named: str) -> None:
    with pytest.raises(DedupError) as caught, named_errors("pairs", "/folder"):
        raise Py4JError(FAILED + said)
    assert str(caught.value) == f"stage pairs failed on Spark: {named}; its own log says more"


@pytest.mark.parametrize(
    "said",
    [
        "org.apache.spark.SparkException: Not enough memory to build and broadcast the table",
        "a.SparkException: Job aborted\nCaused by: java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_where_memory_is_short_it_is_said_what_to_set(said: str) -> None:
    with pytest.raises(StorageFull, match=r"spark\.driver\.memory"), named_errors("matches", "/folder"):
        raise Py4JError(FAILED + said)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("Caused by: a.b.ChecksumException: error: file:/stages/records/x", "a.b.ChecksumException"),
        ("Caused by: a.TProtocolException: Required field", "a.TProtocolException"),
        ("Caused by: org.apache.thrift.TException: x", "org.apache.thrift.TException"),
        ("Caused by: java.lang.RuntimeException: x is not a Parquet file", "java.lang.RuntimeException"),
    ],
)
def test_where_a_file_is_damaged_its_folder_is_named(said: str, named: str) -> None:
    with pytest.raises(StorageFull) as caught, named_errors("pairs", "/folder"):
        raise Py4JError(f"{FAILED}a.SparkException: Job aborted\n{said}")
    told = f"stage pairs: a file in /folder is damaged ({named}); delete this folder and start again"
    told += ", with --engine local if records were decided already"
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "said",
    [
        "a.SparkException: Job aborted\nCaused by: a.FSError: java.io.IOException: No space left on device",
        "a.SparkException: x\nCaused by: java.nio.file.FileSystemException: /folder/x: Disk quota exceeded",
        "a.PythonException: x\nOSError: [Errno 28] No space left on device",
        "a.SparkException: x\nCaused by: a.b.DSQuotaExceededException: x",
    ],
)
def test_where_a_disk_is_full_its_folder_is_named(said: str) -> None:
    with (
        pytest.raises(StorageFull, match=r"^stage pairs: the disk of /folder "),
        named_errors("pairs", "/folder"),
    ):
        raise Py4JError(FAILED + said)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("a.SparkException: x\nCaused by: java.io.IOException: a text", "java.io.IOException"),
        ("a.SparkException: x\nCaused by: java.nio.file.ReadOnlyFileSystemException: a text", "ReadOnly"),
        ("java.lang.UnsatisfiedLinkError: a text", "java.lang.UnsatisfiedLinkError"),
        ("o.AnalysisException: [PATH_NOT_FOUND] Path does not exist: a text", "o.AnalysisException"),
    ],
)
def test_where_a_file_cannot_be_read_or_written_its_folder_is_named(said: str, named: str) -> None:
    with pytest.raises(StorageFull) as caught, named_errors("pairs", "/folder"):
        raise Py4JError(FAILED + said)
    assert "is /folder still there" in str(caught.value)
    assert named in str(caught.value)
    assert "a text" not in str(caught.value)


def test_where_a_python_process_was_killed_it_is_said_to_run_again() -> None:
    ended = "a.SparkException: Python worker exited unexpectedly (crashed)\nCaused by: java.io.EOFException"
    with pytest.raises(StorageFull, match="was ended from outside"), named_errors("records", "/folder"):
        raise Py4JError(FAILED + ended)


@dataclass
class Thrown:
    """A Java exception, as py4j shows it."""

    name: str
    message: str | None
    cause: Thrown | None = None

    def getClass(self) -> Thrown:  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self.name

    def getMessage(self) -> str | None:  # noqa: N802
        return self.message

    def getCause(self) -> Thrown | None:  # noqa: N802
        return self.cause


def captured(thrown: Thrown) -> PySparkException:
    """An exception that PySpark made of a Java exception, whose text leaves out the causes."""
    error = PySparkException("Job aborted")
    error._origin = thrown  # type: ignore[attr-defined]
    return error


def test_causes_are_found_that_pyspark_leaves_out() -> None:
    full = Thrown("java.io.IOException", "No space left on device")
    with pytest.raises(StorageFull), named_errors("pairs", "/folder"):
        raise captured(Thrown("a.SparkException", "Job aborted", Thrown("a.FSError", None, full)))


def test_pyspark_keeps_the_java_exception_of_its_own() -> None:
    assert "self._origin = origin" in inspect.getsource(CapturedException.__init__), (
        f"pyspark {version('pyspark')} keeps the Java exception elsewhere: causes are lost; see "
        "spark/spark_errors.py"
    )


def test_a_value_that_spark_refuses_is_an_error_of_the_settings() -> None:
    refused = Thrown("org.apache.spark.SparkIllegalArgumentException", "The value must be positive")
    told = r"^stage records: .* correct \[engine.conf\]"
    with pytest.raises(ConfigError, match=told), named_errors("records", "/folder"):
        raise captured(refused)


TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    f()\n'


@pytest.mark.parametrize(
    ("inner", "message", "named"),
    [
        ("a.b.InnerException", "a text\nCaused by: my.TextError: x", "a.b.InnerException"),
        ("a.PythonException", f"\n{TRACEBACK}ValueError: a text\nmy.TextError: x\n", "ValueError"),
        ("a.PythonException", "a text", "a.PythonException"),
    ],
)
def test_the_class_of_the_innermost_cause_is_named_and_no_text(inner: str, message: str, named: str) -> None:
    with pytest.raises(DedupError) as caught, named_errors("pairs", "/folder"):
        raise captured(Thrown("a.AnalysisException", "Job aborted", Thrown(inner, message)))
    assert str(caught.value) == f"stage pairs failed on Spark: {named}; its own log says more"


def test_our_own_errors_are_what_they_were() -> None:
    with pytest.raises(ConfigError, match=r"^set it right$"), named_errors("records", "/folder"):
        raise Py4JError(f"{FAILED}a.PythonException\ndedup_job.errors.ConfigError: set it right\n")


def test_where_pyspark_cannot_fetch_a_result_it_is_no_bug_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own clean-up then fails: `finally` uses a name that was never bound."""
    from pyspark import util

    def refused(_: object) -> None:
        raise PySparkException("no answer")

    monkeypatch.setattr(util, "_create_local_socket", refused)
    with (
        pytest.raises(StorageFull, match=r"stage pairs: .* was paused; run again"),
        named_errors("pairs", "/folder"),
        util._load_from_socket(None, None),
    ):
        pass
