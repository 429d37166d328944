from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.match.recent import ENTRY, RecentShingles


def shingles(n: int, value: int = 0) -> np.ndarray:
    return np.full(n, value, np.uint32)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12))), st.integers(0, 5 * ENTRY))
def test_never_more_bytes_are_held_than_allowed(puts: list[tuple[int, int]], most: int) -> None:
    recent = RecentShingles(most)
    for ordinal, n in puts:
        recent.put(ordinal, shingles(n))
        held = [found.nbytes + ENTRY for number in range(7) if (found := recent.get(number)) is not None]
        assert recent.nbytes == sum(held) <= most


def test_the_set_not_used_for_longest_is_forgotten_first() -> None:
    recent = RecentShingles(3 * (4 + ENTRY))
    for ordinal in (1, 2, 3):
        recent.put(ordinal, shingles(1))
    assert recent.get(1) is not None
    recent.put(4, shingles(1))
    assert [ordinal in recent for ordinal in (1, 2, 3, 4)] == [True, False, True, True]


def test_a_keeper_put_again_is_counted_once() -> None:
    recent = RecentShingles(1_000)
    recent.put(1, shingles(5, 1))
    recent.put(1, shingles(3, 2))
    assert recent.nbytes == 12 + ENTRY
    assert recent.get(1).tolist() == [2, 2, 2]


def test_what_was_never_put_is_not_there() -> None:
    assert RecentShingles(100).get(7) is None


def test_a_set_larger_than_the_whole_bound_does_not_push_the_others_out() -> None:
    recent = RecentShingles(8 + ENTRY)
    recent.put(1, shingles(2))
    recent.put(2, shingles(3))
    assert 1 in recent
    assert 2 not in recent
