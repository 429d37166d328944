from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.index.shingle_similarity import jaccard, similarity_at_least

SETS = st.sets(st.integers(0, 20) | st.integers(2**32 - 5, 2**32 - 1))


def as_array(values: set[int]) -> np.ndarray:
    return np.array(sorted(values), np.uint32)


@given(SETS, SETS)
def test_jaccard_is_the_intersection_over_the_union(a: set[int], b: set[int]) -> None:
    expected = len(a & b) / len(a | b) if a | b else 0.0
    assert jaccard(as_array(a), as_array(b)) == expected


@given(SETS, SETS)
def test_jaccard_does_not_care_which_text_comes_first(a: set[int], b: set[int]) -> None:
    assert jaccard(as_array(a), as_array(b)) == jaccard(as_array(b), as_array(a))


@given(SETS.filter(bool))
def test_a_text_is_wholly_like_itself(a: set[int]) -> None:
    assert jaccard(as_array(a), as_array(a)) == 1.0


def test_two_empty_sets_have_nothing_in_common() -> None:
    assert jaccard(as_array(set()), as_array(set())) == 0.0


@pytest.mark.parametrize(("a", "b", "expected"), [({1, 2, 3}, {2, 3, 4}, 0.5), ({1}, {2}, 0.0)])
def test_worked_examples(a: set[int], b: set[int], expected: float) -> None:
    assert jaccard(as_array(a), as_array(b)) == expected


def test_rows_of_a_larger_array_are_taken_as_they_are() -> None:
    values = np.array([9, 1, 2, 3, 2, 3, 4], np.uint32)
    assert jaccard(values[1:4], values[4:7]) == 0.5


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60),
    st.sampled_from([0.1, 1 / 3, 0.5, 0.6, 2 / 3, 0.75, 0.8, 0.85, 0.9999999, 1.0]),
)
def test_what_is_similar_enough_is_told_exactly_and_nothing_else_seems_so(
    sides: list[int], least: float
) -> None:
    """Values are in the first set (0), in the second (1) or in both (2)."""
    first = as_array({value for value, side in enumerate(sides) if side != 1})
    second = as_array({value for value, side in enumerate(sides) if side != 0})
    exact = sides.count(2) / len(sides)
    found = similarity_at_least(first, second, least)
    assert (found >= least) == (exact >= least)
    assert found == exact or exact < least
