"""What is said of a stage that failed: a class, and nothing of a message that may hold text."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from dedup_job.errors import ConfigError, DedupError, StorageFull
from dedup_job.spark.session import named_errors

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

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
    with pytest.raises(DedupError) as caught, named_errors("pairs", "/work"):
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
    with pytest.raises(StorageFull, match=r"spark\.driver\.memory"), named_errors("matches", "/work"):
        raise Py4JError(FAILED + said)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("Caused by: a.b.ChecksumException: error: file:/stages/records/x", "a.b.ChecksumException"),
        ("Caused by: a.TProtocolException: Required field", "a.TProtocolException"),
        ("Caused by: java.lang.RuntimeException: x is not a Parquet file", "java.lang.RuntimeException"),
    ],
)
def test_where_a_file_is_damaged_its_folder_is_named(said: str, named: str) -> None:
    with pytest.raises(StorageFull) as caught, named_errors("pairs", "/work"):
        raise Py4JError(f"{FAILED}a.SparkException: Job aborted\n{said}")
    told = f"stage pairs: a file in /work is damaged ({named}); delete this folder and start again"
    assert str(caught.value) == told


def test_our_own_errors_are_what_they_were() -> None:
    with pytest.raises(ConfigError, match=r"^set it right$"), named_errors("records", "/work"):
        raise Py4JError(f"{FAILED}a.PythonException\ndedup_job.errors.ConfigError: set it right\n")
