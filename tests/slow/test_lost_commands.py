"""Lost commands and lost replies of `undo` and `restore`: the outcome is the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from pymongo import common

from dedup_job.errors import Unreachable
from tests.support.fault_proxy import Fault, Kind, Wire
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.restore_cases import in_target, restore, with_two_copies
from tests.support.undo_cases import odd_run, state, undo

pytestmark = pytest.mark.long

Make = Callable[[], Job]
EVERY = int(os.environ.get("DEDUP_TEST_EVERY", "20"))  # 1 disturbs each command
LOST = (Kind.REQUEST_LOST, Kind.REPLY_LOST)


@pytest.fixture
def wire(job: Job, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A proxy that all jobs of this process go through."""
    install(monkeypatch)
    monkeypatch.setattr(common, "MIN_HEARTBEAT_INTERVAL", 0.02)  # look soon whether the server is there again
    with Wire(job.uri) as proxy:
        monkeypatch.setenv("DEDUP_SOURCE_URI", proxy.uri)
        yield proxy


def disturbed(
    wire: Wire, make: Make, work: Callable[[Job], object], check: Callable[[Job, Fault], None]
) -> None:
    """Lose a command or its answer, once, and again when the driver repeats it; one after the other."""
    wire.arm(None)
    work(make())
    for number in range(1, wire.sent + 1, EVERY):
        for fault in (Fault(kind, number, times) for kind in LOST for times in (1, 2)):
            job = make()
            wire.arm(fault)
            work(job)
            check(job, fault)


@pytest.mark.longest
def test_an_undo_whose_commands_or_answers_are_lost_is_the_same(job: Job, twin: Make, wire: Wire) -> None:
    before, run = odd_run(job)

    def check(half: Job, fault: Fault) -> None:
        assert state(half) == before, fault

    disturbed(wire, twin, lambda half: undo(half, run), check)


def test_a_restore_whose_commands_or_answers_are_lost_is_the_same(job: Job, twin: Make, wire: Wire) -> None:
    with_two_copies(job)

    def check(half: Job, fault: Fault) -> None:
        assert in_target(half) == [1, 2, 3], fault
        assert (half.rows("dropped"), half.rows("overrides").keys()) == ({}, {"2", "3"}), fault

    disturbed(wire, twin, lambda half: restore(half, "2", "3"), check)


@pytest.mark.longest
def test_an_undo_whose_server_goes_is_ended_by_doing_it_again(job: Job, twin: Make, wire: Wire) -> None:
    before, run = odd_run(job)
    wire.arm(None)
    undo(twin(), run)
    for number in range(1, wire.sent + 1, EVERY):
        half = twin()
        wire.arm(Fault(Kind.GONE, number))
        with half.hasty(), pytest.raises(Unreachable):
            undo(half, run)
        wire.arm(None)
        undo(half, run)
        assert state(half) == before, number
