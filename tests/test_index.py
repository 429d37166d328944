from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup_job.fingerprint.simhash import hamming
from dedup_job.match import _kernel, _scan, index
from dedup_job.match.index import Candidates, SegmentIndex, pairs_within
from dedup_job.match.layout import Layout, cheapest, cut, folded_words, layouts

Fingerprints = npt.NDArray[np.uint64]

WAYS = ["probe", "scan"]

without_deadline = settings(deadline=None)  # the first call compiles


@contextmanager
def laid_out(layout: Layout) -> Iterator[None]:
    """Give every index this layout, whatever its size."""
    with mock.patch.object(index, "cheapest", return_value=layout):
        yield


@contextmanager
def found_by(way: str) -> Iterator[None]:
    """Make every index probe, or scan, whatever its size."""

    def chosen(bits: int, radius: int, *_: object) -> Layout:
        fewest = min(layouts(bits, radius), key=lambda layout: layout.probes, default=Layout(bits, radius))
        return fewest if way == "probe" else Layout(bits, radius)

    with mock.patch.object(index, "cheapest", chosen):
        yield


def prints(*rows: int, bits: int = 64) -> Fingerprints:
    """Fingerprints from integers of up to `bits` bits."""
    words = [[row >> 64 * word & (1 << 64) - 1 for word in range(bits // 64)] for row in rows]
    return np.array(words, np.uint64).reshape(len(rows), bits // 64)


def clustered(seed: int, n: int, bits: int, spread: int) -> Fingerprints:
    """n fingerprints, each a few bits away from one of some random centres, or a copy of it."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 1 << 64, (1 + n // 8, bits // 64), dtype=np.uint64)
    rows = centres[rng.integers(0, len(centres), n)]
    for row in rows:
        for bit in rng.integers(0, bits, rng.integers(0, spread + 1)).tolist():
            row[bit // 64] ^= np.uint64(1 << bit % 64)
    return rows


def neighbours(candidates: Candidates) -> list[list[tuple[int, int]]]:
    """(distance, position) pairs of each query, in the order given."""
    pairs = list(zip(candidates.distances.tolist(), candidates.positions.tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(candidates.offsets, candidates.offsets[1:], strict=False)]


def brute_force(stored: Fingerprints, queries: Fingerprints, radius: int) -> list[list[tuple[int, int]]]:
    integers = [int.from_bytes(row.tobytes(), "little") for row in stored]
    answers = []
    for query in queries:
        number = int.from_bytes(query.tobytes(), "little")
        near = [((number ^ other).bit_count(), position) for position, other in enumerate(integers)]
        answers.append(sorted(pair for pair in near if pair[0] <= radius))
    return answers


def filled(fingerprints: Fingerprints, radius: int = 3) -> SegmentIndex:
    whole = SegmentIndex(64 * fingerprints.shape[1], radius)
    whole.add(fingerprints)
    return whole


@st.composite
def any_layout(draw: st.DrawFn) -> Layout:
    """A layout of four words at most, the one without maps among them."""
    bits, radius = draw(st.sampled_from([64, 128, 192, 256])), draw(st.integers(0, 20))
    few = [layout for layout in layouts(bits, radius) if layout.probes <= 700]
    return draw(st.sampled_from([Layout(bits, radius), *few]))


@without_deadline
@given(
    layout=any_layout(),
    seed=st.integers(0, 2**32),
    n=st.integers(0, 120),
    cuts=st.lists(st.integers(0, 120), max_size=4),
    looks=st.booleans(),
)
def test_the_answer_equals_brute_force_in_every_layout_however_the_batches_are_cut(
    layout: Layout, seed: int, n: int, cuts: list[int], looks: bool
) -> None:
    bits, radius = layout.bits, layout.radius
    stored = clustered(seed, n, bits, radius + 3)
    queries = np.concatenate([stored[:8], clustered(seed + 1, 4, bits, 3)])
    whole = SegmentIndex(bits, radius)
    with laid_out(layout):
        for part in np.split(stored, sorted(min(cut, n) for cut in cuts)):
            whole.add(part)
            if looks:  # then what came before is settled, and what comes is fresh
                assert neighbours(whole.within(queries)) == brute_force(stored[: len(whole)], queries, radius)
        together = neighbours(whole.within(queries))
        one_by_one = [neighbours(whole.within(queries[q : q + 1]))[0] for q in range(len(queries))]
    assert together == one_by_one == brute_force(stored, queries, radius)


@without_deadline
@given(layout=any_layout(), seed=st.integers(0, 2**32), n=st.integers(0, 80))
def test_inside_a_batch_the_pairs_are_those_of_brute_force_in_every_layout(
    layout: Layout, seed: int, n: int
) -> None:
    rows = clustered(seed, n, layout.bits, layout.radius + 3)
    expected = [brute_force(rows[:j], rows[j : j + 1], layout.radius)[0] for j in range(n)]
    with mock.patch.object(index, "cheapest_inside", return_value=layout):
        assert neighbours(pairs_within(rows, layout.radius)) == expected


@without_deadline
@given(
    layout=any_layout().filter(lambda layout: layout.cuts),
    seed=st.integers(0, 2**32),
    distance=st.integers(0, 20),
)
def test_every_pair_is_noted_by_one_map_within_its_limit(layout: Layout, seed: int, distance: int) -> None:
    """The limits of the sketches lose nothing: the map with the nearest keys is probed there, within them."""
    bits = layout.bits
    flips = np.random.default_rng(seed).choice(bits, min(distance, layout.radius), replace=False)
    apart = sum(1 << int(bit) for bit in flips)
    keys = [(apart >> cut.first & (1 << cut.width) - 1).bit_count() for cut in layout.cuts]
    nearest = keys.index(min(keys))
    cut = layout.cuts[nearest]
    behind = (apart >> cut.first + cut.width | apart << bits - cut.first - cut.width) & (1 << 32) - 1
    assert keys[nearest] <= cut.flips
    assert behind.bit_count() <= layout.limit(nearest, keys[nearest])


@without_deadline
@given(seed=st.integers(0, 2**32), n=st.integers(0, 80), words=st.integers(1, 4), radius=st.integers(0, 20))
def test_inside_a_batch_each_row_meets_the_earlier_rows_only(
    seed: int, n: int, words: int, radius: int
) -> None:
    rows = clustered(seed, n, 64 * words, radius + 3)
    expected = [brute_force(rows[:j], rows[j : j + 1], radius)[0] for j in range(n)]
    assert neighbours(pairs_within(rows, radius)) == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bits", [64, 128, 256])
@pytest.mark.parametrize("radius", [*range(21), 38, 48])
def test_exactly_the_radius_is_found_and_one_more_is_not(way: str, bits: int, radius: int) -> None:
    rng = np.random.default_rng(radius)
    target = rng.integers(0, 1 << 64, (1, bits // 64), dtype=np.uint64)
    queries = []
    for distance in (radius, radius + 1):
        for _ in range(25):
            flips = sum(1 << int(bit) for bit in rng.choice(bits, distance, replace=False))
            queries.append(target[0] ^ prints(flips, bits=bits)[0])
    with found_by(way):
        answer = neighbours(filled(target, radius).within(np.array(queries)))
    assert answer == [[(radius, 0)]] * 25 + [[]] * 25


@pytest.mark.parametrize(("bits", "radius"), [(128, 19), (192, 19), (256, 19), (256, 38)])
def test_fingerprints_that_are_alike_only_when_folded_are_no_neighbours(bits: int, radius: int) -> None:
    words = bits // 64
    assert folded_words(bits, radius) < words
    row = np.random.default_rng(13).integers(0, 1 << 64, (1, words), dtype=np.uint64)
    alike = row.copy()
    alike[0, [0, folded_words(bits, radius)]] ^= np.uint64((1 << 40) - 1)
    with found_by("scan"):
        assert neighbours(filled(row, radius).within(np.concatenate([row, alike]))) == [[(0, 0)], []]


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("radius", range(21))
def test_the_least_favourable_spread_over_the_segments_is_found(bits: int, radius: int) -> None:
    segments = bits // 16
    shares = [radius // segments + (i < radius % segments) for i in range(segments)]
    queries = []
    for turn in range(segments):
        turned = shares[turn:] + shares[:turn]
        flips = sum(((1 << share) - 1) << 16 * i for i, share in enumerate(turned))
        queries.append(prints(flips, bits=bits)[0])
    with found_by("probe"):
        answer = neighbours(filled(prints(0, bits=bits), radius).within(np.array(queries)))
    assert answer == [[(radius, 0)]] * segments


def test_each_segment_has_keys_of_its_own() -> None:
    worked = prints(0x4444_3333_2222_1111)
    cuts = [(cut.first, cut.width) for cut in cut(64, 3, 4, 16).cuts]
    assert [key_of(worked, first, width) for first, width in cuts] == [0x1111, 0x2222, 0x3333, 0x4444]
    assert sketch_of(worked, 32, 16) == 0x1111_4444


def test_keys_and_sketches_run_across_words_and_round_the_end() -> None:
    value = 0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3211
    for first, width in [(60, 21), (107, 21), (43, 21), (0, 24), (64, 16)]:
        rotated = value >> first | value << 128 - first
        row = prints(value, bits=128)
        assert key_of(row, first, width) == rotated & (1 << width) - 1
        assert sketch_of(row, first, width) == rotated >> width & 0xFFFF_FFFF


@numba.njit
def key_of(rows: Fingerprints, first: int, width: int) -> int:
    return _kernel.key(rows, 0, first, width)


@numba.njit
def sketch_of(rows: Fingerprints, first: int, width: int) -> int:
    return _kernel.sketch(rows, 0, first, width)


@pytest.mark.parametrize("shared", range(4))
def test_a_neighbour_that_shares_only_one_segment_is_found_through_it(shared: int) -> None:
    flips = sum(1 << 16 * i + 5 for i in range(4) if i != shared)
    with found_by("probe"):
        answer = neighbours(
            filled(prints(0x0123_4567_89AB_CDEF)).within(prints(0x0123_4567_89AB_CDEF ^ flips))
        )
    assert answer == [[(3, 0)]]


def test_a_fingerprint_is_added_to_a_bucket_that_already_exists() -> None:
    first, far = 0x1111_2222_3333_7777, 0xEEEE_DDDD_CCCC_7777
    whole = filled(prints(first))
    assert whole.add(prints(far)) == 1
    with found_by("probe"):
        assert neighbours(whole.within(prints(first, far))) == [[(0, 0)], [(0, 1)]]


def test_a_bucket_grows_settled_and_fresh_without_loss() -> None:
    rows = np.random.default_rng(5).integers(0, 1 << 64, (700, 1), dtype=np.uint64)
    rows &= np.uint64(0xFFFF_FFFF_FFFF_0000)  # one bucket in the first map
    whole, fresh = SegmentIndex(), set()
    for n in range(len(rows)):
        whole.add(rows[n : n + 1])
        if n < 300 or n > 690:
            with found_by("probe"):
                answer = whole.within(rows[: n + 1])
            assert answer.positions.tolist() == list(range(n + 1))
            fresh.add(len(whole) - whole._settled)
    assert {0, 1, 2, 3} < fresh


def test_what_was_passed_often_enough_is_settled() -> None:
    rows = clustered(11, 3_000, 64, 3)
    with found_by("probe"):
        whole = filled(rows[:2_000])
        whole.within(rows[:1])
        whole.add(rows[2_000:])
        whole.within(rows[:1])
        assert whole._settled == 2_000
        while whole._settled == 2_000:
            found = neighbours(whole.within(rows[:100]))
        assert neighbours(whole.within(rows[:100])) == found == brute_force(rows, rows[:100], 3)


def test_the_layout_changes_as_the_collection_grows_and_the_answers_do_not() -> None:
    rows = clustered(12, 4_000, 64, 3)
    grown = {500: Layout(64, 3), 1_500: cut(64, 3, 4, 16), 2_500: cut(64, 3, 3, 21), 4_000: cut(64, 3, 2, 12)}
    whole, seen = SegmentIndex(64, 3), set()
    with mock.patch.object(
        index, "cheapest", side_effect=lambda *ask: next(at for n, at in grown.items() if ask[2] <= n)
    ):
        for part in np.split(rows, 8):
            whole.add(part)
            found = neighbours(whole.within(rows[:50]))
            assert found == brute_force(rows[: len(whole)], rows[:50], 3)
            seen.add(whole.layout)
    assert len(seen) >= 3


@pytest.mark.parametrize("way", WAYS)
def test_a_hot_bucket_stays_exact(way: str) -> None:
    rng = np.random.default_rng(6)
    rows = rng.integers(0, 1 << 16, (20_000, 1), dtype=np.uint64) << np.uint64(48)
    rows |= np.uint64(0x2222_3333_4444)  # three segments are the same in all, so neighbours abound
    with found_by(way):
        answer = neighbours(filled(rows, 2).within(rows[:3]))
    assert answer == brute_force(rows, rows[:3], 2)
    assert min(len(near) for near in answer) > 20


def test_more_neighbours_than_there_was_room_for_are_all_returned() -> None:
    copies = prints(*[99] * 1_000)
    for way in WAYS:
        with found_by(way):
            assert neighbours(filled(copies).within(copies[:2])) == [[(0, k) for k in range(1_000)]] * 2


def test_more_probes_than_a_wave_holds_are_all_made() -> None:
    rows = clustered(7, 200, 64, 9)
    with found_by("probe"):
        whole = filled(rows, 8)
        assert neighbours(whole.within(rows)) == brute_force(rows, rows, 8)
    assert whole.layout.probes * len(rows) > 10 * _kernel.WAVE


def test_more_candidates_than_a_wave_holds_are_all_confirmed() -> None:
    copies = prints(*[0x1234_5678_9ABC_DEF0] * 600)
    with found_by("probe"):
        answer = filled(copies).within(copies[:3])
    assert neighbours(answer) == [[(0, k) for k in range(600)]] * 3


def test_neighbours_ascend_by_distance_and_then_by_position() -> None:
    stored = prints(0b111, 0b1, 0, 0b10, 0b11, 0)
    expected = [(0, 2), (0, 5), (1, 1), (1, 3), (2, 4), (3, 0)]
    for way in WAYS:
        with found_by(way):
            assert neighbours(filled(stored).within(prints(0))) == [expected]


def test_all_zeros_and_all_ones_are_fingerprints_like_others() -> None:
    zeros, ones = 0, (1 << 128) - 1
    for way in WAYS:
        with found_by(way):
            answer = filled(prints(zeros, ones, bits=128)).within(prints(zeros, ones, 1, ones - 1, bits=128))
        assert neighbours(answer) == [[(0, 0)], [(0, 1)], [(1, 0)], [(1, 1)]]


def test_the_greatest_distance_is_reported_in_full() -> None:
    ones = (1 << 256) - 2
    assert neighbours(filled(prints(0, bits=256), 255).within(prints(ones, bits=256))) == [[(255, 0)]]


def test_empty_batches_change_nothing_and_find_nothing() -> None:
    for stored in (prints(), prints(1, 2)):
        whole = filled(stored)
        assert whole.add(prints()) == len(whole) == len(stored)
        for way in WAYS:
            with found_by(way):
                assert neighbours(whole.within(prints())) == []
    assert neighbours(pairs_within(prints(), 3)) == []
    assert neighbours(SegmentIndex().within(prints(7))) == [[]]


def test_positions_count_on_from_batch_to_batch() -> None:
    whole = SegmentIndex()
    assert [whole.add(prints(*[5] * n)) for n in (2, 0, 3)] == [0, 2, 2]
    assert len(whole) == 5
    assert whole.within(prints(5)).positions.tolist() == [0, 1, 2, 3, 4]


def test_positions_beyond_two_to_the_31_are_kept_whole(tmp_path: Path) -> None:
    last = 1 << 31
    whole = SegmentIndex()
    sparse = np.memmap(tmp_path / "sparse", np.uint64, "w+", shape=(last + 100, 1))
    whole.layout = cut(64, 3, 4, 16)
    whole._table = index._table(np.asarray(sparse), whole.layout, 0)
    whole._count = whole._settled = whole._entered = last
    assert whole.add(prints(7, 0xFFFF_0000_FFFF)) == last
    answer = whole.within(prints(0xFFFF_0000_FFFF, 6))
    assert neighbours(answer) == [[(0, last + 1)], [(1, last)]]


def test_an_index_says_how_it_is_laid_out() -> None:
    whole = filled(prints(*range(3)))
    assert repr(whole) == "<SegmentIndex: 3 fingerprints of 64 bits within 3, all compared>"
    with found_by("probe"):
        whole.within(prints(1))
    assert "4 maps of 10+10+10+10 bits, 4 probes" in repr(whole)


def test_more_than_four_thousand_million_are_refused() -> None:
    whole = SegmentIndex()
    whole._count = (1 << 32) - 1
    with pytest.raises(OverflowError, match="at most 4294967296"):
        whole.add(prints(1, 2))


def test_answers_and_stores_are_typed_arrays() -> None:
    whole = filled(prints(1, 2, 3))
    answer = whole.within(prints(1))
    kinds = [answer.offsets.dtype, answer.positions.dtype, answer.distances.dtype]
    assert kinds == [np.int64, np.uint32, np.uint8]
    assert all(type(column) is np.ndarray for column in whole._table if not isinstance(column, tuple))


@pytest.mark.parametrize(("bits", "radius", "most"), [(64, 3, 46), (64, 7, 46), (128, 3, 90), (128, 19, 90)])
def test_a_million_take_little_more_than_their_entries(bits: int, radius: int, most: int) -> None:
    """A fingerprint of 64 bits takes 8 bytes, and 8 in each of four maps."""
    rows = np.random.default_rng(8).integers(0, 1 << 64, (1_000_000, bits // 64), dtype=np.uint64)
    whole = filled(rows, radius)
    whole.within(rows[:1])
    assert whole.nbytes / len(whole) < most


def test_segments_that_are_never_probed_take_no_memory() -> None:
    rows = np.random.default_rng(9).integers(0, 1 << 64, (1_000_000, 2), dtype=np.uint64)
    whole = filled(rows, 0)
    whole.within(rows[:1])
    assert whole.nbytes / len(whole) < 16 + 8 + 5  # with a directory


@pytest.mark.parametrize(
    ("bits", "radius", "n", "maps"),
    [(64, 3, 200, 0), (64, 3, 5_000, 4), (64, 3, 50_000_000, 3), (64, 11, 10_000, 0), (64, 11, 1_000_000, 4),
     (64, 40, 1_000_000, 0), (128, 19, 10_000, 0), (128, 19, 1_000_000, 8)],
)  # fmt: skip
def test_the_number_of_fingerprints_decides_the_layout(bits: int, radius: int, n: int, maps: int) -> None:
    assert len(cheapest(bits, radius, n).cuts) == maps


def test_layouts_keep_to_the_bound_of_memory() -> None:
    for count in (10**6, 10**7, 5 * 10**7):
        layout = cheapest(64, 3, count)
        assert len(layout.cuts) <= 4
        assert layout.directory_bytes <= max(4 << 20, 3 * count)


def test_arrays_of_every_layout_are_served_by_the_same_machine_code() -> None:
    rows = clustered(10, 60, 128, 3)
    frozen = np.frombuffer(b"-" + rows.tobytes(), np.uint64, offset=1).reshape(60, 2)  # read-only, unaligned
    expected = brute_force(rows, rows[::2], 3)
    for stored in (rows, np.asfortranarray(rows), frozen, rows.repeat(2, axis=0)[::2]):
        with found_by("probe"):
            assert neighbours(filled(stored).within(stored[::2])) == expected
        pairs_within(stored, 3)
    kernels = (_kernel.settle, _kernel.chain, _kernel.look, _kernel.join)
    assert {len(kernel.signatures) for kernel in kernels} == {1}
    widths = [
        tuple(len(columns) for columns in signature[4].types[:2]) for signature in _scan.scan.signatures
    ]
    assert len(widths) == len(set(widths))  # once for each number of words, folded and whole


@pytest.mark.parametrize("bits", [0, 32, 100, 320])
def test_widths_that_it_cannot_serve_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="bits must be 64, 128, 192 or 256"):
        SegmentIndex(bits)


@pytest.mark.parametrize(("bits", "radius"), [(64, -1), (64, 65), (256, 256)])
def test_a_radius_that_it_cannot_serve_is_refused(bits: int, radius: int) -> None:
    with pytest.raises(ValueError, match="radius must be between 0 and"):
        SegmentIndex(bits, radius)
    with pytest.raises(ValueError, match="radius must be between 0 and"):
        pairs_within(prints(1, bits=bits), radius)


@pytest.mark.parametrize(
    "wrong", [np.zeros((2, 1), np.int64), np.zeros((2, 2), np.uint64), np.zeros(2, np.uint64)]
)
def test_arrays_of_the_wrong_shape_or_type_are_refused(wrong: Fingerprints) -> None:
    for use in (SegmentIndex().add, SegmentIndex().within):
        with pytest.raises(ValueError, match=r"must be uint64 of shape \(n, 1\)"):
            use(wrong)


def test_more_queries_than_can_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 16777215"):
        SegmentIndex().within(np.zeros((1 << 24, 1), np.uint64))


def test_hamming_counts_differing_bits_of_every_word() -> None:
    a = prints(0, (1 << 128) - 1, 1 << 127 | 1, bits=128)
    assert hamming(a, prints(0, bits=128)).tolist() == [0, 128, 2]
    assert hamming(a[2], a[1]) == 126
