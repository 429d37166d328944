"""Run the long fault campaigns against the job, on real servers and with real processes.

    python -m scripts.dev.soak                    all campaigns; results go to docs/contributing/soak.md
    python -m scripts.dev.soak --only kills       one of them; may be repeated
    python -m scripts.dev.soak --scale 0.05       a twentieth of each, and nothing is written
    python -m scripts.dev.soak --mongod7          a twentieth of each on MongoDB 7.0

A campaign is a function that takes a server's connection string, the number of trials and a random generator,
and returns a `Result`. To add a campaign, add a line to CAMPAIGNS.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from pymongo import MongoClient
from tqdm import tqdm, trange

from scripts.dev.local_mongod import LocalMongod
from scripts.dev.local_mongod7 import use_mongod7
from scripts.dev.local_replica_set import LocalReplicaSet
from scripts.dev.local_spark import LocalSpark
from tests.support import process_campaign
from tests.support.campaign import Damage, Material, Result, trial
from tests.support.cluster_campaign import everything, field_of
from tests.support.commit_model import Mishaps, Model, search
from tests.support.elections import elections
from tests.support.explorer import Violation
from tests.support.fault_loop import loop, syncing
from tests.support.fault_proxy import Kind, Wire
from tests.support.forked_commands import Forks
from tests.support.process_campaign import Storm, storm
from tests.support.random_walk import BrokenPromise, Walk

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "contributing" / "soak.md"
# A server that is never killed itself needs no disk.
MEMORY = Path("/dev/shm")
RECORDS = 2_000
STEPS = 30  # of a random walk
# That server is slower and the job is the same, so a twentieth shows the differences.
MONGOD7_SCALE = 0.05
# With this many trials, the first campaigns try every command.
EVERY = 100
KILLS, LOSSES = (Kind.KILLED_BEFORE, Kind.KILLED_AFTER), (Kind.REQUEST_LOST, Kind.REPLY_LOST)

HEADER = """\
# Soak

What `make soak` did to the job, and the result. Each trial ends with the same questions. Is every source
record decided exactly once? Does the target hold exactly the kept records, byte for byte, and the keeper
of every duplicate? Are the decisions equal to an undisturbed run's?

- **lost**: records not decided, kept records not in the target, duplicates whose keeper is not there.
- **doubled**: records decided twice, or in the target though they were not kept.
- **different**: decisions, rows of the ledger or bytes that differ from an undisturbed run's.
- **misled**: runs with another exit code than [exit codes](../reference/exit-codes.md) says, or later than
  they should: 10 s after a signal, and for the loser of a contest.

Lines that begin with MongoDB 7.0 are of `make soak-mongo7`, a twentieth of the trials.

| campaign | trials | lost | doubled | different | misled | seconds | with |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Campaign:
    """The name of a campaign on the command line and in the table, its number of trials, and its function."""

    name: str
    about: str
    count: int
    work: Callable[[str, int, Random], Result]


def model(_uri: str, count: int, _rng: Random) -> Result:
    """Search the model of the commit protocol with more mishaps than the tests do."""
    try:
        searched = search(Model(), Mishaps(kills=2, losses=1) if count > 1 else Mishaps(kills=1, losses=1))
    except Violation as violation:
        return trial(Damage(different=1), f"{violation}: {', '.join(violation.steps)}")
    return Result(searched.states)


