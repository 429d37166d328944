from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.minhash_bands import band_keys
from dedup_job.index.shingle_similarity import jaccard
from dedup_job.native.arrays import Ragged

MASK = 2**64 - 1
SETS = st.lists(st.sets(st.integers(0, 2**32 - 1), max_size=60), max_size=5)


def ragged(sets: Sequence[Sequence[int] | set[int]]) -> Ragged:
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    return Ragged(offsets, np.array([value for row in sets for value in sorted(row)], np.uint32))


def mixed(state: int) -> int:
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK
    return state ^ state >> 31


def slow_keys(values: set[int], bands: int, rows: int) -> list[int]:
    """The documented keys of one set, in Python's integers."""
    bins = bands * rows
    least = {
        place: min(v for v in values if v * bins >> 32 == place) for place in {v * bins >> 32 for v in values}
    }
    keys = []
    for band in range(bands if values else 0):
        state = band
        for place in range(band * rows, (band + 1) * rows):
            drawn, tried = place, 0
            while drawn not in least:
                tried += 1
                drawn = (mixed(place << 32 | tried) >> 32) * bins >> 32
            state = mixed(state ^ least[drawn])
        keys.append(state >> 32)
    return keys or [0] * bands


@given(SETS, st.integers(0, 6), st.integers(1, 5))
def test_keys_are_hashes_of_the_least_values_of_their_bins(
    sets: list[set[int]], bands: int, rows: int
) -> None:
    assert band_keys(ragged(sets), bands, rows).tolist() == [slow_keys(one, bands, rows) for one in sets]


def test_golden_values_stay_for_ever() -> None:
    keys = band_keys(ragged([[1 << place for place in range(32)]]), 4, 4)
    assert keys.tolist() == [slow_keys({1 << place for place in range(32)}, 4, 4)]
    assert keys.tolist() == GOLDEN


GOLDEN = [[1079765172, 255056530, 2386742366, 4217126222]]


@pytest.mark.parametrize("share", [0.5, 0.7, 0.8, 0.9])
def test_two_sets_share_a_band_as_often_as_their_similarity_says(share: float) -> None:
    """The chance is about similarity ** rows; 4,000 pairs of sets of 300, so three deviations are 0.03."""
    rng = np.random.default_rng(1)
    common, shared, similarity = int(300 * share), 0, 0.0
    for _ in range(4_000):
        values = rng.integers(0, 2**32, 600 - common, dtype=np.uint32)
        pair = ragged([values[:300].tolist(), values[300 - common :].tolist()])
        keys = band_keys(pair, 1, 4)
        shared += int(keys[0, 0] == keys[1, 0])
        similarity += jaccard(pair[0], pair[1]) / 4_000
    assert shared / 4_000 == pytest.approx(similarity**4, abs=0.03)
