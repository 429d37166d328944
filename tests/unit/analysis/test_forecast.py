from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dedup_job.analysis.duplicate_rate import SampledCopies
from dedup_job.analysis.forecast import Costs, Forecast, Machine, ResourceLimits, SampleStatistics, Sizes
from dedup_job.analysis.forecast_text import forecast_json, forecast_text, format_bytes, format_duration
from dedup_job.index.shingle_cache import ENTRY_BYTES

MB = 1 << 20
HALF = SampledCopies.of(1_000_000, [[b"%d" % (number // 2) for number in range(1_000)]] * 1)
FORECAST = Forecast(
    sampled=SampleStatistics("shop.pages", 1_000_000, 1_000, 50, 1.0, HALF, near=0.5, wrong=0.0),
    machine=Machine(workers=4, cores=8, shared=False),
    costs=Costs(start=2.0, read=1e-5, alone=1e-3, together=2.5e-4, ship=1e-5, decide=3e-5, round_trip=1e-3),
    sizes=Sizes(
        record=1_000,
        stored=600,
        plan=50,
        dropped=70,
        shingles=800,
        process=100 * MB,
        worker=90 * MB,
        keepers=40 * MB,
    ),
    limits=ResourceLimits(chunk=1_000, in_flight=256 * MB, cache=4_000 * MB),
)


def changed(part: str, **values: object) -> Forecast:
    return replace(FORECAST, **{part: replace(getattr(FORECAST, part), **values)})  # type: ignore[arg-type]


def test_workers_that_are_busy_all_the_time_limit_the_run() -> None:
    assert FORECAST.limit == "the workers"
    assert FORECAST.seconds == pytest.approx(2 + 250)


@pytest.mark.parametrize(
    ("forecast", "limit", "seconds"),
    [
        (changed("costs", decide=1e-3), "deciding", None),
        (changed("costs", round_trip=0.1), "deciding", None),
        (changed("costs", read=1e-3), "reading", None),
        (changed("machine", cores=4, shared=True), "the processors", None),
        (changed("limits", records_per_second=100.0), "max_docs_per_second", 10_000),
        (changed("limits", bytes_per_second=10_000.0), "max_mb_per_second", 100_000),
    ],
)
def test_what_takes_longest_limits_the_run(forecast: Forecast, limit: str, seconds: float | None) -> None:
    assert forecast.limit == limit
    assert forecast.seconds > FORECAST.seconds
    if seconds is not None:
        assert forecast.seconds == pytest.approx(seconds + 2)


def test_each_bound_is_the_sum_of_its_parts() -> None:
    forecast = replace(changed("limits", cache=0), machine=Machine(workers=16, cores=8, shared=True))
    costs, again, commit = FORECAST.costs, forecast.reread, forecast.commit
    assert again > 0
    assert commit == pytest.approx(6 * 0.005 / 1_000 + (1 - FORECAST.dropped.likely) * 1_000 / 60e6)
    assert forecast.bounds == pytest.approx(
        {
            "reading": costs.read,
            "deciding": max(costs.ship + costs.decide + again * (costs.read + costs.alone), 3 * 0.005 / 1_000)
            + (commit - 3 * 0.005 / 1_000),
            "the workers": (1 + again) * costs.together,
            "the processors": (1 + again) * costs.together
            + (costs.decide + (1 + again) * costs.read + commit) / 8,
            "max_docs_per_second": 0.0,
            "max_mb_per_second": 0.0,
        }
    )


def test_a_server_on_the_same_processors_takes_from_them() -> None:
    alone, beside = (changed("machine", cores=4, shared=shared) for shared in (False, True))
    server = FORECAST.costs.read + FORECAST.commit
    assert beside.bounds["the processors"] - alone.bounds["the processors"] == pytest.approx(server / 4)


def test_a_text_that_is_not_at_hand_is_read_and_fingerprinted_again() -> None:
    assert FORECAST.reread == 0
    without_cache = changed("limits", cache=0)
    assert without_cache.reread == pytest.approx(FORECAST.dropped.likely * 0.5)
    assert without_cache.bounds["the workers"] == pytest.approx(
        FORECAST.bounds["the workers"] * (1 + without_cache.reread)
    )
    crowded = replace(without_cache, sampled=replace(FORECAST.sampled, wrong=1e-5))
    assert crowded.reread - without_cache.reread == pytest.approx(1e-5 * FORECAST.sampled.unique / 2)


def test_memory_and_disk_add_up_and_keep_to_the_limits() -> None:
    unique = FORECAST.sampled.unique
    assert FORECAST.memory == {
        "process": 100 * MB,
        "index": 40 * MB,
        "cache": int(unique * (800 + ENTRY_BYTES)),
        "in_flight": 9 * 1_000 * (1_000 + 800),
        "workers": 4 * 90 * MB,
    }
    assert changed("limits", cache=7 * MB).memory["cache"] == 7 * MB
    assert changed("limits", in_flight=MB).memory["in_flight"] == int(MB * 1.8)
    assert FORECAST.disk["target"] == int(unique * 600)
    assert FORECAST.disk["ledger"] == int(1_000_000 * (50 + FORECAST.dropped.likely * 70))


def test_the_texts_of_near_duplicates_are_remembered_beside_those_that_are_kept() -> None:
    assert FORECAST.dropped.likely == pytest.approx(0.5)
    assert FORECAST.sampled.texts == pytest.approx(1_000_000 * 0.75)  # a quarter are exact copies
    assert changed("sampled", near=1.0).sampled.texts == pytest.approx(1_000_000)
    assert changed("sampled", near=0.0).sampled.texts == pytest.approx(FORECAST.sampled.unique)
    assert changed("sampled", judged=0.5).sampled.texts == pytest.approx(1_000_000 * (0.5 - 0.125))


def test_records_that_cannot_be_judged_are_never_dropped() -> None:
    half = changed("sampled", judged=0.5)
    assert half.dropped.likely == pytest.approx(FORECAST.dropped.likely / 2)


def test_the_text_says_what_is_known_of_duplicates_and_what_would_say_more() -> None:
    assert (
        "only 0 groups of duplicates occur more than once in the sample; for a closer estimate: --sample"
        in forecast_text(FORECAST)
    )
    whole = changed("sampled", records=1_000, copies=replace(HALF, records=1_000))
    assert "50.0 %: the sample has all records" in forecast_text(whole)
    pairs = SampledCopies.of(10_000, [[b"%d" % (n + 700 * s) for n in range(1_000)] for s in range(2)])
    text = forecast_text(changed("sampled", records=10_000, copies=pairs))
    assert "300 groups occur more than once in the sample" in text


def test_the_json_object_is_json_without_infinities() -> None:
    values = json.loads(json.dumps(forecast_json(FORECAST), allow_nan=False))
    assert values["seconds"] == 252.0
    assert values["rates"]["fingerprinting_one_worker"] == 1_000
    nothing = changed("costs", read=0.0)
    assert json.loads(json.dumps(forecast_json(nothing), allow_nan=False))["rates"]["reading"] is None


def test_sizes_and_times_are_told_in_words() -> None:
    assert [format_bytes(512), format_bytes(3 * MB), format_bytes(2.5 * (1 << 30))] == [
        "512 bytes",
        "3 MB",
        "2.5 GB",
    ]
    assert [format_duration(12), format_duration(900), format_duration(9_000)] == [
        "12 seconds",
        "15 minutes",
        "2.5 hours",
    ]
