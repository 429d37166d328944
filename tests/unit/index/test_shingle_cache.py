from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.index.shingle_cache import ENTRY_BYTES, MIN_BLOCKS, ShingleCache, _Block
from dedup_job.native.arrays import Ragged
from dedup_job.text.code_points import offsets_of


def shingles(n: int, value: int = 0) -> npt.NDArray[np.uint32]:
    return np.full(n, value, np.uint32)


def ragged(rows: Sequence[npt.NDArray[np.uint32]]) -> Ragged:
    return Ragged(offsets_of(rows), np.concatenate(rows))


def put(recent: ShingleCache, ordinal: int, n: int, value: int = 0) -> None:
    recent.put([ordinal], ragged([shingles(n, value)]))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 12), min_size=1, max_size=4)), max_size=8),
    st.integers(0, 9 * ENTRY_BYTES),
    st.integers(0, 12),
)
def test_what_is_there_is_what_was_put_last_and_no_more_bytes_are_held_than_allowed(
    puts: list[tuple[int, list[int]]], most: int, asked: int
) -> None:
    recent, expected = ShingleCache(most), {}
    for value, (first, lengths) in enumerate(puts):
        sets = {first + row: shingles(n, value) for row, n in enumerate(lengths)}
        recent.put(list(sets), ragged(list(sets.values())))
        expected |= sets
        recent.get(asked)
        found = {ordinal: one for ordinal in range(20) if (one := recent.get(ordinal)) is not None}
        assert {number: one.tolist() for number, one in found.items()} == {
            number: expected[number].tolist() for number in found
        }
        assert sum(one.nbytes + ENTRY_BYTES for one in found.values()) <= recent._nbytes <= most
        assert all(ordinal in recent for ordinal in found)


def test_the_block_not_used_for_longest_is_forgotten_first() -> None:
    recent = ShingleCache(3 * (4 + ENTRY_BYTES))
    for ordinal in (1, 2, 3):
        put(recent, ordinal, 1)
    assert recent.get(1) is not None
    put(recent, 4, 1)
    assert [ordinal in recent for ordinal in (1, 2, 3, 4)] == [True, False, True, True]


def test_a_block_that_is_large_is_taken_in_in_parts() -> None:
    recent = ShingleCache(100 * (40 + ENTRY_BYTES))
    recent.put(range(150), ragged([shingles(10, value) for value in range(150)]))
    kept = [ordinal for ordinal in range(150) if ordinal in recent]
    assert kept == list(range(150 - len(kept), 150))
    assert len(kept) > 100 * (MIN_BLOCKS - 1) / MIN_BLOCKS - 1
    assert recent.get(149).tolist() == [149] * 10  # type: ignore[union-attr]


def test_a_keeper_put_again_is_found_as_it_was_put_last() -> None:
    recent = ShingleCache(8 * (20 + ENTRY_BYTES))
    put(recent, 1, 5, 1)
    put(recent, 1, 3, 2)
    for ordinal in range(2, 8):
        put(recent, ordinal, 5)
    assert recent.get(1).tolist() == [2, 2, 2]  # type: ignore[union-attr]
    put(recent, 8, 5)  # now the first of the two goes
    assert recent.get(1).tolist() == [2, 2, 2]  # type: ignore[union-attr]


def test_a_keeper_put_again_may_be_forgotten_before_the_block_that_it_was_in_first() -> None:
    """That block was used since, for another keeper in it."""
    recent = ShingleCache(4 * (20 + ENTRY_BYTES))
    recent._store(_Block([1, 2], ragged([shingles(5), shingles(5)])))
    put(recent, 1, 5, 7)
    assert recent.get(2) is not None
    for ordinal in range(3, 9):
        put(recent, ordinal, 5)
    assert [ordinal for ordinal in range(9) if ordinal in recent] == [5, 6, 7, 8]
    assert recent._nbytes == 4 * (20 + ENTRY_BYTES)


def test_what_was_never_put_is_not_there() -> None:
    assert ShingleCache(100).get(7) is None


def test_a_set_larger_than_the_whole_bound_does_not_push_the_others_out() -> None:
    recent = ShingleCache(8 + ENTRY_BYTES)
    put(recent, 1, 2)
    put(recent, 2, 3)
    assert 1 in recent
    assert 2 not in recent


def test_an_entry_takes_about_the_bytes_that_it_is_counted_with() -> None:
    tracemalloc.start()
    try:
        recent = ShingleCache(1 << 40)
        for first in range(0, 200_000, 2_000):
            recent.put(range(first, first + 2_000), ragged([shingles(10)] * 2_000))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.6 < held / recent._nbytes <= 1.05
