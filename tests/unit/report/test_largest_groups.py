from __future__ import annotations

from collections.abc import Iterable

from dedup_job.report.evidence import MEMBERS, LargestGroups


def counted(most: int, keepers: Iterable[bytes]) -> LargestGroups[int]:
    largest: LargestGroups[int] = LargestGroups(most)
    for number, keeper in enumerate(keepers):
        largest.add(keeper, number)
    return largest


def test_some_duplicates_of_the_largest_groups_are_remembered() -> None:
    largest = counted(1, [b"a", b"b", b"b", b"a", b"b"])
    assert largest.sizes() == [(b"b", 3)]
    assert largest.members(b"b") == [1, 2, 4]


def test_no_group_has_more_of_them_than_are_shown() -> None:
    assert counted(1, [b"a"] * 100).members(b"a") == list(range(MEMBERS))


def test_those_of_small_groups_are_forgotten() -> None:
    largest = counted(2, [b"great"] * 5 + [b"small %d" % number for number in range(1_000)])
    assert len(largest._members) <= 8
    assert largest.members(b"great") == [0, 1, 2, 3, 4]


def test_a_group_that_grows_late_has_members_too() -> None:
    keepers = [b"small %d" % (number // 3) for number in range(300)] + [b"late"] * 10
    largest = counted(2, keepers)
    assert largest.sizes()[0] == (b"late", 10)
    assert largest.members(b"late")
    assert {keepers[number] for number in largest.members(b"late")} == {b"late"}
