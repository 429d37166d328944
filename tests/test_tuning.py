from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job import job
from dedup_job.document import Action, Fingerprints
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.match.keepers import Keepers, Recollection
from dedup_job.match.layout import cut
from dedup_job.match.minhash import banded_pairs
from dedup_job.ragged import Ragged
from dedup_job.report import tuning
from dedup_job.report.scoring import Score, Setting
from dedup_job.report.tuned import Tuning
from dedup_job.report.tuning import RADII, Row, Sample
from scripts.corpus import Mix, generate
from tests.recipes import recipe_of

PRESENT = Setting(128, 19, 0.8)
AT = 0.8


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return recipe_of("data", median_length=150)


@pytest.fixture(scope="module")
def prints(recipe: Recipe) -> dict[int, Fingerprints]:
    """Short and long texts, many of them copies with small changes."""
    mix = Mix(length=220, spread=0.6, duplicates=0.5, near=0.8)
    raws = [encode(record) for record in generate(400, 11, mix)]
    shorts = [f"第{number}题 求函数的最大值与最小值之和{'的两倍' * (number % 3)}" for number in range(12)]
    raws += [encode({"_id": number, "data": text}) for number, text in enumerate(shorts)]
    return {bits: Fingerprinter(replace(recipe, bits=bits))(raws) for bits in RADII}


@pytest.fixture(scope="module")
def sample(prints: dict[int, Fingerprints], recipe: Recipe) -> Sample:
    columns = {bits: of_width.bits for bits, of_width in prints.items()}
    return Sample.of(prints[64], columns, recipe.matching.short_text)


@pytest.fixture(scope="module")
def rows(sample: Sample) -> list[Row]:
    return list(tuning.rows(sample, tuning.grid(PRESENT), AT))


def as_prints(sample: Sample, setting: Setting) -> Fingerprints:
    """What a worker says of the sample's texts under these settings."""
    texts = len(sample)
    unlike = np.arange(2 * texts, dtype=np.uint64).reshape(-1, 2)
    return Fingerprints(
        reasons=[""] * texts,
        bits=sample.bits[setting.bits],
        near=sample.near,
        short=sample.short & (setting.min_similarity > 0),
        digests=unlike,
        hashes=unlike,
        shingles=sample.shingles,
    )


def similarity_of(sample: Sample) -> dict[tuple[int, int], float]:
    """Jaccard similarity of all pairs, by Python's sets."""
    sets = [set(values.tolist()) for values in sample.shingles]
    return {
        (left, right): len(sets[left] & sets[right]) / max(1, len(sets[left] | sets[right]))
        for left, right in combinations(range(len(sets)), 2)
    }


def true_pairs(sample: Sample) -> set[tuple[int, int]]:
    return {pair for pair, similarity in similarity_of(sample).items() if similarity >= AT}


def test_a_sample_accounts_for_every_record(prints: dict[int, Fingerprints], sample: Sample) -> None:
    assert sample.read == 412 == len(sample) + sample.same_text + sample.unjudged
    assert sample.unjudged == sum(map(bool, prints[64].reasons)) > 0
    assert sample.same_text > 0
    texts = {
        digest.tobytes()
        for digest, reason in zip(prints[64].digests, prints[64].reasons, strict=True)
        if not reason
    }
    assert len(sample) == len(texts)


def test_a_sample_keeps_the_first_of_equal_texts_in_the_order_of_decision() -> None:
    digests = np.array([[1, 1], [2, 2], [1, 1], [0, 0], [3, 3]], np.uint64)
    bits = np.arange(5, dtype=np.uint64).reshape(-1, 1)
    shingles = Ragged(np.array([0, 1, 3, 4, 4, 7]), np.arange(7, dtype=np.uint32))
    every = np.ones(5, bool)
    given = Fingerprints(["", "", "", "missing", ""], bits, every, every, digests, digests, shingles)
    sample = Sample.of(given, {64: bits}, short_text=2)
    assert sample.bits[64].ravel().tolist() == [0, 1, 4]
    assert [row.tolist() for row in sample.shingles] == [[0], [1, 2], [4, 5, 6]]
    assert sample.short.tolist() == [True, True, False]
    assert (sample.read, sample.same_text, sample.unjudged) == (5, 1, 1)


def test_the_grid_holds_the_present_settings_wherever_they_lie() -> None:
    odd = Setting(64, 5, 0.75)
    assert len(tuning.grid(PRESENT)) == 28
    assert len(tuning.grid(odd)) == 29
    assert odd in tuning.grid(odd)


