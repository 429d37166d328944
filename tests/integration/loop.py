"""The exhaustive campaign: every MongoDB command that a job sends, and every harm that can come to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pymongo import MongoClient

from tests.integration.campaign import Arena, Harm, Material, Result, State, arena, trial
from tests.integration.forks import Ended, Forks
from tests.integration.wire import Fault, Kind, Wire

SMALL = Material.made(60, seed=11, batch_records=16)
DONE, REFUSED, UNREACHABLE = 0, 3, 69
KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Loop:
    """A job that is run again and again through a wire that does harm.

    mode      `backfill` or `run`
    commands  how many commands an undisturbed run sends
    state     what it leaves
    """

    arena: Arena
    forks: Forks
    wire: Wire
    mode: str = "backfill"
    commands: int = 0
    state: State | None = None

    def run(self, fault: Fault | None = None, hasty: bool = False, records: bool = False) -> Ended:
        """Run the job to its end, by this harm or by itself."""
        limits = {"connect_seconds": 0.3, "patience_seconds": 0.5} if hasty else {}
        config = self.arena.config_file(limits=limits)
        pid = 0

        def kill() -> None:
            os.kill(pid, signal.SIGKILL)

        self.wire.arm(fault, kill, records)
        pid = self.forks.start([self.mode, "-c", str(config)], self.wire.uri)
        return self.forks.ended()

    def disturbed(self, *faults: Fault) -> Result:
        """Disturb one run after the other, let a last one finish, and see what is left."""
        assert self.state
        self.arena.reset()
        harm = Harm()
        for place, fault in enumerate(faults):
            ended = self.run(fault, hasty=fault.kind is Kind.GONE)
            in_time = place and ended.code in (DONE, REFUSED)  # a run that finishes another sends less
            harm += Harm(misled=int(not in_time and ended.code not in _expected(fault)))
        if ended.code not in (DONE, REFUSED):
            ended = self.run()
            harm += Harm(misled=int(ended.code not in (DONE, REFUSED)))
        about = " and ".join(f"{fault.kind} {fault.number}" for fault in faults)
        return trial(harm + self.arena.harm(self.state), f"{about}, exit {ended.code} {ended.said.strip()}")

    def trials(self, kinds: Iterable[Kind], every: int = 1, times: int = 1) -> Result:
        """Do each harm to every n-th command."""
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
        made = Loop(place, forks, wire, mode)
        ended = made.run()
        assert ended.code == REFUSED, ended
        yield replace(made, commands=wire.sent, state=place.state())
