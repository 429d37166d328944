from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.analysis.similar_pairs import similar_pairs, similarities
from dedup_job.index.similarity import jaccard
from dedup_job.native.arrays import Ragged

LEVELS = st.sampled_from([0.05, 0.3, 1 / 3, 0.5, 0.6, 2 / 3, 0.7, 0.8, 0.9, 1.0])


def ragged(rows: list[set[int]]) -> Ragged:
    return Ragged(
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        np.array([value for row in rows for value in sorted(row)], np.uint32),
    )


def brute_force(sets: Ragged, at: float) -> list[tuple[int, int, float]]:
    pairs = [
        (left, right, jaccard(sets[left], sets[right])) for left, right in combinations(range(len(sets)), 2)
    ]
    return sorted((pair for pair in pairs if pair[2] >= at), key=lambda pair: (pair[1], pair[0]))


def found(sets: Ragged, at: float) -> list[tuple[int, int, float]]:
    pairs = similar_pairs(sets, at)
    return list(zip(pairs.left.tolist(), pairs.right.tolist(), pairs.similarity.tolist(), strict=True))


@given(st.lists(st.sets(st.integers(0, 12) | st.integers(2**32 - 3, 2**32 - 1)), max_size=25), LEVELS)
def test_all_pairs_are_those_of_brute_force(rows: list[set[int]], at: float) -> None:
    assert found(ragged(rows), at) == brute_force(ragged(rows), at)


@given(st.integers(0, 2**32 - 1), LEVELS)
def test_copies_with_some_changes_are_found_as_by_brute_force(seed: int, at: float) -> None:
    random = np.random.default_rng(seed)
    rows: list[set[int]] = []
    for _ in range(40):
        size = int(random.integers(1, 60))
        base = rows[random.integers(len(rows))] if rows and random.random() < 0.7 else set()
        kept = {value for value in base if random.random() < 0.95}
        fresh = random.zipf(1.3, 3 if base else size) % 10_000
        rows.append(kept | set(fresh.tolist()))
    assert found(ragged(rows), at) == brute_force(ragged(rows), at)


@pytest.mark.parametrize("size", [3, 5, 10, 15, 20, 25, 50, 100])
@pytest.mark.parametrize("at", [0.6, 0.7, 0.8, 0.9])
def test_a_pair_exactly_at_the_level_is_found(size: int, at: float) -> None:
    """One set inside the other, so that their similarity is the share of the smaller in the greater."""
    shared = next(count for count in range(size + 1) if count / size >= at)
    greater, smaller = set(range(size)), set(range(size - shared, size))
    assert found(ragged([greater, smaller]), at) == [(0, 1, shared / size)]


def test_nothing_is_found_among_empty_sets_or_none() -> None:
    assert found(ragged([]), 0.8) == []
    assert found(ragged([set(), set(), {1}]), 0.8) == []


@pytest.mark.parametrize("at", [0.0, -0.1, 1.1, float("nan")])
def test_a_level_that_no_index_can_serve_is_refused(at: float) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        similar_pairs(ragged([{1}]), at)


def test_similarities_are_those_of_the_rows() -> None:
    sets = ragged([{1, 2, 3}, {2, 3, 4}, set()])
    left, right = np.array([0, 0, 1], np.int64), np.array([1, 2, 1], np.int64)
    assert similarities(sets.offsets, sets.values, left, right).tolist() == [0.5, 0.0, 1.0]
