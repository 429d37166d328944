"""Each fault at each command of mark, sweep and promote, in a process of its own: the next one finishes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scripts.bench.corpus import Mix, generate
from tests.support.fault_proxy import Fault, Kind, Wire
from tests.support.forked_commands import Ended, Forks
from tests.support.job import RAW, Job
from tests.support.sweep_cases import ARCHIVE, archived, records

KINDS = (Kind.KILLED_BEFORE, Kind.KILLED_AFTER, Kind.REQUEST_LOST, Kind.REPLY_LOST)
SWEEP = ("sweep", "--archive", ARCHIVE, "--yes")
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def decided(job: Job) -> Job:
    """Return a job whose backfill has decided made-up records."""
    job.set("source", fields=["data"])
    made = generate(60, seed=7, mix=Mix(duplicates=0.5, odd=0.05))
    job.source.insert_many([{**record, "_id": number} for number, record in enumerate(made)])
    job.decide("backfill")
    return job


@pytest.fixture
def bare(decided: Job) -> Job:
    """Return a job that has decided the same records without copying any."""
    bare = decided.without_copies()
    bare.decide("backfill")
    return bare


def run(job: Job, forks: Forks, wire: Wire, *arguments: str, fault: Fault | None = None) -> Ended:
    pid = 0

    def kill() -> None:
        os.kill(pid, signal.SIGKILL)

    wire.arm(fault, kill)
    servers = {"DEDUP_SOURCE_URI": wire.uri, "DEDUP_TARGET_URI": wire.uri}
    pid = forks.start((*arguments, "-c", str(job.config_file())), {**os.environ, **servers})
    return forks.ended()


def check_each_command(
    command: Callable[..., Ended],
    wire: Wire,
    kind: Kind,
    reset: Callable[[], object],
    state: Callable[[], Any],
    check: Callable[[str], object],
) -> None:
    """Run a command with a fault at each of its MongoDB commands, and run it again.

    Args:
        command: Runs it, with a `fault` or without.
        wire: The proxy.
        kind: The kind of fault.
        reset: Undoes what the command has done.
        state: Returns everything that must be as after an undisturbed command.
        check: Called after each fault; raises if something is lost. Its argument describes the fault.
    """
    assert command().code == 0
    whole, commands = state(), wire.sent
    for number in range(1, commands + 1):
        reset()
        about = f"{kind} at command {number} of {commands}"

        ended = command(fault=Fault(kind, number))

        is_kill = kind in (Kind.KILLED_BEFORE, Kind.KILLED_AFTER)
        assert ended.code == (-signal.SIGKILL if is_kill else 0), f"{about}: {ended.said}"
        check(about)
        again = command()
        assert again.code == 0, f"{about}: {again.said}"
        assert state() == whole, about


def refill(job: Job, before: dict[Any, bytes], name: str) -> None:
    """Put the source's records back, and forget the progress of mark or sweep."""
    job.database[ARCHIVE].delete_many({})
    job.source.delete_many({})
    job.source.with_options(RAW).insert_many([RAW.document_class(raw) for raw in before.values()])
    job.ledger("head").update_one({}, {"$unset": {name: ""}})


@pytest.mark.longest
@each_kind
def test_a_marking_survives_each_fault_at_each_command(bare: Job, forks: Forks, kind: Kind) -> None:
    before = records(bare)
    due = {row["_id"] for row in bare.ledger("dropped").find()}

    def check(about: str) -> None:
        found = bare.source.find({"dedup": {"$exists": True}})
        assert {one["_id"] for one in found} <= due, about
        bare_records = bare.source.aggregate([{"$unset": "dedup"}])
        assert {one["_id"] for one in bare_records} == before.keys(), about

    with Wire(bare.uri) as wire:
        mark = partial(run, bare, forks, wire, "mark", "--yes")
        check_each_command(
            mark, wire, kind, partial(refill, bare, before, "mark"), partial(records, bare), check
        )
    marked = {one["_id"] for one in bare.source.find({"dedup": {"$exists": True}})}
    assert marked == due
    assert len(due) > 20


@pytest.mark.longest
@each_kind
def test_a_sweep_survives_each_fault_at_each_command(bare: Job, forks: Forks, kind: Kind) -> None:
    before = records(bare)
    due = {row["_id"] for row in bare.ledger("dropped").find()}

    def check(about: str) -> None:
        assert records(bare) | archived(bare) == before, about

    with Wire(bare.uri) as wire:
        sweep = partial(run, bare, forks, wire, *SWEEP)
        check_each_command(
            sweep,
            wire,
            kind,
            partial(refill, bare, before, "sweep"),
            lambda: (records(bare), archived(bare)),
            check,
        )
    assert archived(bare) == {key: before[key] for key in due}
    assert records(bare) == {key: before[key] for key in before.keys() - due}


@pytest.mark.longest
@each_kind
@pytest.mark.parametrize("is_back", [False, True], ids=["promote", "back"])
def test_a_promotion_survives_each_fault_at_each_command(
    decided: Job, forks: Forks, kind: Kind, is_back: bool
) -> None:
    before = records(decided)

    def state() -> Any:
        """Return the collections that are not the ledger's: their UUIDs and records, by name."""
        return {
            one["name"]: (one["info"]["uuid"], records(decided, one["name"]))
            for one in decided.database.list_collections()
            if ".dedup." not in one["name"]
        }

    def check(about: str) -> None:
        found = [records(decided, name) for name in ("pages", "pages_before")]
        assert before in found, about

    with Wire(decided.uri) as wire:
        promote = partial(run, decided, forks, wire, "promote", "--yes")
        back = partial(run, decided, forks, wire, "promote", "--back", "--yes")
        there, return_ = (back, promote) if is_back else (promote, back)
        if is_back:
            assert promote().code == 0

        def reset() -> None:
            done = return_()
            assert done.code == 0, done.said

        check_each_command(there, wire, kind, reset, state, check)
