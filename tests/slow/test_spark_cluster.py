"""A real Spark cluster on the loopback: what is lost there changes nothing.

`make soak` has the whole campaign, with every fault in every stage.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from random import Random

import pytest

from scripts.dev.local_replica_set import LocalReplicaSet
from scripts.dev.local_spark import LocalSpark
from tests.support.campaign import Material
from tests.support.cluster_campaign import CARRYING, Field, Strike, field_of, suffered
from tests.support.process_campaign import FINISHED, ended

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17, and there is none on PATH"),
]

WAITS = "no worker of the Spark cluster takes the tasks"


@pytest.fixture(scope="module")
def field(replica_set: LocalReplicaSet) -> Iterator[Field]:
    """A backfill of some hundred records on a cluster of two workers."""
    material = Material.made(300, seed=5, batch_records=20)
    with LocalSpark() as spark, field_of(replica_set, spark, material, Random(1)) as made:
        yield made


@pytest.mark.longest
def test_a_lost_worker_a_killed_driver_a_signal_and_an_election_change_nothing(field: Field) -> None:
    strikes = [
        Strike("pairs", "worker"),
        Strike("matches", "driver"),
        Strike("verdicts", "stop"),
        Strike(CARRYING, "election"),
    ]
    result = suffered(field, strikes)
    assert (result.trials, result.worst) == (len(strikes), ())


@pytest.mark.longest
def test_a_cluster_without_workers_is_told_of_and_waited_for(field: Field) -> None:
    field.reset()
    for number in range(2):
        field.spark.kill_worker(number)
    run = field.start()
    while WAITS not in field.log.read_text():
        assert run.poll() is None
        time.sleep(0.1)
    field.spark.whole()
    assert ended(run) in FINISHED
    assert field.log.read_text().count(WAITS) == 1
    assert not field.left()


@pytest.mark.longest
def test_spark_submit_runs_the_same_command(field: Field) -> None:
    field.reset()
    assert ended(field.submit()) in FINISHED
    assert not field.left()
