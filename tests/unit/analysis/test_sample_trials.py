from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.analysis import sample_trials
from dedup_job.analysis.forecast import KEY_BYTES
from dedup_job.analysis.sample_trials import (
    BAND_RADII,
    FEW_PAIRS,
    SHAPES,
    BandResult,
    TextSample,
    ThresholdResult,
    TunedSample,
)
from dedup_job.analysis.scores import Score, tuned_toml
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.minhash_bands import band_keys
from dedup_job.fingerprint.recipe import Matching, Recipe
from dedup_job.index.candidate_index import FOUND, CandidateIndex
from dedup_job.index.keepers import Keepers
from dedup_job.native.arrays import Ragged
from dedup_job.pipeline import job
from dedup_job.records import Fingerprints, RawIds
from scripts.bench.corpus import Mix, generate
from scripts.bench.index_memory import candidate_index_bytes
from tests.support.recipes import recipe_of

AT = 0.8
RECIPE = recipe_of("data", match={"radius": 3, "bands": 8, "rows": 4, "band_radius": 16})
PRESENT = Matching(radius=3, bands=8, rows=4, band_radius=16, min_similarity=AT)
NO_SHINGLES = TextSample(0, 0, 0, np.zeros((0, 1), np.uint64), np.zeros(0, bool), Ragged.empty(0))


@cache
def made(recipe: Recipe) -> Fingerprints:
    """Short and long texts, many of them copies with small changes."""
    mix = Mix(length=220, spread=0.6, duplicates=0.5, near=0.8)
    raws = [encode(record) for record in generate(400, 11, mix)]
    shorts = [f"第{number}题 求函数的最大值与最小值之和{'的两倍' * (number % 3)}" for number in range(12)]
    raws += [encode({"_id": number, "data": text}) for number, text in enumerate(shorts)]
    return Fingerprinter(recipe)(raws)


@pytest.fixture(scope="module")
def sample() -> TextSample:
    return TextSample.of(made(RECIPE))


@pytest.fixture(scope="module")
def similarity(sample: TextSample) -> dict[tuple[int, int], float]:
    """Similarity of all pairs, by Python's sets."""
    sets = [set(values.tolist()) for values in sample.shingles]
    return {
        (left, right): len(sets[left] & sets[right]) / max(1, len(sets[left] | sets[right]))
        for left, right in combinations(range(len(sets)), 2)
    }


@pytest.fixture(scope="module")
def true_pairs(similarity: dict[tuple[int, int], float]) -> set[tuple[int, int]]:
    return {pair for pair, alike in similarity.items() if alike >= AT}


@pytest.fixture(scope="module")
def rows(sample: TextSample, true_pairs: set[tuple[int, int]]) -> list[BandResult]:
    return list(sample_trials.try_bands(sample, sample_trials.bands_to_try(PRESENT, 64), len(true_pairs)))


def candidates(sample: TextSample, setting: Matching) -> set[tuple[int, int]]:
    """The pairs that share a key and are near enough, by comparing all."""
    keys = band_keys(sample.shingles, setting.bands, setting.rows)
    bits = [int.from_bytes(row.tobytes(), "little") for row in sample.bits]
    near = sample.has_fingerprint.tolist()

    def is_candidate(one: int, other: int) -> bool:
        have_prints = near[one] and near[other]
        apart = (bits[one] ^ bits[other]).bit_count()
        by_band = (keys[one] == keys[other]).any() and (not have_prints or apart <= setting.band_radius)
        return bool(by_band or (have_prints and apart <= setting.radius))

    return {pair for pair in combinations(range(len(sample)), 2) if is_candidate(*pair)}


def test_a_sample_accounts_for_every_record(sample: TextSample) -> None:
    prints = made(RECIPE)
    assert sample.read == 412 == len(sample) + sample.same_text + sample.unchecked
    assert sample.unchecked == sum(map(bool, prints.reasons)) > 0
    assert sample.same_text > 0
    texts = {
        digest.tobytes() for digest, reason in zip(prints.digests, prints.reasons, strict=True) if not reason
    }
    assert len(sample) == len(texts)


