from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.analysis.scores import NO_SHARE, Score, tuned_toml, wilson
from dedup_job.fingerprint.recipe import Matching
from tests.support.recipes import recipe_of

COUNTS = st.integers(0, 10**6)
SCORES = st.builds(Score, COUNTS, COUNTS, COUNTS, COUNTS)


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        # Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17
        # (1998), table I, method 3: Wilson's interval without continuity correction.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_that_of_the_published_table(hits: int, trials: int, low: float, high: float) -> None:
    share = wilson(hits, trials)
    assert share.value == hits / trials
    assert share.low == pytest.approx(low, abs=5e-5)
    assert share.high == pytest.approx(high, abs=5e-5)


@given(st.integers(1, 10**6), st.data())
def test_an_interval_holds_the_share_and_stays_within_0_and_1(trials: int, data: st.DataObject) -> None:
    share = wilson(data.draw(st.integers(0, trials)), trials)
    assert 0 <= share.low <= share.value <= share.high <= 1  # type: ignore[operator]
    assert share.low < share.high  # type: ignore[operator]


@given(st.integers(1, 10**4), st.data())
def test_misses_mirror_hits(trials: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, trials))
    one, other = wilson(hits, trials), wilson(trials - hits, trials)
    assert one.low == pytest.approx(1 - other.high)  # type: ignore[operator]


def test_no_hits_and_no_misses_reach_the_ends_exactly() -> None:
    assert all(wilson(0, trials).low == 0.0 for trials in range(1, 2_000))
    assert all(wilson(trials, trials).high == 1.0 for trials in range(1, 2_000))


def test_nothing_counted_says_nothing() -> None:
    assert wilson(0, 0) == NO_SHARE
    assert str(NO_SHARE) == "-"
    assert Score().f1 == Score(rejections=5).precision == NO_SHARE


def test_a_worked_score() -> None:
    score = Score(hits=8, false_alarms=2, misses=4, rejections=86)
    assert score.pairs == 100
    assert score.precision.value == 0.8
    assert score.recall.value == pytest.approx(8 / 12)
    assert score.f1.value == pytest.approx(16 / 22)


@given(SCORES.filter(lambda score: score.hits > 0))
def test_f1_is_the_harmonic_mean_of_precision_and_recall(score: Score) -> None:
    precision, recall = score.precision.value, score.recall.value
    assert precision is not None
    assert recall is not None
    assert score.f1.value == pytest.approx(2 * precision * recall / (precision + recall))


@given(SCORES.filter(lambda score: score.hits + score.false_alarms + score.misses > 0))
def test_the_interval_of_f1_holds_it(score: Score) -> None:
    assert 0 <= score.f1.low <= score.f1.value <= score.f1.high <= 1  # type: ignore[operator]


def test_the_interval_of_f1_is_carried_over_from_hits_among_hits_and_errors() -> None:
    share, f1 = wilson(8, 14), Score(8, 2, 4, 86).f1
    assert (f1.low, f1.high) == tuple(2 * end / (1 + end) for end in (share.low, share.high))  # type: ignore[operator]


def test_settings_can_be_pasted_into_a_configuration_file() -> None:
    matching = Matching(radius=2, bands=10, rows=5, band_radius=12, min_similarity=0.75)
    table = tomllib.loads(tuned_toml(matching))
    assert table == {
        "match": {"radius": 2, "bands": 10, "rows": 5, "band_radius": 12, "min_similarity": 0.75}
    }
    assert recipe_of("text", match=table["match"]).matching == matching