def test_recall_and_precision_are_those_of_brute_force(sample: Sample, rows: list[Row]) -> None:
    similarity, true = similarity_of(sample), true_pairs(sample)
    near, short = sample.near.tolist(), sample.short.tolist()
    numbers = {
        bits: [int.from_bytes(words.tobytes(), "little") for words in columns]
        for bits, columns in sample.bits.items()
    }
    assert len(true) > 50
    for row in rows:
        setting = row.setting
        assert setting is not None
        prints = numbers[setting.bits]
        found = {
            (one, other)
            for (one, other), alike in similarity.items()
            if alike >= setting.min_similarity
            and (
                (near[one] and near[other] and (prints[one] ^ prints[other]).bit_count() <= setting.radius)
                or (short[one] and short[other] and setting.min_similarity)
            )
        }
        hits, others = len(found & true), len(similarity) - len(found | true)
        assert row.score == Score(hits, len(found - true), len(true - found), others), setting


@pytest.mark.parametrize("setting", tuning.grid(Setting(64, 5, 0.75)), ids=str)
def test_what_would_be_dropped_is_what_the_job_drops(
    sample: Sample, recipe: Recipe, setting: Setting
) -> None:
    matching = replace(recipe.matching, radius=setting.radius, min_similarity=setting.min_similarity)
    recall = Recollection(lambda ids: {}, lambda raws: as_prints(sample, setting))
    ids = [b"%d" % number for number in range(len(sample))]
    verdicts = job.decide(
        ids, as_prints(sample, setting), matching, Keepers(setting.bits, setting.radius, 1, recall)
    )
    (row,) = [row for row in tuning.rows(sample, [setting], AT) if row.setting == setting]
    assert row.dropped == sum(verdict.action is Action.DUPLICATE for verdict in verdicts) > 0


def test_a_chain_never_drops_its_end() -> None:
    """The first matches the second, that the third: the second is dropped, so it drops nothing."""
    sets = [range(10), range(1, 11), range(2, 12)]
    sample = Sample(
        read=3, unjudged=0, same_text=0, bits={64: np.zeros((3, 1), np.uint64)}, near=np.ones(3, bool),
        short=np.zeros(3, bool),
        shingles=Ragged(np.array([0, 10, 20, 30]), np.array(sets, np.uint32).ravel()),
    )  # fmt: skip
    (row,) = tuning.rows(sample, [Setting(64, 3, 0.8)], 0.8)
    assert row.score == Score(hits=2, rejections=1)
    assert row.dropped == 1


