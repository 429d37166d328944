from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from bson import encode

from dedup_job.analysis import settings_trials
from dedup_job.analysis.scores import Score, TunedSettings
from dedup_job.analysis.settings_trials import (
    BAND_RADII,
    CACHED_TEXTS,
    KEY_BYTES,
    SHAPES,
    BandResult,
    TextSample,
    ThresholdResult,
)
from dedup_job.analysis.tune_tables import TuneTables
from dedup_job.fingerprint.bands import band_keys
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.candidate_index import FOUND, CandidateIndex
from dedup_job.index.keepers import KeeperRefetch, Keepers
from dedup_job.native.arrays import Ragged
from dedup_job.pipeline import job
from dedup_job.records import Fingerprints, RawIds
from scripts.bench.corpus import Mix, generate
from tests.support.recipes import recipe_of

AT = 0.8
RECIPE = recipe_of("data", match={"radius": 3, "bands": 8, "rows": 4, "band_radius": 16})
PRESENT = TunedSettings(radius=3, bands=8, rows=4, band_radius=16, min_similarity=AT)
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
    return list(settings_trials.try_bands(sample, settings_trials.bands_to_try(PRESENT, 64), len(true_pairs)))


def candidates(sample: TextSample, setting: TunedSettings) -> set[tuple[int, int]]:
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
    usual = settings_trials.bands_to_try(replace(PRESENT, band_radius=bits // 4), bits)
    assert len(usual) == len(SHAPES) * len(BAND_RADII) + 1  # no bands
    odd = replace(PRESENT, bands=7, rows=2, band_radius=9)
    assert len(settings_trials.bands_to_try(odd, bits)) == len(usual) + 1
    assert odd in settings_trials.bands_to_try(odd, bits)
    assert max(one.band_radius for one in usual) == bits
    segments_alone = replace(PRESENT, bands=0)
    assert len(settings_trials.bands_to_try(segments_alone, bits)) == len(usual)


@pytest.mark.long
def test_what_keys_find_is_what_comparing_all_finds(
    sample: TextSample, rows: list[BandResult], true_pairs: set[tuple[int, int]]
) -> None:
    assert len(true_pairs) > 50
    assert settings_trials.count_near_duplicates(sample, AT) == len(true_pairs)
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
    sample, setting = TextSample.of(prints), TunedSettings.of(recipe.matching)
    (one,) = (
        one
        for one in settings_trials.try_thresholds(sample, setting, AT, len(true_pairs))
        if one.min_similarity == level
    )

    keepers = Keepers(recipe, 1 << 20, KeeperRefetch(lambda ids: [], lambda raws: prints))
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
        settings_trials.try_thresholds(sample, replace(PRESENT, min_similarity=0.75), AT, len(true_pairs))
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
    levels = {one.min_similarity: one for one in settings_trials.try_thresholds(sample, PRESENT, 0.8, 2)}
    assert levels[0.8] == ThresholdResult(0.8, Score(hits=2, rejections=1), 1)
    assert levels[0.0] == ThresholdResult(0.0, Score(hits=2, false_alarms=1), 2)


def test_texts_without_a_fingerprint_are_found_by_their_bands_at_any_distance() -> None:
    """Four texts, all but the last alike; only the last two have a fingerprint, the others zeros."""
    shingles = np.array([range(10), range(10), range(10), range(50, 60)], np.uint32)
    near = np.array([False, False, True, True])
    bits = np.where(near, np.uint64(2**64 - 1), np.uint64(0)).reshape(-1, 1)
    sample = TextSample(4, 0, 0, bits, near, Ragged(np.arange(0, 50, 10), shingles.ravel()))
    (alone, banded) = settings_trials.try_bands(sample, [replace(PRESENT, bands=0), PRESENT], 3)
    assert (alone.found, alone.missed, alone.wrong) == (0, 3, 1)  # two fingerprints that are equal
    assert (banded.found, banded.missed, banded.wrong) == (3, 0, 1)
    assert (banded.compared, banded.in_vain) == (1.0, 1 / 4)


def row(setting: TunedSettings = PRESENT, found: int = 100, missed: int = 0, wrong: int = 0) -> BandResult:
    return BandResult(setting, 64, found, missed, wrong, texts=5_000)


def test_a_key_takes_as_many_bytes_as_the_index_holds_for_it() -> None:
    """Half a million texts, so that directories and room to grow weigh as they do among millions."""
    count, rng = 500_000, np.random.default_rng(1)
    index = CandidateIndex(64, replace(RECIPE.matching, bands=PRESENT.bands))
    for _ in range(count // 5_000):
        bits = rng.integers(1 << 64, size=(5_000, 1), dtype=np.uint64)
        keys = rng.integers(1 << 32, size=(5_000, 8), dtype=np.uint32)
        index.add(bits, np.ones(5_000, bool), keys)
    assert row().keys == 12
    assert row(replace(PRESENT, bands=0)).keys == 4
    assert row(replace(PRESENT, radius=4)).keys == 8  # without segments all are compared
    parts = index.parts
    assert (parts["segments"] + parts["bands"]) / count / row().keys == pytest.approx(KEY_BYTES, rel=0.25)
    assert row().nbytes == 9 + 12 * KEY_BYTES


def test_the_best_keys_cost_least_of_those_that_find_as_much() -> None:
    few, many, poor = (replace(PRESENT, bands=bands) for bands in (4, 60, 1))
    tried = [row(poor, 90, 10), row(few, 999, 1), row(many, 1000)]
    assert settings_trials.choose_bands(tried, 10**7, poor) == tried[1]
    assert settings_trials.choose_bands([tried[0], tried[2]], 10**7, poor) == tried[2]


def test_the_present_keys_stay_where_others_save_little() -> None:
    fewer = replace(PRESENT, bands=4)
    tried = [row(fewer), row()]
    assert settings_trials.choose_bands(tried, 10**7, PRESENT) == tried[1]
    assert settings_trials.choose_bands(tried, 10**7, replace(PRESENT, bands=5)) == tried[0]


def test_the_present_keys_stay_where_chance_may_explain_that_others_find_more() -> None:
    more = replace(PRESENT, bands=10)
    few, many = ([row(missed=n, found=100 * n - n), row(more, found=100 * n)] for n in (1, 100))
    assert settings_trials.choose_bands(few, 10**6, PRESENT) == few[0]
    assert settings_trials.choose_bands(many, 10**6, PRESENT) == many[1]


def test_texts_compared_in_vain_count_as_the_collection_grows_and_keys_bound_them() -> None:
    loose, sharp = row(replace(PRESENT, rows=2), wrong=1_000), row(wrong=10)
    for small in (100, 5_000):
        assert settings_trials.choose_bands([loose, sharp], small, loose.setting) == loose
    assert settings_trials.choose_bands([loose, sharp], 10**6, loose.setting) == sharp
    assert sharp.cost(10**6) > sharp.cost(CACHED_TEXTS) > sharp.cost(5_000)
    assert loose.cost(10**12) == pytest.approx(loose.cost(10**11), rel=1e-4)
    assert loose.cost(10**12) < loose.cost(0) + FOUND * loose.keys * 200_000


def test_nothing_is_best_where_nothing_is_to_be_found() -> None:
    assert settings_trials.choose_bands([row(found=0)], 100, PRESENT) is None
    assert settings_trials.choose_bands([row(found=0, missed=3)], 100, PRESENT) is None
    assert settings_trials.choose_bands([], 100, PRESENT) is None


def test_a_form_filled_in_often_does_not_bring_all_its_pairs() -> None:
    """300 texts with the same keys: each is found by the first few alone, as in a run."""
    shingles = Ragged(np.arange(0, 3_010, 10), np.tile(np.arange(10, dtype=np.uint32), 300))
    sample = TextSample(300, 0, 0, np.zeros((300, 1), np.uint64), np.ones(300, bool), shingles)
    assert len(sample.candidates(PRESENT)) < FOUND * 300


def tuned(
    sample: TextSample, rows: list[BandResult], pairs: int, present: TunedSettings = PRESENT
) -> TuneTables:
    levels = list(settings_trials.try_thresholds(sample, present, AT, pairs))
    return TuneTables(sample, AT, present, 10**7, pairs, rows, levels)


def test_the_table_marks_the_present_and_the_best_settings(
    sample: TextSample, rows: list[BandResult], true_pairs: set[tuple[int, int]]
) -> None:
    told = tuned(sample, rows, len(true_pairs))
    text = told.as_text()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    present, level = (line for line in lines if line.startswith(">"))
    assert present[2:].split()[:3] == ["8", "4", "16"]
    assert level[2:].split()[0] == "0.8"
    assert sum("*" in line[:2] for line in lines) == 1
    assert "4 segments find all fingerprints within radius 3" in text
    assert told.best is not None
    assert told.best.setting.as_toml() in text


def test_settings_whose_level_is_another_are_marked_too(
    sample: TextSample, rows: list[BandResult], true_pairs: set[tuple[int, int]]
) -> None:
    told = tuned(sample, rows, len(true_pairs), replace(PRESENT, min_similarity=0.0)).as_text()
    present, level = (line for line in told.splitlines() if line.startswith(">"))
    assert present[2:].split()[:3] == ["8", "4", "16"]
    assert level[2:].split()[0] == "none"
    assert "min_similarity = 0.8" in told
    assert "must be rebuilt" in told


def test_the_table_as_values_holds_every_row(
    sample: TextSample, rows: list[BandResult], true_pairs: set[tuple[int, int]]
) -> None:
    told = tuned(sample, rows, len(true_pairs)).as_json()
    assert told["texts"] == len(sample)
    assert told["pairs"] == len(true_pairs)
    assert [TunedSettings(**one["settings"]) for one in told["rows"]] == settings_trials.bands_to_try(
        PRESENT, 64
    )
    assert [one["min_similarity"] for one in told["levels"]] == [0.0, 0.7, 0.8, 0.9]
    assert told["best"] in [one["settings"] for one in told["rows"]]
    assert told["present"] == {
        "radius": 3, "bands": 8, "rows": 4, "band_radius": 16, "min_similarity": 0.8,
    }  # fmt: skip


def test_few_pairs_are_said_to_be_few() -> None:
    def text(pairs: int) -> str:
        return tuned(NO_SHINGLES, [row(found=pairs)], pairs).as_text()

    assert "only 29 pairs" in text(29)
    assert "pairs alone" not in text(30)
    assert "the sample has no near-duplicates" in text(0)
