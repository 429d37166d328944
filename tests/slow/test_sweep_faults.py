"""Each fault at each command of a sweep, in a process of its own: the next sweep leaves what it should."""

from __future__ import annotations

import os
import signal

import pytest

from scripts.bench.corpus import Mix, generate
from tests.support.fault_proxy import Fault, Kind, Wire
from tests.support.forked_commands import Ended, Forks
from tests.support.job import RAW, Job
from tests.support.sweep_cases import ARCHIVE, archived, records

KINDS = (Kind.KILLED_BEFORE, Kind.KILLED_AFTER, Kind.REQUEST_LOST, Kind.REPLY_LOST)


def run(job: Job, forks: Forks, wire: Wire, fault: Fault | None = None) -> Ended:
    pid = 0

    def kill() -> None:
        os.kill(pid, signal.SIGKILL)

    wire.arm(fault, kill)
    arguments = ("sweep", "--archive", ARCHIVE, "--yes", "-c", str(job.config_file()))
    pid = forks.start(arguments, {**os.environ, "DEDUP_SOURCE_URI": wire.uri})
    return forks.ended()


@pytest.mark.longest
@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_survives_each_fault_at_each_command(job: Job, forks: Forks, kind: Kind) -> None:
    job.set("source", fields=["data"])
    made = generate(60, seed=7, mix=Mix(duplicates=0.5, odd=0.05))
    job.source.insert_many([{**record, "_id": number} for number, record in enumerate(made)])
    bare = job.without_copies()
    bare.decide("backfill")
    before = records(bare)
    due = {row["_id"] for row in bare.ledger("dropped").find()}
    with Wire(bare.uri) as wire:
        assert run(bare, forks, wire).code == 0
        moved, commands = archived(bare), wire.sent
        assert moved == {key: before[key] for key in due}
        for number in range(1, commands + 1):
            bare.database[ARCHIVE].delete_many({})
            bare.source.delete_many({})
            bare.source.with_options(RAW).insert_many([RAW.document_class(raw) for raw in before.values()])
            bare.ledger("head").update_one({}, {"$unset": {"sweep": ""}})
            about = f"{kind} at command {number} of {commands}"

            ended = run(bare, forks, wire, Fault(kind, number))

            is_kill = kind in (Kind.KILLED_BEFORE, Kind.KILLED_AFTER)
            assert ended.code == (-signal.SIGKILL if is_kill else 0), f"{about}: {ended.said}"
            assert records(bare) | archived(bare) == before, about
            assert run(bare, forks, wire).code == 0, about
            assert archived(bare) == moved, about
            assert records(bare) == {key: before[key] for key in before.keys() - due}, about
