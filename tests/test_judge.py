from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dedup_job.match.judge import Judgement, Neighbours, Rows, Sets, Short, judge
from dedup_job.match.shingle_index import MOST_KEEPERS


def numbers(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def ends(rows: Sequence[Sequence[object]]) -> np.ndarray:
    return np.cumsum([0, *map(len, rows)])


def judged(
    sets: Sequence[Sequence[int]],
    near: Sequence[Sequence[tuple[int, int]]],
    short: Sequence[Sequence[int]] = (),
    taken: Sequence[int] = (),
    min_similarity: float = 0.7,
) -> Judgement:
    """Judge rows with these neighbours (set, distance) and shingles; the first sets are landed keepers'."""
    rows = len(near)
    short = short or [[]] * rows
    return judge(
        Rows(np.ones(rows, bool), numbers(range(rows))),
        Neighbours(
            ends(near),
            numbers([other for row in near for other, _ in row]),
            numbers([distance for row in near for _, distance in row]),
        ),
        Short(
            ends(short),
            numbers([shingle for row in short for shingle in row]),
            numbers(taken),
            numbers([0] * (rows + 1)),
            numbers([]),
            numbers([1] * rows),
        ),
        Sets(ends(sets), np.array([value for row in sets for value in row], np.uint32)),
        min_similarity,
    )


SETS = [[1, 2, 3], [1, 2, 3, 4], [7, 8], [7, 8]]
NEAR = [[(0, 5)], [], [(2, 3)]]


def test_the_worked_example() -> None:
    found = judged(SETS, NEAR)
    assert found.keeper.tolist() == [0, -1, 2]
    assert found.distance.tolist() == [5, -1, 3]
    assert found.similarity[[0, 2]].tolist() == [0.75, 1.0]


def test_without_comparing_texts_the_nearest_is_taken_unseen() -> None:
    found = judged([[]] * 4, NEAR, min_similarity=0.0)
    assert found.keeper.tolist() == [0, -1, 2]
    assert np.isnan(found.similarity[0])


def test_a_row_that_is_a_duplicate_stands_for_nothing() -> None:
    chain = [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]]
    assert judged(chain, [[(0, 1)], [(1, 1), (0, 9)]], min_similarity=0.7).keeper.tolist() == [0, -1]


@pytest.mark.parametrize(("taken", "keeper"), [(MOST_KEEPERS - 1, 0), (MOST_KEEPERS, -1)])
def test_a_shingle_finds_no_more_rows_than_it_may(taken: int, keeper: int) -> None:
    found = judged([[1], [1]], [[], []], short=[[0], [0]], taken=[taken])
    assert found.keeper.tolist() == [-1, keeper]