def test_texts_of_too_few_terms_are_not_found_by_their_fingerprints() -> None:
    """Four texts that are alike, the last with other shingles; the first two have too few terms."""
    shingles = np.array([range(10), range(10), range(10), range(50, 60)], np.uint32)
    sample = Sample(
        read=4, unjudged=0, same_text=0, bits={64: np.zeros((4, 1), np.uint64)},
        near=np.array([False, False, True, True]), short=np.array([True, True, False, False]),
        shingles=Ragged(np.arange(0, 50, 10), shingles.ravel()),
    )  # fmt: skip
    unverified, verified = tuning.rows(sample, [Setting(64, 3, 0.0), Setting(64, 3, 0.8)], 0.8)
    assert unverified.score == Score(hits=0, false_alarms=1, misses=3, rejections=2)
    assert verified.score == Score(hits=1, misses=2, rejections=3)  # the two that are short
    assert (verified.candidates, verified.near, verified.wrong) == (1 / 4, 1 / 4, 1 / 4)


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("radius", [0, 1, 2, 3, 4, 5, 7, 8, 10, 15, 19, 23, 31])
def test_probes_are_those_of_the_index(bits: int, radius: int) -> None:
    assert tuning.probes(bits, radius) == cut(bits, radius, bits // 16, 16).probes


@given(st.lists(st.integers(0, 2**64 - 1), max_size=12), st.integers(0, 2**64 - 1), st.integers(0, 12))
def test_fingerprints_meet_where_a_segment_is_near_enough(fresh: list[int], base: int, radius: int) -> None:
    values = [base, *(base ^ (1 << value % 64) ^ (value & 0xF0F0) for value in fresh)]
    reach = tuning.reach(64, radius).tolist()
    expected = sum(
        any(
            ((one ^ other) >> 16 * segment & 0xFFFF).bit_count() <= flips
            for segment, flips in enumerate(reach)
        )
        for one, other in combinations(values, 2)
    )
    assert tuning.bucket_mates(np.array(values, np.uint64).reshape(-1, 1), [radius]) == {radius: expected}


def test_candidates_hold_what_is_within_the_radius(rows: list[Row]) -> None:
    for row in rows:
        assert row.candidates >= row.near - 1e-9
        assert row.near >= row.wrong >= 0


def row(setting: Setting, score: Score, wrong: float = 0.0) -> Row:
    return Row(
        setting,
        "simhash",
        setting.min_similarity,
        score,
        tuning.probes(setting.bits, setting.radius),
        1.0,
        1.0,
        wrong,
        1,
    )


def test_the_best_settings_cost_least_of_those_that_are_as_good() -> None:
    cheap, dear, poor = Setting(64, 7, 0.8), Setting(128, 23, 0.8), Setting(64, 3, 0.8)
    tried = [
        row(poor, Score(hits=90, misses=10)),
        row(cheap, Score(hits=199, misses=1)),
        row(dear, Score(hits=200)),
    ]
    assert tuning.best(tried, 10**7, 5_000, poor) == cheap
    assert tuning.best([tried[0], tried[2]], 10**7, 5_000, poor) == dear


def test_texts_compared_in_vain_count_as_the_collection_grows() -> None:
    loose, sharp = Setting(64, 10, 0.8), Setting(128, 23, 0.8)
    tried = [row(loose, Score(hits=100), wrong=0.01), row(sharp, Score(hits=100))]
    assert tuning.best(tried, 10**6, 5_000, sharp) == sharp
    assert tuning.best([tried[0], row(sharp, Score(hits=100), wrong=0.01)], 10**6, 5_000, sharp) == loose


def test_the_present_settings_win_a_tie_and_the_better_f1_the_next() -> None:
    low, high = Setting(128, 19, 0.7), Setting(128, 19, 0.8)
    tried = [row(low, Score(hits=1000, false_alarms=1)), row(high, Score(hits=1000))]
    assert tuning.best(tried, 10**6, 5_000, low) == low
    assert tuning.best(tried, 10**6, 5_000, Setting(64, 3, 0.0)) == high


def test_nothing_is_best_where_nothing_is_to_be_found() -> None:
    assert tuning.best([row(PRESENT, Score(rejections=10))], 100, 10, PRESENT) is None
    assert tuning.best([row(PRESENT, Score(misses=3))], 100, 10, PRESENT) is None
    assert tuning.best([], 100, 10, PRESENT) is None


def test_minhash_finds_equal_sets_and_not_unlike_ones() -> None:
    sets = Ragged(np.array([0, 30, 60, 90, 90]), np.r_[0:30, 0:30, 100:130].astype(np.uint32))
    pairs, bands = banded_pairs(sets)
    assert (pairs.left.tolist(), pairs.right.tolist(), pairs.similarity.tolist()) == ([0], [1], [1.0])
    assert bands > 1


def test_minhash_stands_beside_the_fingerprints(sample: Sample, rows: list[Row]) -> None:
    yardstick = tuning.yardstick(sample, AT)
    assert [one.min_similarity for one in yardstick] == [0.0, 0.7, 0.8, 0.9]
    assert len({one.score.pairs for one in [*yardstick, *rows]}) == 1
    assert len({one.score.hits + one.score.misses for one in [*yardstick, *rows]}) == 1
    recall = yardstick[2].score.recall.value
    assert recall is not None
    assert recall > 0.8
    assert yardstick[2].score.precision.value == 1.0
    assert yardstick[2].dropped > 0


def test_without_datasketch_there_is_no_yardstick(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(ImportError):
        tuning.yardstick(sample, AT)


def test_the_table_marks_the_present_and_the_best_settings(sample: Sample, rows: list[Row]) -> None:
    tuned = Tuning(sample, AT, PRESENT, 10**7, [*rows, *tuning.yardstick(sample, AT)])
    text = tuned.as_text()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    (present,) = [line for line in lines if line.startswith(">")]
    assert present[2:].split()[:3] == ["128", "19", "0.8"]
    assert sum("*" in line[:2] for line in lines) == 1
    assert sum(line.startswith("# ") for line in lines) == 4
    assert tuned.best is not None
    assert tuned.best.as_toml() in text


def test_the_table_as_values_holds_every_row(sample: Sample, rows: list[Row]) -> None:
    tuned = Tuning(sample, AT, PRESENT, 10**7, rows, "a note").as_json()
    assert tuned["texts"] == len(sample)
    assert tuned["pairs"] == len(true_pairs(sample))
    assert [one["settings"] for one in tuned["rows"]] == [
        {"bits": one.bits, "radius": one.radius, "min_similarity": one.min_similarity}
        for one in tuning.grid(PRESENT)
    ]
    assert tuned["note"] == "a note"
    assert tuned["best"] in [one["settings"] for one in tuned["rows"]]


def test_few_pairs_are_said_to_be_few(sample: Sample) -> None:
    def text(hits: int) -> str:
        return Tuning(sample, AT, PRESENT, 10**6, [row(PRESENT, Score(hits=hits))]).as_text()

    assert "from 29 pairs alone" in text(29)
    assert "pairs alone" not in text(30)
    assert "no near-duplicates to find" in text(0)
