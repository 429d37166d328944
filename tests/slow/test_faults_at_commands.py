"""Disturbed at one of its MongoDB commands, in every way there is, a job leaves what an undisturbed one does.

A sample with a fixed seed; `make soak` does it to every command.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from scripts.dev.local_mongod import LocalMongod
from tests.support.campaign import Damage, Material, Result
from tests.support.commit_model import Model, is_path
from tests.support.commit_steps import steps
from tests.support.fault_loop import KILLED, REFUSED, Loop, loop, syncing
from tests.support.fault_proxy import Fault, Kind
from tests.support.forked_commands import Forks

pytestmark = pytest.mark.long

TRIALS = 6
GONE = pytest.param(Kind.GONE, marks=pytest.mark.longest)  # takes longest


@pytest.fixture(scope="module")
def looped(mongo_uri: str, forks: Forks) -> Iterator[Loop]:
    with loop(mongo_uri, forks) as made:
        yield made


@pytest.fixture(scope="module")
def alone(forks: Forks) -> Iterator[Loop]:
    """A standalone server: the driver repeats nothing there."""
    with LocalMongod(replica_set=False) as server, loop(server.uri, forks) as made:
        yield made


def sampled(looped: Loop, kind: Kind, times: int = 1) -> Result:
    moments = Random(f"{kind} {times}").sample(range(1, looped.commands + 1), TRIALS)
    return sum((looped.disturbed(Fault(kind, moment, times)) for moment in moments), Result())


@pytest.fixture(scope="module")
def applied(mongo_uri: str, forks: Forks) -> Iterator[Loop]:
    with syncing(mongo_uri, forks) as made:
        yield made


@pytest.mark.parametrize("kind", [Kind.KILLED_BEFORE, Kind.KILLED_AFTER, GONE, Kind.REPLY_LOST])
def test_a_sync_that_is_disturbed_at_a_command_is_ended_by_doing_it_again(applied: Loop, kind: Kind) -> None:
    assert sampled(applied, kind) == Result(TRIALS)


@pytest.mark.parametrize("kind", [Kind.KILLED_BEFORE, Kind.KILLED_AFTER, GONE])
def test_a_run_that_is_ended_at_a_command_is_finished_by_the_next(looped: Loop, kind: Kind) -> None:
    assert sampled(looped, kind) == Result(TRIALS)


@pytest.mark.parametrize("kind", [Kind.REQUEST_LOST, Kind.REPLY_LOST])
def test_a_command_that_fails_is_repeated_by_the_job(alone: Loop, kind: Kind) -> None:
    assert sampled(alone, kind) == Result(TRIALS)


@pytest.mark.parametrize("kind", [Kind.REQUEST_LOST, Kind.REPLY_LOST])
def test_a_command_that_fails_again_when_the_driver_repeats_it_is_repeated_by_the_job(
    looped: Loop, kind: Kind
) -> None:
    assert sampled(looped, kind, times=2) == Result(TRIALS)


def test_a_nightly_run_that_is_killed_is_finished_by_the_next(mongo_uri: str, forks: Forks) -> None:
    with loop(mongo_uri, forks, mode="run") as looped:
        assert sampled(looped, Kind.KILLED_AFTER) == Result(TRIALS)


def test_a_run_is_killed_and_so_is_the_one_that_finishes_it(looped: Loop) -> None:
    assert looped.twice_killed(TRIALS, Random(3)) == Result(TRIALS)


def test_a_run_that_is_killed_at_any_moment_is_finished_by_the_next(looped: Loop) -> None:
    assert looped.struck(TRIALS, Random(5)) == Result(TRIALS)


def test_the_undisturbed_job_has_all_that_a_campaign_needs(looped: Loop) -> None:
    assert looped.state
    verdicts = [verdict for decided in looped.state.decided.values() for verdict in decided]
    reasons = {reason for _, reason, _ in verdicts}
    assert {"", "exact", "near", "validator", "empty"} <= reasons
    assert len(looped.state.head) == 5
    assert looped.state.head[1:] == (4, None, None, True)
    assert looped.commands > 50


def test_what_is_wrong_is_counted(looped: Loop) -> None:
    assert looped.state
    looped.arena.reset()
    assert looped.run().code == REFUSED
    assert looped.arena.damage(looped.state) == Damage()

    target, dropped = looped.arena.database["unique"], looped.arena.ledger("dropped")
    keeper = dropped.find_one()["keeper"]
    stands_for = dropped.count_documents({"keeper": keeper})
    target.delete_one({"_id": keeper})
    assert looped.arena.damage(looped.state).lost == 1 + stands_for
    row = dropped.find_one_and_delete({})
    assert looped.arena.damage(looped.state).different == 1
    target.insert_one({"_id": row["_id"], "other": 1})
    assert looped.arena.damage(looped.state) == Damage(1 + stands_for, 1, 2)


MODEL = Model(groups={1: "A", 2: "A", 3: "A", 4: "B", 5: "A", 6: "C", 7: "C"}, refused=frozenset({1, 2}))
TEXTS = {
    "A": "清晨的集市上挤满了买菜的人，卖豆腐的老人一边吆喝一边给熟客切下一大块。",
    "B": "The lighthouse keeper wrote down every ship that passed in a book bound in green cloth.",
    "C": "山里的小学只有十二个学生，老师每天要走两个小时的路去给他们上课。",
}


@pytest.fixture
def watched(mongo_uri: str, forks: Forks, tmp_path: Path) -> Iterator[Loop]:
    """The records of the model, each group a text."""
    records = tuple({"_id": number, "data": TEXTS[group]} for number, group in MODEL.groups.items())
    with loop(mongo_uri, forks, Material(records, tuple(MODEL.refused), MODEL.chunk)) as made:
        yield made


def test_what_a_run_sends_are_the_steps_of_the_model(watched: Loop) -> None:
    watched.arena.reset()
    assert watched.run(records=True).code == REFUSED
    whole = steps(watched.wire.commands, "unique")

    assert is_path(MODEL, [whole])
    assert {"retract exceptions", "forget", "clean", "end", "insert 6"} <= set(whole)
    tries = whole.index("insert 1")
    assert whole[tries : tries + 4] == ["insert 1", "store", "accept", "forget"]
    assert whole[tries + 4 : tries + 7] == ["insert 2", "try 3", "insert 3"]


@pytest.mark.longest
def test_what_a_killed_run_and_its_successor_send_are_steps_of_the_model(watched: Loop) -> None:
    for number in range(6, watched.commands, 5):
        watched.arena.reset()
        killed = Fault(Kind.KILLED_AFTER, number)
        assert watched.run(killed, records=True).code == KILLED
        first = steps(watched.wire.commands, "unique")
        assert watched.run(records=True).code in (0, REFUSED)
        assert is_path(MODEL, [first, steps(watched.wire.commands, "unique")]), first
