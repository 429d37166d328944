from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.html_page.threshold_effect import KeeperGroup, estimate_staying

STEPS = st.integers(80, 100).map(lambda step: step / 100)


@st.composite
def groups(draw: st.DrawFn) -> KeeperGroup:
    size = draw(st.integers(1, 6))
    similarity = np.array(draw(st.lists(STEPS, min_size=size, max_size=size)))
    upper = np.triu(
        np.array(draw(st.lists(STEPS, min_size=size**2, max_size=size**2))).reshape(size, size), 1
    )
    return KeeperGroup(similarity, upper + upper.T + np.eye(size), size)


@given(groups(), STEPS)
def test_what_stays_is_less_similar_to_the_keeper_and_to_all_that_stays_before_it(
    group: KeeperGroup, threshold: float
) -> None:
    kept: list[int] = []
    for row, alike in enumerate(group.similarity):
        if alike < threshold and all(group.among[row, other] < threshold for other in kept):
            kept.append(row)
    assert group.staying(threshold) == len(kept) <= group.below(threshold)


def test_a_group_of_which_some_were_looked_at_counts_whole() -> None:
    group = KeeperGroup(np.array([0.8, 0.9]), np.eye(2), near=10)
    assert (group.below(0.85), group.staying(0.85)) == (5, 5)
    found = estimate_staying([group], 0.85, below=5, drawn=1)
    assert (found.likely, found.low, found.high) == (5, 0, 5)


def test_when_all_groups_were_looked_at_the_number_is_exact() -> None:
    alike = np.array([[1, 0.95], [0.95, 1]])
    some = [KeeperGroup(np.array([0.81, 0.82]), alike, 2), KeeperGroup(np.array([0.83, 0.99]), np.eye(2), 2)]
    found = estimate_staying(some, 0.9, below=3, drawn=1)
    assert (found.likely, found.low, found.high) == (2, 2, 2)


def test_nothing_below_a_threshold_changes_nothing() -> None:
    group = KeeperGroup(np.array([0.95]), np.eye(1), 1)
    found = estimate_staying([group], 0.9, below=0, drawn=1)
    assert (found.likely, found.low, found.high) == (0, 0, 0)


def test_pairs_of_which_none_was_looked_at_may_all_stay_or_none() -> None:
    found = estimate_staying([], 0.9, below=7, drawn=0.5)
    assert (found.low, found.high) == (0, 7)


def test_the_interval_holds_the_true_number_about_as_often_as_it_says() -> None:
    """200 samples of a tenth of 2,000 groups: 95 % hold it; fewer than 86 % would be 6 deviations."""
    random = np.random.default_rng(1)
    every = []
    for _ in range(2_000):
        size = int(random.integers(1, 6))
        alike = np.where(random.random() < 0.5, 0.95, 0.8) * np.ones((size, size))
        every.append(KeeperGroup(random.uniform(0.8, 1, size), alike, size))
    below, true = (sum(one.below(0.9) for one in every), sum(one.staying(0.9) for one in every))
    held = 0
    for _ in range(200):
        drawn = [every[row] for row in random.choice(len(every), 200, replace=False)]
        found = estimate_staying(drawn, 0.9, int(below), 0.1)
        assert found.likely == pytest.approx(true, rel=0.35)
        held += found.low <= true <= found.high
    assert held > 172
