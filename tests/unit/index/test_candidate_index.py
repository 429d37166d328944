from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup_job.fingerprint.recipe import Matching
from dedup_job.fingerprint.simhash import hamming
from dedup_job.index import candidate_index, key_map
from dedup_job.index.candidate_index import CandidateIndex, Candidates, segment_keys
from dedup_job.index.key_map_search import Queries, Simhashes
from tests.support.reference_index import Bounds, Sieved, bounded, candidates, columns

SEGMENTS = Matching(bands=0)


def listed(found: Candidates) -> list[list[tuple[int, int]]]:
    """(distance, number) of the candidates of each text, in the order given."""
    pairs = list(zip(found.distances.tolist(), found.texts.tolist(), strict=True))
    return [pairs[start:stop] for start, stop in pairwise(found.offsets.tolist())]


def found_in(
    whole: CandidateIndex, texts: Sequence[Sieved], bits: int, bands: int, cuts: Sequence[int] = ()
) -> list[list[tuple[int, int]]]:
    """Add texts batch by batch, look each batch up once it is there; what came before each text alone."""
    found: list[list[tuple[int, int]]] = []
    for start, stop in pairwise([0, *cuts, len(texts)]):
        columns_ = columns(texts[start:stop], bits, bands)
        whole.add(*columns_)
        looked_up = listed(whole.candidates(np.arange(start, stop), columns_[2]))
        found += [[one for one in row if one[1] < start + n] for n, row in enumerate(looked_up)]
    return found


@st.composite
def crowds(draw: st.DrawFn, bits: int, bands: int) -> list[Sieved]:
    """Texts a few bits from one of few centres, with few keys, some without a fingerprint or keys."""
    centres = draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=3))
    texts = []
    for _ in range(draw(st.integers(1, 40))):
        flips = draw(st.sets(st.integers(0, bits - 1) | st.integers(0, 20), max_size=5))
        value = draw(st.sampled_from(centres)) ^ sum(1 << bit for bit in flips)
        keys = tuple(draw(st.sampled_from([1, 2, 1 << 16 | 1, 1 << 31, 2**32 - 1])) for _ in range(bands))
        kind = draw(st.integers(0, 9))
        texts.append(Sieved(None if kind == 0 else value, (0,) * bands if kind == 1 else keys))
    return texts


@pytest.mark.parametrize(
    ("bits", "radius", "bands"),
    [(64, 3, 0), (64, 3, 2), (64, 1, 1), (64, 6, 1), (128, 7, 0), (128, 3, 2), (128, 9, 0)],
)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_index_finds_what_the_sieve_says_whatever_the_batches(
    bits: int, radius: int, bands: int, data: st.DataObject
) -> None:
    texts = data.draw(crowds(bits, bands))
    matching = Matching(radius=radius, bands=bands, band_radius=data.draw(st.sampled_from([2, 8, bits])))
    bounds = Bounds(listed=data.draw(st.integers(1, 6)), found=data.draw(st.integers(1, 4)))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(texts)), max_size=4)))
    all_of_them = candidates(texts, matching, bits, bounds)
    expected = [[one for one in row if one[1] < number] for number, row in enumerate(all_of_them)]
    width = data.draw(st.sampled_from([1, 3, 8]))  # few buckets: entries are moved from one to the next
    with mock.patch.multiple(key_map, FULL=data.draw(st.sampled_from([0, 0.9, 2])), LEAST_WIDTH=width):
        assert found_in(bounded(bits, matching, bounds), texts, bits, bands, cuts) == expected


@pytest.mark.parametrize(("bits", "radius", "bands"), [(64, 3, 2), (64, 6, 1), (128, 9, 0)])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_text_that_is_not_added_finds_what_it_would_find_if_it_were(
    bits: int, radius: int, bands: int, data: st.DataObject
) -> None:
    texts = data.draw(crowds(bits, bands))
    matching = Matching(radius=radius, bands=bands, band_radius=data.draw(st.sampled_from([2, 8, bits])))
    bounds = Bounds(listed=data.draw(st.integers(1, 6)), found=data.draw(st.integers(1, 4)))
    there = data.draw(st.integers(0, len(texts)))
    asked = bounded(bits, matching, bounds)
    asked.add(*columns(texts[:there], bits, bands))
    prints, keys = Simhashes(*columns(texts[there:], bits, bands)[:2]), columns(texts[there:], bits, bands)[2]
    found = asked.candidates_of(Queries(np.full(len(texts) - there, there), prints), keys)
    assert len(asked) == there
    for place, row in enumerate(listed(found)):
        added = bounded(bits, matching, bounds)
        added.add(*columns([*texts[:there], texts[there + place]], bits, bands))
        assert row == listed(added.candidates(np.array([there]), keys[place : place + 1]))[0]


