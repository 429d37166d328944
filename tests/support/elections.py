"""Forced elections during runs, one job after another: python -m tests.support.elections 200 [SEED]

The primary steps down or is killed, in turn, during a backfill; afterwards the result is compared with that
of an undisturbed backfill, and the next job begins.

    python -m tests.support.elections restless 600

makes the primary step down every two seconds for the given number of seconds, whether or not the run made
progress.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database

from dedup_job.ledger.reader import LedgerReader
from dedup_job.mongo.connect_and_retry import RetryPolicy
from scripts.bench.corpus import generate
from scripts.dev.local_replica_set import LocalReplicaSet
from tests.support.job import ROOT, Job
from tests.support.waiting import becomes

RECORDS = 1_000
# Most seconds of undisturbed work between two elections.
LONGEST_PAUSE = 0.5
STEP_SECONDS = 2.0
DONE = 0


@dataclass(frozen=True)
class Tally:
    """The result of the elections.

    Attributes:
        elections: Number of forced elections.
        runs: Number of backfills that were disturbed.
        failed: Number of these that ended with an exit code other than 0; they were run again.
        lost: Records that are neither in the target nor dropped in the ledger.
        doubled: Records that are both, or were decided twice.
        different: Jobs whose target or ledger differs from an undisturbed run.
        slowest: Most seconds from the new primary to the next commit.
    """

    elections: int = 0
    runs: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    different: int = 0
    slowest: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        ours, theirs = asdict(self), asdict(other)
        slowest = max(ours.pop("slowest"), theirs.pop("slowest"))
        return Tally(**{name: ours[name] + theirs[name] for name in ours}, slowest=slowest)


def elections(replica_set: LocalReplicaSet, trials: int, seed: int = 1, records: int = RECORDS) -> Tally:
    """Force at least `trials` elections on one job after another, and return the result."""
    random, total = Random(seed), Tally()
    with (
        tempfile.TemporaryDirectory() as folder,
        MongoClient[dict[str, Any]](replica_set.uri, w="majority", readConcernLevel="majority") as client,
    ):
        calm = _job(client["elections_calm"], replica_set.uri, Path(folder), records)
        with _backfill(calm) as process:
            assert process.wait() == DONE
        while total.elections < trials:
            job = _job(client[f"elections_{total.elections}"], replica_set.uri, Path(folder), records)
            total += _trial(job, calm, replica_set, random)
            client.drop_database(job.database)
            print(json.dumps(asdict(total)), flush=True)  # noqa: T201
        client.drop_database(calm.database)
    return total


def restless(replica_set: LocalReplicaSet, seconds: float, records: int = RECORDS) -> Tally:
    """Make the primary step down every two seconds during jobs; return the result."""
    total = Tally()
    with (
        tempfile.TemporaryDirectory() as folder,
        MongoClient[dict[str, Any]](replica_set.uri, w="majority", readConcernLevel="majority") as client,
    ):
        calm = _job(client["restless_calm"], replica_set.uri, Path(folder), records)
        with _backfill(calm) as process:
            assert process.wait() == DONE
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            job = _job(client[f"restless_{total.runs}"], replica_set.uri, Path(folder), records)
            while (done := _restless_run(job, replica_set)).failed:
                total += done
            total += done + _compared(job, calm)
            client.drop_database(job.database)
            print(json.dumps(asdict(total)), flush=True)  # noqa: T201
        client.drop_database(calm.database)
    return total


def _restless_run(job: Job, replica_set: LocalReplicaSet) -> Tally:
    """Run a job to its end while the primary steps down every two seconds."""
    stepped = 0
    with _backfill(job) as process:
        try:
            while process.poll() is None:
                replica_set.step_down()
                stepped += 1
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STEP_SECONDS)
        finally:
            process.kill()
    return Tally(elections=stepped, runs=1, failed=int(process.returncode != DONE))


def _job(database: Database[Any], uri: str, folder: Path, records: int) -> Job:
    job = Job(database, uri, folder)
    job.set("source", fields=["data"])
    job.set("limits", batch_records=10, retry_seconds=60.0)
    database.client.drop_database(database)
    job.source.insert_many(list(generate(records, seed=9)))
    return job


def _backfill(job: Job) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dedup_job", "backfill", "-c", str(job.config_file())]
    environment = {**os.environ, "DEDUP_SOURCE_URI": job.uri}
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _trial(job: Job, calm: Job, replica_set: LocalReplicaSet, random: Random) -> Tally:
    """Disturb one job until it is done, and compare its result."""
    done = Tally()
    while True:
        with _backfill(job) as process:
            try:
                while process.poll() is None:
                    time.sleep(random.random() * LONGEST_PAUSE)
                    done += _election(job, replica_set, process, kill=bool(done.elections % 2))
            finally:
                process.kill()
        done += Tally(runs=1, failed=int(process.returncode != DONE))
        if process.returncode == DONE:
            return done + _compared(job, calm)


def _election(job: Job, replica_set: LocalReplicaSet, process: subprocess.Popen[bytes], kill: bool) -> Tally:
    """Force an election, and wait until the run has committed a plan since."""
    before = _committed(job)
    if kill:
        replica_set.kill_primary()
    else:
        replica_set.step_down()
    replica_set.primary()
    start = time.monotonic()
    assert becomes(lambda: process.poll() is not None or _committed(job) != before), "it does not go on"
    was_seen = before is not None and process.poll() is None
    seconds = time.monotonic() - start if was_seen else 0.0
    replica_set.whole()
    return Tally(elections=1, slowest=round(seconds, 2))


def _committed(job: Job) -> int | None:
    """Return the number of applied plans; None before the ledger exists."""
    head = RetryPolicy()(lambda: job.ledger("head").find_one())
    return head and int(head["next"])


def _compared(job: Job, calm: Job) -> Tally:
    source, target, dropped = (
        {repr(row["_id"]) for row in collection.find({}, {"_id": 1})}
        for collection in (job.source, job.target, job.ledger("dropped"))
    )
    reader = LedgerReader(job.database, "unique")
    head = reader.head()
    assert head is not None
    decided = Counter(raw_id for stored in reader.plans(head) for raw_id in stored.plan.ids)
    return Tally(
        lost=len(source - target - dropped),
        doubled=len(target & dropped) + sum(count > 1 for count in decided.values()),
        different=int(job.outcome() != calm.outcome()),
    )


if __name__ == "__main__":
    with LocalReplicaSet() as replica_set:
        if sys.argv[1] == "restless":
            tally = restless(replica_set, float(sys.argv[2]))
        else:
            tally = elections(replica_set, *map(int, sys.argv[1:]))
    sys.exit(bool(tally.lost or tally.doubled or tally.different or tally.failed))