def test_a_sample_keeps_the_first_of_equal_texts_in_the_order_of_decision() -> None:
    digests = np.array([[1, 1], [2, 2], [1, 1], [0, 0], [3, 3]], np.uint64)
    bits = np.arange(5, dtype=np.uint64).reshape(-1, 1)
    shingles = Ragged(np.array([0, 1, 3, 4, 4, 7]), np.arange(7, dtype=np.uint32))
    near, keys = np.array([True, False, True, False, True]), np.zeros((5, 8), np.uint32)
    sample = TextSample.of(
        Fingerprints(["", "", "", "missing", ""], bits, near, keys, digests, digests, shingles, ~near)
    )
    assert sample.bits.ravel().tolist() == [0, 1, 4]
    assert sample.has_fingerprint.tolist() == [True, False, True]
    assert [row.tolist() for row in sample.shingles] == [[0], [1, 2], [4, 5, 6]]
    assert (sample.read, sample.same_text, sample.unchecked) == (5, 1, 1)


@pytest.mark.parametrize("bits", [64, 128])
def test_the_grid_holds_the_present_keys_wherever_they_lie(bits: int) -> None:
    usual = sample_trials.bands_to_try(replace(PRESENT, band_radius=bits // 4), bits)
    assert len(usual) == len(SHAPES) * len(BAND_RADII) + 2  # the default, and no bands
    odd = replace(PRESENT, bands=7, rows=2, band_radius=9)
    assert len(sample_trials.bands_to_try(odd, bits)) == len(usual) + 1
    assert odd in sample_trials.bands_to_try(odd, bits)
    assert max(one.band_radius for one in usual) == bits


@pytest.mark.long
def test_what_keys_find_is_what_comparing_all_finds(
    sample: TextSample, rows: list[BandResult], true_pairs: set[tuple[int, int]]
) -> None:
    assert len(true_pairs) > 50
    assert sample.count_near_duplicates(AT) == len(true_pairs)
    for row in rows:
        found = candidates(sample, row.setting)
        assert (row.found, row.wrong) == (len(found & true_pairs), len(found - true_pairs)), row.setting
        assert row.missed == len(true_pairs - found)
        assert row.recall.value == len(found & true_pairs) / len(true_pairs)
        assert row.compared == pytest.approx(len(found) / len(sample))
        assert row.in_vain == pytest.approx(len(found - true_pairs) / len(sample))


def test_fingerprints_of_128_bits_are_compared_as_a_whole() -> None:
    long = replace(RECIPE, bits=128)
    sample, present = TextSample.of(made(long)), replace(PRESENT, band_radius=24)
    assert sample.width == 128
    found = sample.candidates(present)
    pairs = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert pairs == candidates(sample, present)
    assert len(pairs) == len(found) > 50


def test_candidates_carry_their_similarity_in_the_order_of_pairs(
    sample: TextSample, similarity: dict[tuple[int, int], float]
) -> None:
    found = sample.candidates(PRESENT)
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert pairs == sorted(pairs, key=lambda pair: (pair[1], pair[0]))
    assert found.similarity.tolist() == [similarity[pair] for pair in pairs]


@pytest.mark.parametrize("level", [0.0, 0.7, AT, 0.9, 0.95])
@pytest.mark.parametrize("shape", [{}, {"bands": 0}, {"rows": 2, "band_radius": 64}, {"radius": 5}])
def test_what_would_be_dropped_is_what_the_job_drops(
    true_pairs: set[tuple[int, int]], shape: dict[str, int], level: float
) -> None:
    recipe = replace(RECIPE, matching=replace(RECIPE.matching, **shape, min_similarity=level))
    prints = made(recipe)
    sample, setting = TextSample.of(prints), recipe.matching
    (one,) = (
        one
        for one in sample_trials.try_thresholds(sample, setting, AT, len(true_pairs))
        if one.min_similarity == level
    )

    keepers = Keepers(recipe, 1 << 20)
    ids = [b"%d" % number for number in range(len(prints))]
    texts = keepers.add_texts(RawIds.of(ids), prints).texts
    verdicts = job.decide(ids, prints, texts, recipe.matching, keepers).verdicts
    dropped = {
        text for text, verdict in zip(texts.tolist(), verdicts, strict=True) if verdict.reason == "near"
    }
    assert one.dropped == len(dropped) > 0


def test_a_level_scores_the_candidates_of_the_present_keys(
    sample: TextSample, similarity: dict[tuple[int, int], float], true_pairs: set[tuple[int, int]]
) -> None:
    found = candidates(sample, PRESENT)
    levels = list(
        sample_trials.try_thresholds(sample, replace(PRESENT, min_similarity=0.75), AT, len(true_pairs))
    )
    assert [one.min_similarity for one in levels] == [0.0, 0.7, 0.75, 0.8, 0.9]
    for one in levels:
        matched = {pair for pair in found if similarity[pair] >= one.min_similarity}
        others = len(similarity) - len(matched | true_pairs)
        assert one.score == Score(
            len(matched & true_pairs), len(matched - true_pairs), len(true_pairs - matched), others
        )


def test_a_chain_never_drops_its_end() -> None:
    """The first matches the second, that the third: the second is dropped, so it drops nothing."""
    sets = [range(10), range(1, 11), range(2, 12)]
    shingles = Ragged(np.array([0, 10, 20, 30]), np.array(sets, np.uint32).ravel())
    sample = TextSample(3, 0, 0, np.zeros((3, 1), np.uint64), np.ones(3, bool), shingles)
    levels = {one.min_similarity: one for one in sample_trials.try_thresholds(sample, PRESENT, 0.8, 2)}
    assert levels[0.8] == ThresholdResult(0.8, Score(hits=2, rejections=1), 1)
    assert levels[0.0] == ThresholdResult(0.0, Score(hits=2, false_alarms=1), 2)


def test_texts_without_a_fingerprint_are_found_by_their_bands_at_any_distance() -> None:
    """Four texts, all but the last alike; only the last two have a fingerprint, the others zeros."""
    shingles = np.array([range(10), range(10), range(10), range(50, 60)], np.uint32)
    near = np.array([False, False, True, True])
    bits = np.where(near, np.uint64(2**64 - 1), np.uint64(0)).reshape(-1, 1)
    sample = TextSample(4, 0, 0, bits, near, Ragged(np.arange(0, 50, 10), shingles.ravel()))
    (alone, banded) = sample_trials.try_bands(sample, [replace(PRESENT, bands=0), PRESENT], 3)
    assert (alone.found, alone.missed, alone.wrong) == (0, 3, 1)  # two fingerprints that are equal
    assert (banded.found, banded.missed, banded.wrong) == (3, 0, 1)
    assert (banded.compared, banded.in_vain) == (1.0, 1 / 4)


def row(setting: Matching = PRESENT, found: int = 100, missed: int = 0, wrong: int = 0) -> BandResult:
    return BandResult(setting, 64, found, missed, wrong, texts=5_000)


def test_a_key_takes_as_many_bytes_as_the_index_holds_for_it() -> None:
    """Half a million texts, so that directories and room to grow weigh as they do among millions."""
    count, rng = 500_000, np.random.default_rng(1)
    index = CandidateIndex(64, replace(RECIPE.matching, bands=PRESENT.bands))
    for _ in range(count // 5_000):
        bits = rng.integers(1 << 64, size=(5_000, 1), dtype=np.uint64)
        keys = rng.integers(1 << 32, size=(5_000, 8), dtype=np.uint32)
        index.add(bits, np.ones(5_000, bool), keys)
    assert row().nbytes == 9 + 12 * KEY_BYTES
    assert row(replace(PRESENT, bands=0)).nbytes == 9 + 4 * KEY_BYTES
    # Without segments all fingerprints are compared.
    assert row(replace(PRESENT, radius=4)).nbytes == 9 + 8 * KEY_BYTES
    parts = candidate_index_bytes(index)
    assert (parts["segments"] + parts["bands"]) / count / 12 == pytest.approx(KEY_BYTES, rel=0.25)


def tuned(
    sample: TextSample,
    rows: list[BandResult],
    pairs: int,
    present: Matching = PRESENT,
    count: int = 1_000_000,
) -> TunedSample:
    levels = list(sample_trials.try_thresholds(sample, present, AT, pairs))
    return TunedSample("shop.pages", sample, 50, AT, present, count, pairs, rows, levels)


def best(*rows: BandResult, pairs: int = 1_000) -> BandResult | None:
    return tuned(NO_SHINGLES, list(rows), pairs).best


def test_the_smallest_keys_are_suggested_of_those_that_find_as_much() -> None:
    few, many, more = (replace(PRESENT, bands=bands) for bands in (9, 60, 20))
    present, good = row(found=900, missed=100), row(few, 999, 1)
    assert best(present, good, row(many, 1_000)) == good
    assert best(present, row(many, 1_000), row(more, 997, 3)) == row(many, 1_000)


def test_the_keys_of_a_profile_are_suggested_before_smaller_ones() -> None:
    default, smaller = replace(PRESENT, bands=9, band_radius=18), replace(PRESENT, bands=9, rows=3)
    rows = [row(found=900, missed=100), row(smaller, 1_000), row(default, 999, 1)]
    assert best(*rows) == rows[2]
    assert best(*rows[:2]) == rows[1]


def test_of_equally_small_keys_those_with_the_fewest_comparisons_are_suggested() -> None:
    loose, sharp = (replace(PRESENT, bands=9, band_radius=radius) for radius in (64, 16))
    present = row(found=900, missed=100)
    assert best(present, row(loose, 1_000, wrong=500), row(sharp, 1_000, wrong=5)) == row(
        sharp, 1_000, wrong=5
    )


def test_the_present_keys_stay_where_chance_may_explain_that_others_find_more() -> None:
    more = replace(PRESENT, bands=10)
    few, many = ([row(missed=n, found=100 * n - n), row(more, found=100 * n)] for n in (1, 100))
    assert best(*few) == few[0]
    assert best(*many) == many[1]


def test_nothing_is_suggested_where_little_is_to_be_found() -> None:
    assert best(row(found=0)) is None
    assert best(row(found=0, missed=300)) is None
    assert best(row(found=29), pairs=FEW_PAIRS - 1) is None
    assert best(row(found=30), pairs=FEW_PAIRS) is not None


def test_a_form_filled_in_often_does_not_bring_all_its_pairs() -> None:
    """300 texts with the same keys: each is found by the first few alone, as in a run."""
    shingles = Ragged(np.arange(0, 3_010, 10), np.tile(np.arange(10, dtype=np.uint32), 300))
    sample = TextSample(300, 0, 0, np.zeros((300, 1), np.uint64), np.ones(300, bool), shingles)
    assert len(sample.candidates(PRESENT)) < FOUND * 300


def test_the_table_shows_the_present_settings_the_profiles_and_the_suggested_ones(
    sample: TextSample, rows: list[BandResult], true_pairs: set[tuple[int, int]]
) -> None:
    told = tuned(sample, rows, len(true_pairs))
    text = told.as_text()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    assert list(told.named_rows) == ["present, suggested", "default", "thorough", "classic"]
    present = next(line for line in lines if line.startswith("  present, suggested"))
    assert present.split()[2:5] == ["8", "4", "16"]
    assert any(line.split()[:2] == ["0.8", "(present)"] for line in lines)
    assert "4 segments find all fingerprints within radius 3" in text
    assert told.best is not None
    assert tuned_toml(told.best.setting) in text


def test_settings_without_a_threshold_are_shown_too(
    sample: TextSample, rows: list[BandResult], true_pairs: set[tuple[int, int]]
) -> None:
    told = tuned(sample, rows, len(true_pairs), replace(PRESENT, min_similarity=0.0)).as_text()
    assert "none (present)" in told
    assert "min_similarity = 0.8" in told
    assert "must be rebuilt" in told


def test_the_json_object_has_every_row(
    sample: TextSample, rows: list[BandResult], true_pairs: set[tuple[int, int]]
) -> None:
    told = tuned(sample, rows, len(true_pairs)).as_json()
    assert told["texts"] == len(sample)
    assert told["pairs"] == len(true_pairs)
    assert [Matching(**one["settings"]) for one in told["rows"]] == sample_trials.bands_to_try(PRESENT, 64)
    assert [one["min_similarity"] for one in told["levels"]] == [0.0, 0.7, 0.8, 0.9]
    assert told["best"] in [one["settings"] for one in told["rows"]]
    assert told["present"] == {
        "radius": 3, "bands": 8, "rows": 4, "band_radius": 16, "min_similarity": 0.8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (29, "the sample has only 29 pairs of near duplicates, too few to choose settings by"),
        (1, "the sample has only 1 pair of near duplicates, too few"),
        (0, "the sample has no pair of near duplicates, too few"),
        (30, "tune: "),
    ],
)
def test_few_pairs_are_said_first(pairs: int, message: str, rows: list[BandResult]) -> None:
    text = tuned(NO_SHINGLES, [replace(one, found=pairs, missed=0) for one in rows], pairs).as_text()
    assert text.startswith(message)
    assert ("suggested" in text) == (pairs >= 30)


def test_a_larger_sample_is_advised_only_of_a_larger_collection(rows: list[BandResult]) -> None:
    size = NO_SHINGLES.read
    advised = ["--sample" in tuned(NO_SHINGLES, rows, 0, count=n).as_text() for n in (size, size + 1)]
    assert advised == [False, True]


def texts_of(*sets: set[int]) -> TextSample:
    shingles = Ragged(
        np.cumsum([0, *map(len, sets)], dtype=np.int64),
        np.array([value for row in sets for value in sorted(row)], np.uint32),
    )
    return TextSample(0, 0, 0, np.zeros((len(sets), 1), np.uint64), np.ones(len(sets), bool), shingles)


@given(
    st.lists(st.sets(st.integers(0, 12) | st.integers(2**32 - 3, 2**32 - 1)), max_size=25),
    st.sampled_from([0.05, 0.3, 1 / 3, 0.5, 0.6, 2 / 3, 0.7, 0.8, 0.9, 1.0]),
)
def test_near_duplicates_are_counted_as_with_sets_of_python(rows: list[set[int]], at: float) -> None:
    expected = sum(
        len(one & other) >= at * len(one | other) for one, other in combinations(rows, 2) if one | other
    )
    assert texts_of(*rows).count_near_duplicates(at) == expected


@pytest.mark.parametrize("size", [3, 5, 10, 15, 20, 25, 50, 100])
@pytest.mark.parametrize("at", [0.6, 0.7, 0.8, 0.9])
def test_a_pair_exactly_at_the_threshold_is_counted(size: int, at: float) -> None:
    """One set inside the other, so that their similarity is the share of the smaller in the greater."""
    shared = next(count for count in range(size + 1) if count / size >= at)
    assert texts_of(set(range(size)), set(range(size - shared, size))).count_near_duplicates(at) == 1


@pytest.mark.parametrize("at", [0.0, -0.1, 1.1, float("nan")])
def test_a_threshold_out_of_range_is_refused(at: float) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        texts_of({1}).count_near_duplicates(at)
