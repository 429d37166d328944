"""Campaigns with whole processes: killed, stopped, paused, started at the same time, losing their workers.

Each campaign causes one kind of fault in `python -m dedup_job`, many times, at moments chosen by a seed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pymongo import MongoClient

from tests.support.campaign import Arena, Damage, Material, Result, State, arena, trial
from tests.support.waiting import HANG_SECONDS, becomes

ROOT = Path(__file__).parents[2]
FINISHED = (0, 3)
HELD = 75
ENDED_BY = {
    signal.SIGTERM: (143, -signal.SIGTERM),
    # A process that has just started has no signal handlers yet.
    signal.SIGINT: (130, -signal.SIGINT),
}
# Times that a job is killed before it may finish.
LIVES = 5
STARTERS = 8
LOSER_SECONDS = 10.0
LEAVING_SECONDS = 10.0


@dataclass(frozen=True)
class Storm:
    """A job of a few thousand records, its duration, and the result of an undisturbed run."""

    arena: Arena
    uri: str
    rng: Random
    seconds: float = 0.0
    state: State | None = None

    def start(self, **limits: float) -> subprocess.Popen[bytes]:
        """Start a backfill."""
        config = self.arena.config_file(engine={"workers": 2}, limits=limits)
        with self.log.open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "dedup_job", "backfill", "-c", str(config)],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=ROOT,
                env={**os.environ, "DEDUP_SOURCE_URI": self.uri, "DEDUP_TARGET_URI": self.uri},
            )

    @property
    def log(self) -> Path:
        """The log file of the latest run."""
        return self.arena.folder / "log"

    def finish(self) -> Damage:
        """Let a run finish."""
        return Damage(misled=int(ended(self.start()) not in FINISHED))

    def moment(self) -> float:
        """Return a random time during a run, in seconds."""
        return self.rng.uniform(0, self.seconds)

    def left(self) -> Damage:
        """Return the damage to the present state."""
        assert self.state
        return self.arena.damage(self.state)


def ended(process: subprocess.Popen[bytes], seconds: float = HANG_SECONDS) -> int | None:
    """Wait for a process and return its exit code; kill a process that hangs, and return None."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


@contextmanager
def storm(uri: str, material: Material, rng: Random) -> Iterator[Storm]:
    """Return a storm with the result of an undisturbed run."""
    with MongoClient[Any](uri, tz_aware=True) as client, arena(client, material) as place:
        calm = Storm(place, uri, rng)
        assert ended(calm.start()) in FINISHED
        place.reset()
        started = time.monotonic()
        assert ended(calm.start()) in FINISHED
        yield Storm(place, uri, rng, time.monotonic() - started, place.state())


def kills(storm: Storm, count: int) -> Result:
    """Kill a run, and its successors, at random times; after some kills each job may finish."""
    result = Result()
    while result.trials < count:
        storm.arena.reset()
        killed, damage = 0, Damage()
        for _ in range(min(LIVES, count - result.trials)):
            process = storm.start()
            with suppress(subprocess.TimeoutExpired):
                process.wait(storm.moment())
            process.kill()
            code = ended(process)
            damage += Damage(misled=int(code not in (-signal.SIGKILL, *FINISHED)))
            if code in FINISHED:
                break
            killed += 1
        damage += storm.finish()
        damage += storm.left()
        result += Result(killed, damage, (f"killed {killed} times: {damage}",) if damage else ())
    return result


def contests(storm: Storm, count: int) -> Result:
    """Start many runs at the same time: one works, and the others exit at once with the right exit code."""
    return sum((_contest(storm) for _ in range(count)), Result())


def _contest(storm: Storm) -> Result:
    storm.arena.reset()
    began = time.monotonic()
    processes = [storm.start() for _ in range(STARTERS)]
    lasted: dict[int, float] = {}
    while len(lasted) < STARTERS and time.monotonic() < began + HANG_SECONDS:
        for place, process in enumerate(processes):
            if place not in lasted and process.poll() is not None:
                lasted[place] = time.monotonic() - began
        time.sleep(0.01)
    codes = [ended(process, 0.1) for process in processes]
    worked = sum(code in FINISHED for code in codes)
    wrong = sum(code not in (*FINISHED, HELD) for code in codes)
    wrong += worked == 0 or worked != storm.arena.ledger("runs").count_documents({})
    slowest = max((lasted.get(place, 0.0) for place, code in enumerate(codes) if code == HELD), default=0.0)
    about = f"exit codes {codes}, the slowest loser after {slowest:.1f} s"
    return trial(Damage(misled=wrong + (slowest > LOSER_SECONDS)) + storm.left(), about)


