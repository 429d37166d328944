from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.lab.asked import LabelAdvice, asked

LABELS = st.lists(st.tuples(st.integers(0, 100).map(lambda step: step / 100), st.booleans()), max_size=12)


def wrong(labels: list[tuple[float, bool]], threshold: float) -> int:
    return sum((similarity >= threshold) != same for similarity, same in labels)


@given(LABELS)
def test_no_threshold_judges_fewer_wrong(labels: list[tuple[float, bool]]) -> None:
    found = asked(labels, 0.8)
    if not labels:
        assert found is None
        return
    assert found is not None
    assert found.wrong == min(wrong(labels, step / 1000) for step in range(1, 1001))
    assert wrong(labels, found.min_similarity) == wrong(labels, found.up_to) == found.wrong
    assert found.above < found.min_similarity <= found.up_to
    assert (found.wrong_now, found.pairs) == (wrong(labels, 0.8), len(labels))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([(0.82, True), (0.9, True)], LabelAdvice(0.41, 0.0, 0.82, 0, 0, 2)),
        ([(0.82, False), (0.9, False)], LabelAdvice(0.95, 0.9, 1.0, 0, 2, 2)),
        ([(0.8541, False), (0.8549, True)], LabelAdvice(0.8549, 0.8541, 0.8549, 0, 1, 2)),
        ([(0.81, True), (0.9, False), (0.95, True)], LabelAdvice(0.93, 0.9, 0.95, 1, 1, 3)),
    ],
)
def test_of_thresholds_that_judge_as_well_it_is_the_middle_of_the_highest(
    labels: list[tuple[float, bool]], expected: LabelAdvice
) -> None:
    assert asked(labels, 0.8) == expected
