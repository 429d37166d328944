from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup_job.match.cut import SKETCH_BITS, Cut
from dedup_job.match.layout import Layout, cheapest
from dedup_job.match.likeness import RANDOM, SAMPLE, Met, Sample


def number(row: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> int:
    return int.from_bytes(row.tobytes(), "little")


def rotated(value: int, bits: int, first: int, width: int) -> int:
    """Bits from `first` on, cyclic."""
    return ((value << bits | value) >> first % bits) & (1 << width) - 1


@settings(deadline=None)
@given(
    words=st.integers(1, 4),
    place=st.floats(0, 1),
    width=st.integers(1, 24),
    flips=st.integers(0, 3),
    limit=st.integers(0, SKETCH_BITS),
    radius=st.integers(0, 40),
    seed=st.integers(0, 99),
)
def test_pairs_meet_as_often_as_counted_one_by_one(
    words: int, place: float, width: int, flips: int, limit: int, radius: int, seed: int
) -> None:
    rows = np.random.default_rng(seed).integers(0, 1 << 64, (12, words), dtype=np.uint64)
    rows[:, 0] &= np.uint64(0b1011)  # so that some do meet
    bits = 64 * words
    cut = Cut(int(place * (bits - width)), width, flips)
    rows[11] = rows[10]
    apart = [number(rows[i] ^ rows[j]) for j in range(12) for i in range(j)]
    apart = [value for value in apart if value.bit_count() > radius]
    keys = [value for value in apart if rotated(value, bits, cut.first, width).bit_count() == flips]
    behind = [rotated(value, bits, cut.first + width, SKETCH_BITS).bit_count() for value in keys]
    passed = sum(count <= limit for count in behind)
    assert not apart or Sample(rows, radius).met(cut, flips, limit) == Met(
        len(keys) / len(apart), passed / len(apart)
    )


def test_random_fingerprints_meet_as_reckoned() -> None:
    rows = np.random.default_rng(1).integers(0, 1 << 64, (SAMPLE, 2), dtype=np.uint64)
    for flips, limit in [(0, 32), (1, 16), (2, 14)]:
        found, reckoned = (one.met(Cut(120, 6, 2), flips, limit) for one in (Sample(rows, 0), RANDOM))
        assert found.entered == pytest.approx(reckoned.entered, rel=0.1)
        assert found.passed == pytest.approx(reckoned.passed, rel=0.1)


def test_where_there_are_none_but_neighbours_they_are_taken_for_random_ones() -> None:
    for count in (1, 5):
        same = Sample(np.zeros((count, 1), np.uint64), 0)
        assert same.met(Cut(0, 16, 1), 1, 9) == RANDOM.met(Cut(0, 16, 1), 1, 9)


def test_fingerprints_that_crowd_in_few_buckets_are_compared_without_maps() -> None:
    rows = np.random.default_rng(2).integers(0, 1 << 64, (100_000, 2), dtype=np.uint64)
    crowded = rows & np.roll(rows, 1) & np.roll(rows, 2)  # each bit is 1 in an eighth of them
    assert len(cheapest(128, 19, 1_000_000, Sample(rows, 19)).cuts) == 8
    assert cheapest(128, 19, 1_000_000, Sample(crowded, 19)) == Layout(128, 19)
