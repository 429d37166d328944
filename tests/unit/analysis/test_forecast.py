from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dedup_job.analysis.forecast import (
    DROPPED_ROW_BYTES,
    Forecast,
    ResourceLimits,
    Seconds,
    Sizes,
    dropped_share,
)

MB = 1 << 20
FORECAST = Forecast(
    source="shop.pages",
    records=1_000_000,
    sampled=1_000,
    stretches=50,
    distinct=0.8,
    dropped=dropped_share(1_000_000, [[b"%d" % (number // 2) for number in range(1_000)]], 1_000),
    seconds_each=Seconds(start=2.0, read=1e-5, work=2.5e-4, busy=1e-5, round_trip=1e-3),
    sizes=Sizes(record=1_000, stored=600, plan=50, shingles=800, text=128, process=100 * MB, worker=90 * MB),
    limits=ResourceLimits(workers=4, chunk=1_000, in_flight=256 * MB, cache=4_000 * MB),
)


def changed(part: str, **values: object) -> Forecast:
    return replace(FORECAST, **{part: replace(getattr(FORECAST, part), **values)})  # type: ignore[arg-type]


def test_the_time_is_that_of_the_sample_and_of_the_writes_it_did_not_make() -> None:
    assert FORECAST.write == pytest.approx(6 * 0.005 / 1_000 + 0.5 * 1_000 / 60e6)
    assert FORECAST.limit == "the workers"
    assert FORECAST.seconds == pytest.approx(2 + 1_000_000 * (2.5e-4 + FORECAST.write))


@pytest.mark.parametrize(
    ("forecast", "limit", "seconds"),
    [
        (changed("seconds_each", work=1e-3, busy=9e-4), "deciding", None),
        (changed("seconds_each", work=1e-3, busy=7e-4), "the workers", None),
        (changed("seconds_each", read=1e-3), "reading", 1_000),
        (changed("limits", records_per_second=100.0), "max_docs_per_second", 10_000),
        (changed("limits", bytes_per_second=10_000.0), "max_mb_per_second", 100_000),
    ],
)
def test_the_slowest_step_or_limit_limits_the_run(
    forecast: Forecast, limit: str, seconds: float | None
) -> None:
    assert forecast.limit == limit
    assert forecast.seconds > FORECAST.seconds
    if seconds is not None:
        assert forecast.seconds == pytest.approx(seconds + 2)


def test_memory_and_disk_add_up_and_keep_to_the_limits() -> None:
    assert FORECAST.memory == {
        "process": 100 * MB,
        "index": 800_000 * 128,
        "cache": 500_000 * 800,
        "in_flight": 9 * 1_000 * (1_000 + 800),
        "workers": 4 * 90 * MB,
    }
    assert changed("limits", cache=7 * MB).memory["cache"] == 7 * MB
    assert changed("limits", in_flight=MB).memory["in_flight"] == int(MB * 1.8)
    assert FORECAST.disk == {
        "target": 500_000 * 600,
        "ledger": int(1_000_000 * (50 + 0.5 * DROPPED_ROW_BYTES)),
    }


def sampled_stretches(groups: np.ndarray, size: int, seed: int) -> list[list[bytes]]:
    """50 stretches of a collection, given the group of each record."""
    starts = np.random.default_rng(seed).choice(len(groups) * 50 // size, 50, replace=False) * (size // 50)
    return [[b"%d" % group for group in groups[start : start + size // 50]] for start in starts]


@pytest.mark.parametrize("distance", [3, 40, 50_000])
def test_the_true_share_is_between_the_two_ends_wherever_the_copies_are(distance: int) -> None:
    """Each record of the second half of a block is a copy of the one that many records before it."""
    number = np.arange(100_000)
    groups = np.where(number // distance % 2, number - distance, number)
    shares = [dropped_share(100_000, sampled_stretches(groups, 10_000, seed), 10_000) for seed in range(20)]
    assert np.mean([share.low for share in shares]) <= 0.5
    # Not quite: the number of pairs in a sample varies, and the last block may have no copies.
    assert np.mean([share.high for share in shares]) >= 0.45


def test_the_largest_share_is_close_where_copies_come_in_pairs_and_too_high_in_large_groups() -> None:
    rng = np.random.default_rng(1)
    pairs = rng.permutation(np.arange(100_000) // 2)
    crowd = np.where(rng.random(100_000) < 0.5, rng.integers(20, size=100_000), np.arange(100_000))
    assert dropped_share(100_000, sampled_stretches(pairs, 20_000, 2), 20_000).high == pytest.approx(
        0.5, abs=0.05
    )
    share = dropped_share(100_000, sampled_stretches(crowd, 20_000, 2), 20_000)
    assert (share.low, share.high) == (pytest.approx(0.5, abs=0.02), 1.0)


def test_records_that_cannot_be_compared_are_never_dropped() -> None:
    stretches = [[b"a", b"a"]]
    assert dropped_share(4, stretches, 4).low == dropped_share(4, stretches, 4).high == 0.25
    assert dropped_share(1, [[]], 1).high == 0.0


def test_the_text_says_what_is_known_of_duplicates() -> None:
    assert "50.0 % in the sample, as memory and disk assume; more in the collection" in FORECAST.as_text()
    assert "50.0 %: the sample has all records" in replace(FORECAST, records=1_000).as_text()
    many = changed("dropped", high=0.75, pairs=10)
    assert "up to 75.0 % in the collection" in many.as_text()


def test_the_json_object_is_json_without_infinities() -> None:
    values = json.loads(json.dumps(FORECAST.as_json(), allow_nan=False))
    assert values["rates"]["fingerprinting_and_deciding"] == 4_000
    nothing = changed("seconds_each", read=0.0)
    assert json.loads(json.dumps(nothing.as_json(), allow_nan=False))["rates"]["reading"] is None