@pytest.mark.parametrize("load", [1, 4])
@pytest.mark.parametrize("radius", [0, 1, 2, 3])
def test_no_fingerprint_within_the_radius_is_missed_while_maps_grow(radius: int, load: int) -> None:
    rng = np.random.default_rng(radius)
    bits = rng.integers(0, 1 << 64, (30_000, 1), dtype=np.uint64)
    bits[20_000:] = bits[rng.integers(0, 20_000, 10_000)]
    for row in range(20_000, 30_000):
        for bit in rng.integers(0, 64, rng.integers(0, radius + 2)).tolist():
            bits[row, 0] ^= np.uint64(1 << bit)
    nothing, there = np.zeros((30_000, 0), np.uint32), np.ones(30_000, bool)
    with mock.patch.multiple(candidate_index, SEGMENT_LOAD=load):
        whole = CandidateIndex(64, replace(SEGMENTS, radius=radius))
    found = []
    for start in range(0, 30_000, 3_000):
        rows = slice(start, start + 3_000)
        whole.add(bits[rows], there[rows], nothing[rows])
        found += listed(whole.candidates(np.arange(start, start + 3_000), nothing[rows]))
    for row in rng.integers(20_000, 30_000, 400).tolist():
        distances = hamming(bits[:row], bits[row])
        near = np.flatnonzero(distances <= radius)
        before = [one for one in found[row] if one[1] < row]
        assert before == sorted((int(distances[other]), other) for other in near.tolist())


@pytest.mark.parametrize("segment", range(4))
def test_each_segment_finds_alone(segment: int) -> None:
    """A fault of the seeds: the slice `i*16:i*(i+1)*16` gave every record the same first key."""
    others = sum(1 << 16 * other for other in range(4) if other != segment)
    first = 0x1234 << 16 * segment
    texts = [Sieved(first, ()), Sieved(first | others, ())]
    assert found_in(CandidateIndex(64, SEGMENTS), texts, 64, 0) == [[], [(3, 0)]]


def test_a_shared_band_finds_what_is_farther_than_the_radius() -> None:
    texts = [Sieved(0, (7, 1)), Sieved(0xFF, (7, 2)), Sieved(0xFFFFFF, (7, 3))]
    matching = Matching(bands=2, band_radius=16)
    assert found_in(CandidateIndex(64, matching), texts, 64, 2) == [[], [(8, 0)], [(16, 1)]]


def test_keys_of_different_bands_are_never_the_same() -> None:
    texts = [Sieved(0, (7, 1)), Sieved(0xFF, (1, 7))]
    assert found_in(CandidateIndex(64, Matching(bands=2)), texts, 64, 2) == [[], []]


def test_a_text_without_a_fingerprint_is_found_by_its_bands_at_no_known_distance() -> None:
    texts = [Sieved(None, (7,)), Sieved(0, (7,)), Sieved(None, (7,))]
    found = found_in(CandidateIndex(64, Matching(bands=1)), texts, 64, 1)
    assert found == [[], [(255, 0)], [(255, 0), (255, 1)]]


def test_a_text_without_keys_and_fingerprint_finds_nothing() -> None:
    texts = [Sieved(None, (0,)), Sieved(None, (0,))]
    assert found_in(CandidateIndex(64, Matching(bands=1)), texts, 64, 1) == [[], []]


def test_a_key_finds_the_first_texts_that_have_it_and_no_others() -> None:
    texts = [Sieved(number << 40, (7,)) for number in range(6)]
    found = found_in(bounded(64, Matching(bands=1, radius=0), Bounds(listed=3, found=2)), texts, 64, 1)
    assert [[number for _, number in sorted(row, key=lambda one: one[1])] for row in found] == [
        [], [0], [0, 1], [0, 1], [0, 1], [0, 1],
    ]  # fmt: skip


def test_keys_of_segments_differ_where_the_segments_do_and_by_a_bit_where_the_next_one_does() -> None:
    """All values of a segment give different keys; the other two segments change none."""
    every = np.arange(1 << 16, dtype=np.uint64).reshape(-1, 1)
    for place in range(4):
        shift = np.uint64(16 * place)
        assert len(np.unique(segment_keys(every << shift, place))) == 1 << 16
        following = np.uint64(16 * ((place + 1) % 4))
        flipped = np.array([[0], *([1 << bit] for bit in range(16))], np.uint64) << following
        keys = segment_keys(flipped, place)
        assert np.bitwise_count(keys ^ keys[0]).tolist() == [0] + [1] * 16
        others = np.uint64(0xFFFF << 16 * ((place + 2) % 4) | 0xFFFF << 16 * ((place + 3) % 4))
        assert (segment_keys(every << shift | others, place) == segment_keys(every << shift, place)).all()


def test_other_widths_of_fingerprints_are_refused() -> None:
    with pytest.raises(ValueError, match="64 or 128"):
        CandidateIndex(96, SEGMENTS)


def test_more_texts_than_numbers_are_refused() -> None:
    whole = CandidateIndex(64, SEGMENTS)
    whole._count = candidate_index.LARGEST_COUNT
    with pytest.raises(OverflowError):
        whole.add(*columns([Sieved(0, ())], 64, 0))


def test_nothing_is_found_in_nothing() -> None:
    whole = CandidateIndex(64, Matching(bands=8))
    found = whole.candidates(np.empty(0, np.int64), np.empty((0, 8), np.uint32))
    assert (found.offsets.tolist(), len(found.texts), len(whole)) == ([0], 0, 0)
