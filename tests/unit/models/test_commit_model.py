"""The commit protocol keeps its promises in every state; without one of its protections it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.commit_model import (
    IDLE,
    Mishaps,
    Model,
    Protocol,
    World,
    is_path,
    outcome,
    search,
)
from tests.support.explorer import Violation

UNDISTURBED = [
    "take", "clean",
    "store", "accept", "insert 1", "store", "accept", "forget", "insert 2",
    "note dropped", "retract dropped", "note exceptions", "retract exceptions", "advance",
    "store", "accept", "insert 4", "note dropped", "advance",
    "cover", "end",
]  # fmt: skip


@pytest.mark.parametrize(
    "mishaps",
    [pytest.param(Mishaps(kills=2, losses=0), marks=pytest.mark.long), Mishaps(kills=1, losses=1)],
    ids=str,
)
def test_two_runs_break_no_promise_whatever_happens(mishaps: Mishaps) -> None:
    searched = search(Model(), mishaps)

    assert searched.states > 25_000
    assert searched.finished > 1_000


@pytest.mark.parametrize(
    ("protection", "promise"),
    [
        ("compared", "missing"),
        ("lands_first", "lost: a record below the watermark"),
        ("promotes", "lost: a record was dropped for one that is not in the target"),
        ("admits_landed", "lost: a record was dropped for one that is not in the target"),
        ("spares_later", "pending plan is missing"),
        ("signs", "overwritten"),
        ("notes_first", "has no row"),
    ],
)
def test_each_protection_that_is_taken_out_breaks_a_promise(protection: str, promise: str) -> None:
    weaker = replace(Protocol(), **{protection: False})

    with pytest.raises(Violation, match=promise) as broken:
        search(Model(protocol=weaker), Mishaps(kills=0, losses=0))

    assert broken.value.steps


def test_without_any_comparison_a_plan_takes_the_place_of_another() -> None:
    weaker = Protocol(compared=False, cleans=False)

    with pytest.raises(Violation, match="no accepted plan keeps"):
        search(Model(refused=frozenset(), protocol=weaker), Mishaps(kills=0, losses=0))


def test_the_fence_guards_nothing_but_the_deletion_of_unaccepted_plans() -> None:
    with pytest.raises(Violation, match="pending plan is missing"):
        search(Model(protocol=Protocol(fenced=False)), Mishaps(kills=0, losses=0))

    assert search(Model(protocol=Protocol(fenced=False, cleans=False)), Mishaps(kills=1, losses=0)).finished


def test_a_record_that_has_landed_and_is_not_recognised_is_copied_twice() -> None:
    with pytest.raises(Violation, match=r"no accepted plan keeps|doubled"):
        search(Model(protocol=Protocol(recognises=False)), Mishaps(kills=1, losses=0))


def test_no_run_goes_on_with_a_target_that_was_dropped() -> None:
    assert search(Model(), Mishaps(kills=1, losses=0, drops=1)).finished

    with pytest.raises(Violation, match="not the one it was"):
        search(Model(protocol=Protocol(checks_places=False)), Mishaps(kills=0, losses=0, drops=1))


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_plan_of_a_killed_run_drops_nothing_for_a_keeper_that_went_meanwhile(kills: int) -> None:
    assert search(Model(), Mishaps(kills=kills, losses=0, removals=1)).finished

    with pytest.raises(Violation, match="gone before its run began"):
        search(Model(protocol=Protocol(looks_again=False)), Mishaps(kills=1, losses=0, removals=1))


COPIES = Model({1: "A", 2: "A", 3: "A", 4: "A", 5: "A"}, refused=frozenset({1, 2}), chunk=4)


@pytest.mark.parametrize(
    "mishaps",
    [
        pytest.param(Mishaps(kills=2, losses=0), marks=pytest.mark.long),
        pytest.param(Mishaps(kills=1, losses=1), marks=pytest.mark.long),
        Mishaps(kills=1, losses=0, elections=1),
    ],
    ids=str,
)
def test_copies_that_are_refused_in_a_row_break_no_promise_whatever_happens(mishaps: Mishaps) -> None:
    assert search(COPIES, mishaps).finished > 1_000
    *_, target, dropped, exceptions = outcome(COPIES.undisturbed)
    assert (target, dropped, exceptions) == ({3}, {(4, 3), (5, 3)}, {1, 2})


def test_copies_of_a_refused_record_cost_an_insertion_each_and_one_more_plan() -> None:
    model = replace(COPIES, refused=frozenset({1, 2, 3}))
    first = ["take", "clean", "store", "accept", "insert 1", "store", "accept", "forget"]
    assert is_path(model, [[*first, "insert 2", "try 3", "try 4", "insert 4", "store", "accept", "forget"]])
    again = ["take", "insert 2", "store", "accept", "forget", "insert 3", "try 4"]
    assert is_path(model, [[*first, "insert 2", "try 3"], again])
    assert not is_path(model, [[*first, "insert 3"]])


def test_a_try_that_the_primary_alone_accepts_is_repeated_before_anything_relies_on_it() -> None:
    first = ["take", "clean", "store", "accept", "insert 1", "store", "accept", "forget"]
    assert is_path(COPIES, [[*first, "insert 2", "try 3", "insert 3", "store", "accept", "forget"]])
    assert not is_path(COPIES, [[*first, "insert 2", "try 3", "store"]])

    election = Mishaps(kills=0, losses=0, elections=1)
    with pytest.raises(Violation, match="a record below the watermark is not in the target"):
        search(replace(COPIES, protocol=Protocol(confirms=False)), election)


def test_copies_of_a_refused_record_that_are_all_tried_at_once_are_copied_twice() -> None:
    with pytest.raises(Violation, match="doubled"):
        search(replace(COPIES, protocol=Protocol(in_turn=False)), Mishaps(kills=0, losses=0))


def test_a_killed_run_s_tries_are_kept_though_the_target_takes_what_it_refused() -> None:
    eased = Mishaps(kills=2, losses=0, easings=1)
    assert search(COPIES, eased, processes=1).finished

    with pytest.raises(Violation, match="no accepted plan keeps"):
        search(replace(COPIES, protocol=Protocol(keeps_landed=False)), eased, processes=1)


def test_an_adopted_record_stands_for_its_copies_though_the_source_has_another_of_its_id() -> None:
    model = Model({1: "A", 2: "B", 3: "A", 4: "B", 5: "B"}, refused=frozenset({4}), adopted={2: "A"})
    assert search(model, Mishaps(kills=1, losses=1)).finished
    *_, target, dropped, exceptions = outcome(model.undisturbed)
    assert (target, dropped, exceptions) == ({2, 5}, {(1, 2), (3, 2)}, {2, 4})

    with pytest.raises(Violation, match="doubled"):
        search(replace(model, protocol=Protocol(asks_first=False)), Mishaps(kills=0, losses=0))


def test_an_undisturbed_run_makes_these_steps_and_leaves_what_the_groups_say() -> None:
    model = Model()
    assert is_path(model, [UNDISTURBED])
    _, watermark, pending, number, target, dropped, exceptions = outcome(model.undisturbed)
    assert (watermark, pending, number) == (5, None, 2)
    assert (target, dropped, exceptions) == ({2, 4}, {(3, 2), (5, 2)}, {1})


def test_other_orders_of_the_same_steps_are_no_path() -> None:
    model = Model()
    for place in range(len(UNDISTURBED) - 1):
        other = [*UNDISTURBED]
        other[place], other[place + 1] = other[place + 1], other[place]
        assert not is_path(model, [other]), other[place : place + 2]
    assert is_path(model, [UNDISTURBED[:9], ["take", "insert 2", "note dropped"]])
    assert not is_path(model, [UNDISTURBED[:9], ["take", "insert 1"]])
    assert next(iter(model.steps(World(), IDLE, 0)))[0] == ""