def pauses(storm: Storm, count: int) -> Result:
    """Pause the lease's holder, let another run finish, and resume the first, which must not decide."""
    return sum((_pause(storm) for _ in range(count)), Result())


def _pause(storm: Storm) -> Result:
    storm.arena.reset()
    head = storm.arena.ledger("head")
    paused = storm.start()
    becomes(lambda: head.find_one({"next": {"$gte": 1}}) or paused.poll() is not None)
    with suppress(subprocess.TimeoutExpired):
        paused.wait(storm.rng.uniform(0, storm.seconds / 3))
    paused.send_signal(signal.SIGSTOP)
    # Time for the server to execute the commands it has received.
    time.sleep(0.05)
    was_held = head.find_one({"lease": {"$ne": None}}) is not None
    over = [{"$set": {"lease.until": {"$subtract": ["$$NOW", 1]}}}]
    head.update_one({"lease": {"$ne": None}}, over)
    damage = storm.finish()
    damage += storm.left()
    paused.send_signal(signal.SIGCONT)
    code = ended(paused)
    damage += Damage(misled=int(code != HELD if was_held else code not in FINISHED))
    return trial(damage + storm.left(), f"paused, then ended with {code}")


def signals(storm: Storm, count: int) -> Result:
    """Send SIGTERM or SIGINT, twice to a quarter of the runs: they end soon, and the next run finishes."""
    # Shells ignore SIGINT in background processes, which inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    result = Result()
    while result.trials < count:
        storm.arena.reset()
        for _ in range(min(LIVES, count - result.trials)):
            damage, about = _signalled(storm)
            result += trial(damage, about)
        left = storm.finish() + storm.left()
        result += Result(0, left, (f"after signals: {left}",) if left else ())
    return result


def _signalled(storm: Storm) -> tuple[Damage, str]:
    process = storm.start()
    which = storm.rng.choice((signal.SIGTERM, signal.SIGINT))
    again = storm.rng.random() < 0.25
    with suppress(subprocess.TimeoutExpired):
        process.wait(storm.moment())
    process.send_signal(which)
    if again:
        with suppress(subprocess.TimeoutExpired):
            process.wait(storm.rng.uniform(0, 0.1))
        process.send_signal(which)
    code = ended(process, LEAVING_SECONDS)
    wrong = code not in (*ENDED_BY[which], *FINISHED) and not _had_no_handlers(storm, code)
    said = storm.log.read_bytes().decode() if wrong else ""
    return Damage(
        misled=int(wrong)
    ), f"{which.name}{' twice' if again else ''}, then ended with {code}: {said}"


def _had_no_handlers(storm: Storm, code: int | None) -> bool:
    """Return whether the interpreter was still starting: it then says so, and exits with 1."""
    return code == 1 and b"KeyboardInterrupt" in storm.log.read_bytes()


def worker_losses(storm: Storm, count: int) -> Result:
    """Kill or stop worker processes during a run: they are replaced, and the result is the same."""
    return sum((_worker_lost(storm) for _ in range(count)), Result())


def _worker_lost(storm: Storm) -> Result:
    storm.arena.reset()
    process = storm.start(record_seconds=0.5)
    struck = 0
    while struck < 3 and process.poll() is None:
        time.sleep(storm.rng.uniform(0, storm.seconds / 4))
        workers = _workers_of(process.pid)
        if workers:
            how = storm.rng.choices((signal.SIGKILL, signal.SIGSTOP), (3, 1))[0]
            with suppress(ProcessLookupError):
                os.kill(storm.rng.choice(workers), how)
            struck += 1
    code = ended(process)
    return trial(
        Damage(misled=int(code not in FINISHED)) + storm.left(), f"{struck} workers lost, exit {code}"
    )


def _workers_of(pid: int) -> list[int]:
    """Return the workers of a run, which are children of its fork server."""
    return [worker for server in _children(pid) for worker in _children(server)]


def _children(pid: int) -> list[int]:
    return [int(place.parent.name) for place in Path("/proc").glob("[0-9]*/stat") if _parent(place) == pid]


def _parent(stat: Path) -> int | None:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    # The process has ended.
    except OSError:
        return None
