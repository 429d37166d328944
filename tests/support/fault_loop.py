"""The exhaustive campaign: every MongoDB command that a job sends, and every fault that can come to it."""

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
LIVES = 5  # kills until a job is let finish


@dataclass(frozen=True)
class Loop:
    """A job that is run again and again through a wire that causes faults.

    command   what it is told: `backfill`, `run` or another
    commands  how many commands an undisturbed run sends
    state     what it leaves
    before    what is there when it begins; None for nothing
    """

    arena: Arena
    forks: Forks
    wire: Wire
    command: tuple[str, ...] = ("backfill",)
    commands: int = 0
    state: State | None = None
    before: Snapshot | None = None

    def run(self, fault: Fault | None = None, hasty: bool = False, records: bool = False) -> Ended:
        """Run the job to its end, by this fault or by itself."""
        limits = {"connect_seconds": 0.3, "patience_seconds": 0.5} if hasty else {}
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
        """Disturb one run after the other, let a last one finish, and see what is left."""
        assert self.state
        self.arena.reset(self.before)
        damage = Damage()
        for place, fault in enumerate(faults):
            ended = self.run(fault, hasty=fault.kind is Kind.GONE)
            in_time = place and ended.code in (DONE, REFUSED)  # a run that finishes another sends less
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
        """Kill a run, and the one that finishes it, at random commands."""
        kinds = (Kind.KILLED_BEFORE, Kind.KILLED_AFTER)
        result = Result()
        for _ in range(count):
            first, second = (Fault(rng.choice(kinds), rng.randint(1, self.commands)) for _ in range(2))
            result += self.disturbed(first, second)
        return result

    def struck(self, count: int, rng: Random) -> Result:
        """Kill a run, and some of its successors, at random moments of the clock; then let one finish."""
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
        """Return how long an undisturbed run takes."""
        self.arena.reset()
        started = time.monotonic()
        self.run()
        return time.monotonic() - started

    def _killed_after(self, seconds: float) -> Ended:
        """Run the job and kill it after so long, if it has not ended before."""
        self.wire.arm(None, lambda: None, False)
        pid = self._start(self.arena.config_file())
        with _process(pid) as process:

            def kill() -> None:
                with suppress(ProcessLookupError):  # it has ended in that moment
                    signal.pidfd_send_signal(process, signal.SIGKILL)

            timer = threading.Timer(seconds, kill)
            timer.start()
            ended = self.forks.ended()
            timer.cancel()
            timer.join()
        return ended


@contextmanager
def _process(pid: int) -> Iterator[int]:
    """Give a handle that means this process and no later one of the same number."""
    process = os.pidfd_open(pid)
    try:
        yield process
    finally:
        os.close(process)


def _expected(fault: Fault) -> tuple[int, ...]:
    """Return the exit codes that a run may have to which this happens."""
    if fault.kind is Kind.GONE:
        return (UNREACHABLE,)
    if fault.kind in (Kind.KILLED_BEFORE, Kind.KILLED_AFTER):
        return (KILLED,)
    return (DONE, REFUSED)


@contextmanager
def loop(uri: str, forks: Forks, material: Material = SMALL, mode: str = "backfill") -> Iterator[Loop]:
    """Give a loop that knows what an undisturbed run sends and leaves."""
    with MongoClient[Any](uri, tz_aware=True) as client, arena(client, material) as place, Wire(uri) as wire:
        made = Loop(place, forks, wire, (mode,))
        ended = made.run()
        assert ended.code == REFUSED, ended
        yield replace(made, commands=wire.sent, state=place.state())


@contextmanager
def applying(uri: str, forks: Forks, material: Material = SMALL) -> Iterator[Loop]:
    """Give a loop that brings up to date what a backfill had decided before the source changed."""
    with loop(uri, forks, material) as decided:
        before = decided.arena.snapshot()
        decided.arena.overtake(Random(5))
        made = replace(decided, command=("reconcile", "--apply", "--yes"), before=before)
        ended = made.run()
        assert ended.code in (DONE, REFUSED), ended
        yield replace(made, commands=made.wire.sent, state=made.arena.state())
