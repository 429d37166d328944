from __future__ import annotations

from collections import Counter
from itertools import count
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.analysis.duplicate_rate import (
    FREQUENT_GROUP,
    SampledCopies,
    _chance,
    estimate_distant_copies,
    sample_size_for,
)

# Sizes of the groups of a made-up collection: how many groups there are of each size.
COLLECTIONS = {
    "no copies": {1: 20_000},
    "pairs": {1: 8_000, 2: 6_000},
    "few pairs": {1: 19_600, 2: 200},
    "sevens": {1: 10_000, 7: 1_400},
    "one large group and pairs": {1: 8_000, 2: 2_000, 8_000: 1},
    "all sizes": {size: 4_000 // size**2 + 1 for size in range(1, 60)},
    "one text": {20_000: 1},
}


def met(groups: dict[int, int], share: float, rng: Random) -> dict[int, int]:
    """Sample each record with a probability, and count how often each group was met."""
    times: Counter[int] = Counter()
    for size, number in groups.items():
        for _ in range(number):
            times[sum(rng.random() < share for _ in range(size))] += 1
    return {one: number for one, number in times.items() if one}


@pytest.mark.parametrize("name", COLLECTIONS)
@pytest.mark.parametrize("share", [0.03, 0.1, 0.3])
def test_the_true_share_lies_between_the_ends(name: str, share: float) -> None:
    groups = COLLECTIONS[name]
    records = sum(size * number for size, number in groups.items())
    true = 1 - sum(groups.values()) / records
    for seed in range(5):
        span = estimate_distant_copies(records, met(groups, share, Random(seed)))
        assert span.low <= true + 1e-9
        assert true <= span.high + 1e-9
        assert span.low <= span.likely <= span.high


@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_large_sample_names_the_share_well(name: str) -> None:
    groups = COLLECTIONS[name]
    records = sum(size * number for size, number in groups.items())
    true = 1 - sum(groups.values()) / records
    span = estimate_distant_copies(records, met(groups, 0.3, Random(7)))
    assert span.likely == pytest.approx(true, abs=0.03)  # chance alone moves it by 0.013


def test_a_small_sample_without_copies_does_not_say_that_there_are_none() -> None:
    span = estimate_distant_copies(50_000_000, {1: 5_000})
    assert span.low == span.likely == 0
    assert span.high > 0.5
    # Two texts of nine thousand records were met twice, so there are 2 (N / n)^2 pairs, if these are pairs.
    assert estimate_distant_copies(10_000_000, {1: 8_996, 2: 2}).likely == pytest.approx(
        2 * 10_000_000 / 9_000**2
    )


def test_the_lower_end_leaves_room_for_chance() -> None:
    assert estimate_distant_copies(1_000_000, {1: 9_800, 2: 100}).low == pytest.approx(
        (100 - 2 * 10) / 10_000
    )
    assert estimate_distant_copies(1_000_000, {1: 9_998, 2: 1}).low == 0


@given(st.dictionaries(st.integers(1, 400), st.integers(1, 50), min_size=1), st.floats(1.0, 1e5))
def test_the_likely_share_is_between_its_ends_whatever_was_met(groups: dict[int, int], factor: float) -> None:
    sampled = sum(times * number for times, number in groups.items())
    span = estimate_distant_copies(int(sampled * factor), groups)
    assert 0 <= span.low <= span.likely <= span.high <= 1


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1), min_size=1))
def test_of_a_sample_of_all_records_the_share_is_counted(texts: list[list[str]]) -> None:
    stretches = [[text.encode() for text in stretch] for stretch in texts]
    distinct = {text for stretch in texts for text in stretch}
    total = sum(map(len, texts))
    span = SampledCopies.of(total, stretches).dropped()
    assert span.low == span.high == span.likely == pytest.approx(1 - len(distinct) / total)


def test_copies_beside_their_original_are_taken_as_they_are_and_those_far_apart_are_raised() -> None:
    names = (f"{number}".encode() for number in count())
    beside = [[name for _ in range(50) for name in [next(names)] * 2] for _ in range(20)]
    span = SampledCopies.of(2_000_000, beside).dropped()
    assert span.likely == pytest.approx(0.5)
    assert span.low == pytest.approx(0.5)
    copies = SampledCopies.of(200_000, [[b"a", b"a", b"b"], [b"b", b"c"], [b"a"]])
    assert copies.sampled == 6
    assert copies.nearby == [1, 0, 0]
    assert copies.met == {2: 2, 1: 1}
    assert copies.repeated == 2


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_chances_are_those_of_the_binomial_distribution(size: int, times: int, share: float) -> None:
    expected = comb(size, times) * share**times * (1 - share) ** (size - times) if times <= size else 0.0
    assert _chance(times, size, share) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_a_group_met_often_is_as_large_as_it_seems() -> None:
    span = estimate_distant_copies(100_000, {1: 8_000, 20 * FREQUENT_GROUP: 6})
    assert span.likely == pytest.approx(6 * 20 * FREQUENT_GROUP * 10 / 100_000, abs=0.05)


def test_as_many_records_as_are_asked_for_show_enough_pairs() -> None:
    sampled = sample_size_for(1_000_000, 0.3)
    groups = {1: 400_000, 2: 300_000}
    assert met(groups, sampled / 1_000_000, Random(3))[2] >= 10
