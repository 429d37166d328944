"""A fault campaign on a Spark cluster: in each stage of a backfill, a worker, the driver or a server fails.

A trial is one backfill from start to end, with faults at certain moments. If a fault ends the run, the next
run continues, and the next fault waits for it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from pymongo import MongoClient

from scripts.dev.local_replica_set import LocalReplicaSet
from scripts.dev.local_spark import LocalSpark, spark_home
from tests.support.campaign import Arena, Damage, Material, Result, State, arena
from tests.support.process_campaign import FINISHED, LEAVING_SECONDS, ROOT, ended

STAGES = ("records", "texts", "pairs", "matches", "dropped", "verdicts")
# The commit of verdicts, after the stages.
CARRYING = "carrying"
MOMENTS = (*STAGES, CARRYING)
BEGINS, WHOLE = "stage begins stage={}", "stage is whole stage={} "
TOOK = re.compile(r"stage is whole stage=(\w+) .*seconds=([\d.]+)")
CONF = {"spark.executor.memory": "512m", "spark.ui.enabled": "false"}


class Strike(NamedTuple):
    """A fault and its moment."""

    moment: str
    fault: str


@dataclass(frozen=True)
class Field:
    """A backfill on a cluster, the seconds of each stage, and the result of one machine."""

    arena: Arena
    spark: LocalSpark
    servers: LocalReplicaSet
    rng: Random
    state: State | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """The log file of all runs of this backfill."""
        return self.arena.folder / "log"

    def reset(self) -> None:
        """Undo everything that runs have written."""
        self.arena.reset()
        self.log.unlink(missing_ok=True)
        shutil.rmtree(self.arena.folder / "work", ignore_errors=True)

    def start(self, engine: str = "spark") -> subprocess.Popen[bytes]:
        """Start a backfill; its log lines are appended to the log."""
        return self._start([sys.executable, "-m", "dedup_job"], engine, master=self.spark.master)

    def submit(self) -> subprocess.Popen[bytes]:
        """Start a backfill with spark-submit, as docs/how-to/use-spark.md describes."""
        program = self.arena.folder / "submit.py"
        program.write_text('from dedup_job.__main__ import main\n\nif __name__ == "__main__":\n    main()\n')
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.spark.master, str(program)]
        return self._start(command, "spark")

    def _start(self, program: Sequence[str], engine: str, **cluster: str) -> subprocess.Popen[bytes]:
        conf = {f'"{name}"': value for name, value in CONF.items()}
        about = {**cluster, "work": str(self.arena.folder / "work"), "partitions": 4}
        config = self.arena.config_file(engine=about, **{"engine.conf": conf})
        own = {"DEDUP_SOURCE_URI": self.servers.uri, "PYSPARK_PYTHON": sys.executable}
        with self.log.open("ab") as stderr:
            return subprocess.Popen(
                [*program, "backfill", "-c", str(config), "--engine", engine],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=ROOT,
                env={**os.environ, **self.spark.environment, **own},
            )

    def is_at(self, moment: str) -> bool:
        """Return whether the latest run has reached a moment."""
        if moment == CARRYING:
            return self.arena.ledger("head").find_one({"next": {"$gte": 1}}) is not None
        return BEGINS.format(moment) in self.log.read_text()

    def left(self) -> Damage:
        """Return the damage to the present state; a stage that was made twice counts as a misled run."""
        assert self.state
        lines = self.log.read_text().splitlines()
        again = sum(
            any(WHOLE.format(name) in line for line in lines[:at])
            for name in STAGES
            for at, line in enumerate(lines)
            if BEGINS.format(name) in line
        )
        return self.arena.damage(self.state) + Damage(misled=again)


def worker(field: Field, _process: subprocess.Popen[bytes]) -> bool:
    # Without any worker, a run waits.
    field.spark.whole()
    field.spark.kill_worker(field.rng.randrange(2))
    return False


def driver(_field: Field, process: subprocess.Popen[bytes]) -> bool:
    process.kill()
    return True


def stop(_field: Field, process: subprocess.Popen[bytes]) -> bool:
    process.send_signal(signal.SIGTERM)
    return True


def election(field: Field, _process: subprocess.Popen[bytes]) -> bool:
    field.servers.step_down()
    return False


# The function that causes each fault, and returns whether it ends the run; and then the run's exit code.
FAULTS: Mapping[str, Callable[[Field, subprocess.Popen[bytes]], bool]] = {
    "worker": worker,
    "driver": driver,
    "stop": stop,
    "election": election,
}
CODES = {"driver": -signal.SIGKILL, "stop": 128 + signal.SIGTERM}


def suffered(field: Field, strikes: Sequence[Strike]) -> Result:
    """Disturb a backfill by faults, in the order of their moments, and return the damage."""
    field.reset()
    waiting, done, damage = list(strikes), 0, Damage()
    while True:
        process, last = field.start(), ""
        while waiting and not last and _came(field, process, waiting[0].moment):
            strike = waiting.pop(0)
            time.sleep(field.rng.uniform(0, field.seconds.get(strike.moment, 0.0)))
            last = strike.fault if FAULTS[strike.fault](field, process) else ""
            done += 1
        code = ended(process, LEAVING_SECONDS) if last else ended(process)
        field.spark.whole()
        if code in FINISHED:
            break
        if code != CODES.get(last):
            damage += Damage(misled=1)
            break
    damage += field.left()
    said = f"{strikes}, ended with {code}: {damage}\n{field.log.read_text()}" if damage else ""
    return Result(done, damage, (said,) if said else ())


def _came(field: Field, process: subprocess.Popen[bytes], moment: str) -> bool:
    """Wait until a run reaches a moment; return False if it ends first."""
    while not field.is_at(moment):
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def field_of(servers: LocalReplicaSet, spark: LocalSpark, material: Material, rng: Random) -> Iterator[Field]:
    """Return a field with the result of one machine."""
    with (
        MongoClient[Any](servers.uri, tz_aware=True, w="majority") as client,
        arena(client, material) as place,
    ):
        calm = Field(place, spark, servers, rng)
        assert ended(calm.start("local")) in FINISHED
        state = place.state()
        calm.reset()
        yield replace(calm, state=state)


def everything(field: Field) -> Result:
    """Cause every fault in every stage: one trial for each fault."""
    field.reset()
    assert ended(field.start()) in FINISHED
    seconds = {name: float(took) for name, took in TOOK.findall(field.log.read_text())}
    timed = replace(field, seconds=seconds)
    return sum(
        (suffered(timed, [Strike(moment, fault) for moment in MOMENTS]) for fault in FAULTS),
        Result(),
    )