def every_command(uri: str, count: int, rng: Random) -> Result:
    """Cause every fault at every command, or at every n-th command if fewer trials are wanted."""
    with Forks() as forks, loop(uri, forks) as looped:
        every = max(1, EVERY // count)
        result = looped.trials(KILLS, every)
        result += looped.trials(LOSSES, every)
        # Twice, because the driver repeats a command once.
        result += looped.trials(LOSSES, every, times=2)
        result += looped.trials([Kind.GONE], every)
        return result + looped.twice_killed(count, rng)


def struck(uri: str, count: int, rng: Random) -> Result:
    """Kill backfills that fingerprint in their own process; several such backfills run in a second."""
    with Forks() as forks, loop(uri, forks, Material.made(RECORDS, seed=13, batch_records=100)) as looped:
        return looped.struck(count, rng)


def nightly(uri: str, count: int, _rng: Random) -> Result:
    """Kill a nightly run before and after every command."""
    with Forks() as forks, loop(uri, forks, mode="run") as looped:
        return looped.trials(KILLS, max(1, EVERY // count))


def sync(uri: str, count: int, rng: Random) -> Result:
    """Cause every fault at every command, or every n-th command, of a `sync`."""
    with Forks() as forks, syncing(uri, forks) as looped:
        every = max(1, EVERY // count)
        result = (
            looped.trials(KILLS, every) + looped.trials(LOSSES, every) + looped.trials([Kind.GONE], every)
        )
        return result + looped.twice_killed(count, rng)


def alone(_uri: str, count: int, _rng: Random) -> Result:
    """Lose each command, and its reply, on a standalone server, where the driver repeats nothing."""
    with _server(replica_set=False) as uri, Forks() as forks, loop(uri, forks) as looped:
        return looped.trials(LOSSES, max(1, EVERY // count))


def forced_elections(_uri: str, count: int, rng: Random) -> Result:
    """Force elections in a replica set of three, again and again, during backfills."""
    with LocalReplicaSet() as replica_set:
        tally = elections(replica_set, count, rng.randrange(1 << 31))
    damage = Damage(tally.lost, tally.doubled, tally.different, tally.failed)
    return Result(tally.elections, damage, (str(tally),) if damage else ())


def walks(uri: str, count: int, rng: Random) -> Result:
    """Take random walks of STEPS steps, and print at once what goes wrong on one."""
    result = Result()
    with Forks() as forks, MongoClient[Any](uri, tz_aware=True) as client:
        for number in trange(count, desc="walks", mininterval=60):
            database = client[f"walk_{uuid.uuid4().hex}"]
            with tempfile.TemporaryDirectory() as folder, Wire(uri) as wire:
                walk = Walk(database, Path(folder), wire, forks, Random(rng.random()))
                try:
                    walk.go(STEPS)
                    result += trial(Damage(), "")
                except Exception as error:
                    # One that is no broken promise is a mistake of the walk, and must not end the others.
                    what = str(error) if isinstance(error, BrokenPromise) else traceback.format_exc()
                    tqdm.write(f"walk {number}: {what}", file=sys.stderr)
                    result += trial(Damage(different=1), what)
            client.drop_database(database)
    return result


def on_a_cluster(_uri: str, count: int, rng: Random) -> Result:
    """Cause every fault in every stage of a backfill on a Spark cluster, `count` times each."""
    material = Material.made(RECORDS, seed=7, batch_records=100, refused=5)
    with (
        LocalReplicaSet() as servers,
        LocalSpark() as spark,
        field_of(servers, spark, material, rng) as field,
    ):
        return sum((everything(field) for _ in range(count)), Result())


def stormy(work: Callable[[Storm, int], Result]) -> Callable[[str, int, Random], Result]:
    """Return a campaign with whole processes."""

    def campaign(uri: str, count: int, rng: Random) -> Result:
        material = Material.made(RECORDS, seed=7, batch_records=100, refused=5)
        with storm(uri, material, rng) as raging:
            return work(raging, count)

    return campaign


CAMPAIGNS = (
    Campaign("model", "states of the model of the commit protocol", 2, model),
    Campaign("commands", "every command of a backfill, each fault; two kills in a row", EVERY, every_command),
    Campaign("nightly", "killed before and after every command of a nightly run", EVERY, nightly),
    Campaign("sync", "every command of a `sync`, each fault; two kills in a row", EVERY, sync),
    Campaign("alone", "every command and reply lost, on a standalone server", EVERY, alone),
    Campaign("kills", "`kill -9` at a random moment", 1_000, stormy(process_campaign.kills)),
    Campaign("struck", "the same, of runs without workers", 2_000, struck),
    Campaign("contests", "eight runs started at once", 100, stormy(process_campaign.contests)),
    Campaign(
        "pauses", "the holder paused, its lease taken, then resumed", 30, stormy(process_campaign.pauses)
    ),
    Campaign(
        "signals", "SIGTERM or SIGINT at a random moment, some twice", 200, stormy(process_campaign.signals)
    ),
    Campaign(
        "workers",
        "up to three workers of a run killed or stopped",
        40,
        stormy(process_campaign.worker_losses),
    ),
    Campaign("walks", "random walks: all commands in any order, edits, dumps and faults between", 500, walks),
    Campaign("elections", "elections forced in a replica set of three", 200, forced_elections),
    Campaign(
        "spark", "each stage on Spark: a worker, the driver, the primary lost; SIGTERM", 1, on_a_cluster
    ),
)
ON_MONGOD7 = tuple(
    replace(campaign, about=f"MongoDB 7.0: {campaign.about}")
    for campaign in CAMPAIGNS
    if campaign.work != model
    # The model starts no server.
)


@contextmanager
def _server(replica_set: bool = True) -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder,
        LocalMongod(Path(folder) / "db", replica_set=replica_set) as server,
    ):
        yield server.uri


def row(campaign: Campaign, result: Result, seconds: float, versions: str) -> str:
    """Return a campaign's row of the table."""
    damage = result.damage
    cells = (damage.lost, damage.doubled, damage.different, damage.misled, round(seconds))
    numbers = " | ".join(f"{cell:,}" for cell in cells)
    return f"| {campaign.about} | {result.trials:,} | {numbers} | {versions} |"


def versions(uri: str) -> str:
    """Return the versions that were tested, and the versions of their dependencies."""
    with MongoClient[Any](uri) as client:
        mongod = client.server_info()["version"]
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return f"`{commit}`, Python {platform.python_version()}, mongod {mongod}, {os.cpu_count()} processors"


def soak(campaigns: Sequence[Campaign], scale: float, seed: int) -> Iterator[tuple[Campaign, str, Damage]]:
    """Run campaigns one after the other; yield the row of each, and the damage that was done."""
    with _server() as uri:
        about = versions(uri)
        for campaign in campaigns:
            started = time.monotonic()
            count = max(1, round(campaign.count * scale))
            result = campaign.work(uri, count, Random(f"{seed} {campaign.name}"))
            line = row(campaign, result, time.monotonic() - started, about)
            print(line, *result.worst, sep="\n  ", flush=True)
            yield campaign, line, result.damage


def write(campaign: Campaign, line: str) -> None:
    """Replace a campaign's row in docs/contributing/soak.md."""
    page = TABLE.read_text("utf-8").splitlines() if TABLE.exists() else []
    every = CAMPAIGNS + ON_MONGOD7
    last = {one.about: old for one in every for old in page if old.startswith(f"| {one.about} |")} | {
        campaign.about: line
    }
    lines = [last[one.about] for one in every if one.about in last]
    TABLE.write_text(HEADER + "\n".join(lines) + "\n", "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns 1 if a campaign did damage."""
    names = [campaign.name for campaign in CAMPAIGNS]
    parser = argparse.ArgumentParser(
        description="Disturb the job in every way, many times, and see what is left."
    )
    parser.add_argument("--only", action="append", choices=names, help="a campaign; may be given again")
    parser.add_argument(
        "--scale", type=float, help="share of the trials; docs/contributing/soak.md stays unchanged"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--mongod7", action="store_true", help=f"on MongoDB 7.0, by default at a scale of {MONGOD7_SCALE}"
    )
    options = parser.parse_args(arguments)
    if options.mongod7:
        use_mongod7()
    campaigns, scale = (ON_MONGOD7, MONGOD7_SCALE) if options.mongod7 else (CAMPAIGNS, 1.0)
    chosen = [campaign for campaign in campaigns if campaign.name in (options.only or names)]
    total = Damage()
    for campaign, line, damage in soak(chosen, options.scale or scale, options.seed):
        total += damage
        if options.scale is None:
            write(campaign, line)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
