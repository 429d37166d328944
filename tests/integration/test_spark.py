"""The same decisions on Spark: what a backfill leaves there is what it leaves on one machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from scripts.corpus import Mix, generate
from tests.integration.conftest import Job

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17, and there is none")

RECORDS = 400


def on_spark(job: Job, partitions: int = 3) -> None:
    """Let a job's backfill be decided on two cores of this machine."""
    work = str(job.folder / f"work-{job.database.name}")
    job.set("engine", kind="spark", master="local[2]", work=work, partitions=partitions)


def fill(job: Job) -> None:
    job.source.insert_many(list(generate(RECORDS, mix=Mix(length=200, odd=0.1))))
    job.set("source", fields=["data"])


@pytest.mark.parametrize("partitions", [2, 7])
def test_spark_decides_as_one_machine_does(job: Job, another_job: Callable[[], Job], partitions: int) -> None:
    fill(job)
    other = another_job()
    report = job.decide("backfill")
    assert min(report.counts.near, report.counts.exact, len(report.counts.unjudged)) > 0
    on_spark(other, partitions)
    ended = other.command("backfill")
    assert ended.returncode == 0, ended.stderr
    assert other.outcome() == job.outcome()
