from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dedup_job.index.judge import BatchShingles, Judgement, NearTexts, judge
from dedup_job.index.shingle_similarity import ShingleSets


def numbers(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def ends(rows: Sequence[Sequence[object]]) -> np.ndarray:
    return np.cumsum([0, *map(len, rows)])


def judged(
    texts: Sequence[int],
    sets: Sequence[Sequence[int]],
    near: Sequence[Sequence[tuple[int, int]]],
    stands: Sequence[int] = (),
    held: Sequence[int] = (),
    min_similarity: float = 0.7,
    known: Mapping[int, float] = MappingProxyType({}),
) -> Judgement:
    """Judge records with these texts; `near` has the candidates (text, distance) of each text.

    Those of whose similarity something is `known` are not in the batch.
    """
    others = [other for row in near for other, _ in row]
    return judge(
        numbers(texts),
        np.array([row not in held for row in range(len(texts))], bool),
        NearTexts(
            ends(near),
            numbers(others),
            numbers([distance for row in near for _, distance in row]),
            np.array([known.get(other, np.nan) for other in others]),
        ),
        BatchShingles(
            numbers([-1 if text in known else text for text in range(len(sets))]),
            ShingleSets(ends(sets), np.array([value for row in sets for value in row], np.uint32)),
        ),
        np.array([text in stands for text in range(len(sets))], bool),
        min_similarity,
    )


SETS = [[1, 2, 3], [1, 2, 3, 4], [7, 8], [7, 8, 9, 10]]
NEAR: list[list[tuple[int, int]]] = [[], [(0, 5)], [], [(2, 3)]]


def test_the_worked_example() -> None:
    found = judged([1, 2, 3, 2], SETS, NEAR, stands=[0])
    assert found.keeper.tolist() == [0, -1, -1, 2]
    assert found.distance.tolist() == [5, 0, 0, 0]
    assert found.similarity[[0, 3]].tolist() == [0.75, 1.0]


def test_a_candidate_that_does_not_stand_is_passed_over() -> None:
    assert judged([1], SETS, NEAR).keeper.tolist() == [-1]


def test_a_dropped_record_stands_for_nothing() -> None:
    sets, near = [[1, 2, 3], [1, 2, 3, 4], [2, 3, 4]], [[], [(0, 1)], [(1, 1)]]
    assert judged([0, 1, 2], sets, near).keeper.tolist() == [-1, 0, -1]


def test_the_first_candidate_that_is_similar_enough_wins() -> None:
    sets = [[1, 2, 3, 4], [9], [1, 2, 3, 4, 5], [1, 2, 3, 4]]
    near: list[list[tuple[int, int]]] = [[], [], [], [(1, 0), (2, 1), (0, 2)]]
    found = judged([3], sets, near, stands=[0, 1, 2])
    assert (found.keeper.tolist(), found.similarity.tolist()) == ([2], [0.8])


def test_without_a_least_similarity_the_nearest_is_taken_unseen() -> None:
    found = judged([1], SETS, [[], [(2, 1), (0, 2)], [], []], stands=[0, 2], min_similarity=0.0)
    assert found.keeper.tolist() == [2]
    assert np.isnan(found.similarity[0])


def test_a_record_without_a_text_is_left_out() -> None:
    assert judged([-1, 0, -1, 0], SETS, NEAR).keeper.tolist() == [-1, -1, -1, 0]


def test_a_record_that_must_not_be_dropped_stands_for_its_copies() -> None:
    found = judged([1, 1, 1], SETS, NEAR, stands=[0], held=[1])
    assert found.keeper.tolist() == [0, -1, 1]


def test_a_text_whose_shingles_are_unknown_matches_nothing() -> None:
    assert judged([1], [[], [1, 2]], [[], [(0, 0)]], stands=[0]).keeper.tolist() == [-1]


def test_a_similarity_that_is_known_is_taken_as_it_is() -> None:
    sets, near = [[], [], [1, 2]], [[], [], [(0, 0), (1, 3)]]
    found = judged([2], sets, near, stands=[0, 1], known={0: 0.0, 1: 0.9})
    assert (found.keeper.tolist(), found.distance.tolist(), found.similarity.tolist()) == ([1], [3], [0.9])
