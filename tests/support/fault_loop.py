"""The exhaustive campaign: every fault at every MongoDB command that a job sends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from pymongo import MongoClient

from tests.support.campaign import Arena, Damage, Material, Result, Snapshot, State, arena, trial
from tests.support.fault_proxy import Fault, Kind, Wire
from tests.support.forked_commands import Ended, Forks

SMALL = Material.made(60, seed=11, batch_records=16)
DONE, REFUSED, UNREACHABLE = 0, 3, 69
KILLED = -signal.SIGKILL
# Times that a job is killed before it may finish.
LIVES = 5


@dataclass(frozen=True)
class Loop:
    """A job that is run repeatedly through a proxy that causes faults.

    Attributes:
        command: The command to run: `backfill`, `run` or another.
        commands: Number of MongoDB commands that an undisturbed run sends.
        state: The result of an undisturbed run.
        before: The state at the beginning; None for an empty target.
    """

    arena: Arena
    forks: Forks
    wire: Wire
    command: tuple[str, ...] = ("backfill",)
    commands: int = 0
    state: State | None = None
    before: Snapshot | None = None

    def run(self, fault: Fault | None = None, hasty: bool = False, records: bool = False) -> Ended:
        """Run the job to its end, with a fault or undisturbed."""
        limits = {"connect_seconds": 0.3, "retry_seconds": 0.5} if hasty else {}
        config = self.arena.config_file(limits=limits)
        pid = 0

        def kill() -> None:
            os.kill(pid, signal.SIGKILL)

        self.wire.arm(fault, kill, records)
        pid = self._start(config)
        return self.forks.ended()

    def _start(self, config: Path) -> int:
        uri = self.wire.uri
        environment = {**os.environ, "DEDUP_SOURCE_URI": uri, "DEDUP_TARGET_URI": uri}
        return self.forks.start([*self.command, "-c", str(config)], environment)

    def disturbed(self, *faults: Fault) -> Result:
        """Disturb runs one after another, let a last run finish, and return the damage."""
        assert self.state
        self.arena.reset(self.before)
        damage = Damage()
        for place, fault in enumerate(faults):
            ended = self.run(fault, hasty=fault.kind is Kind.GONE)
            # A run that finishes another run's work sends fewer commands.
            in_time = place and ended.code in (DONE, REFUSED)
            damage += Damage(misled=int(not in_time and ended.code not in _expected(fault)))
        if ended.code not in (DONE, REFUSED):
            ended = self.run()
            damage += Damage(misled=int(ended.code not in (DONE, REFUSED)))
        about = " and ".join(f"{fault.kind} {fault.number}" for fault in faults)
        return trial(
            damage + self.arena.damage(self.state), f"{about}, exit {ended.code} {ended.said.strip()}"
        )

    def trials(self, kinds: Iterable[Kind], every: int = 1, times: int = 1) -> Result:
        """Cause each fault at every n-th command."""
        moments = range(1, self.commands + 1, every)
        faults = [Fault(kind, number, times) for kind in kinds for number in moments]
        return sum((self.disturbed(fault) for fault in faults), Result())

    def twice_killed(self, count: int, rng: Random) -> Result:
        """Kill a run, and the run that continues it, at random commands."""
        kinds = (Kind.KILLED_BEFORE, Kind.KILLED_AFTER)
        result = Result()
        for _ in range(count):
            first, second = (Fault(rng.choice(kinds), rng.randint(1, self.commands)) for _ in range(2))
            result += self.disturbed(first, second)
        return result

    def struck(self, count: int, rng: Random) -> Result:
        """Kill a run, and some of its successors, at random times; then let a run finish."""
        assert self.state
        seconds, result = self._seconds(), Result()
        while result.trials < count:
            self.arena.reset()
            killed = 0
            for _ in range(min(LIVES, count - result.trials)):
                ended = self._killed_after(rng.uniform(0, seconds))
                if ended.code != KILLED:
                    break
                killed += 1
            if ended.code == KILLED:
                ended = self.run()
            damage = Damage(misled=int(ended.code not in (DONE, REFUSED))) + self.arena.damage(self.state)
            about = (f"killed {killed} times, exit {ended.code} {ended.said.strip()}: {damage}",)
            result += Result(killed, damage, about if damage else ())
        return result

    def _seconds(self) -> float:
        """Return the duration of an undisturbed run, in seconds."""
        self.arena.reset()
        started = time.monotonic()
        self.run()
        return time.monotonic() - started

    def _killed_after(self, seconds: float) -> Ended:
        """Run the job, and kill it after some seconds unless it has ended."""
        self.wire.arm(None, lambda: None, False)
        pid = self._start(self.arena.config_file())
        with _process(pid) as process:

            def kill() -> None:
                # The process has just ended.
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)

            timer = threading.Timer(seconds, kill)
            timer.start()
            ended = self.forks.ended()
            timer.cancel()
            timer.join()
        return ended


@contextmanager
def _process(pid: int) -> Iterator[int]:
    """Return a handle of this process, which cannot refer to a later process with the same id."""
    process = os.pidfd_open(pid)
    try:
        yield process
    finally:
        os.close(process)


def _expected(fault: Fault) -> tuple[int, ...]:
    """Return the exit codes that a run with this fault may have."""
    if fault.kind is Kind.GONE:
        return (UNREACHABLE,)
    if fault.kind in (Kind.KILLED_BEFORE, Kind.KILLED_AFTER):
        return (KILLED,)
    return (DONE, REFUSED)


@contextmanager
def loop(uri: str, forks: Forks, material: Material = SMALL, mode: str = "backfill") -> Iterator[Loop]:
    """Return a loop that knows the commands and the result of an undisturbed run."""
    with MongoClient[Any](uri, tz_aware=True) as client, arena(client, material) as place, Wire(uri) as wire:
        made = Loop(place, forks, wire, (mode,))
        ended = made.run()
        assert ended.code == REFUSED, ended
        yield replace(made, commands=wire.sent, state=place.state())


@contextmanager
def syncing(uri: str, forks: Forks, material: Material = SMALL) -> Iterator[Loop]:
    """Return a loop of `sync`, with a backfill before the source changed."""
    with loop(uri, forks, material) as decided:
        before = decided.arena.snapshot()
        decided.arena.overtake(Random(5))
        made = replace(decided, command=("sync", "--yes"), before=before)
        ended = made.run()
        assert ended.code in (DONE, REFUSED), ended
        yield replace(made, commands=made.wire.sent, state=made.arena.state())
