from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from bson import encode
from bson.objectid import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.html import timeline as module
from dedup_job.html.timeline import BINS, Timeline

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def raw_id(moment: datetime) -> bytes:
    return encode({"_id": ObjectId.from_datetime(moment)})


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=300), max_size=12))
def test_the_order_of_decision_is_cut_into_at_most_twice_sixty_stretches_that_add_up(
    batches: list[list[bool]],
) -> None:
    timeline = Timeline()
    for flags in batches:
        timeline.add([b"id"] * len(flags), np.array(flags))
    stretches = timeline.in_order()
    every = [flag for flags in batches for flag in flags]
    assert len(stretches) <= 2 * BINS
    for stretch in stretches:
        assert isinstance(stretch.start, int)
        assert isinstance(stretch.end, int)
        assert stretch.records == stretch.end - stretch.start
        assert stretch.dropped == sum(every[stretch.start : stretch.end])
    assert sum(stretch.records for stretch in stretches) == len(every)


def test_ids_that_hold_times_are_counted_by_a_unit_that_fits() -> None:
    timeline = Timeline()
    days = [FIRST + timedelta(days=day) for day in range(30)]
    for day in days:
        timeline.add([raw_id(day), raw_id(day + timedelta(hours=5))], np.array([False, True]))
    unit, stretches = timeline.in_time()
    assert unit == "day"
    assert [(one.start, one.records, one.dropped) for one in stretches] == [(day, 2, 1) for day in days]


def test_a_gap_in_time_is_no_stretch() -> None:
    timeline = Timeline()
    moments = [FIRST + timedelta(hours=hour) for hour in (0, 1, 2, 40)]
    timeline.add(list(map(raw_id, moments)), np.zeros(4, bool))
    assert [one.start for one in timeline.in_time()[1]] == moments


def test_decades_are_told_by_years() -> None:
    timeline = Timeline()
    moments = [FIRST - timedelta(days=365 * year) for year in range(30)]
    timeline.add(list(map(raw_id, moments)), np.ones(30, bool))
    unit, stretches = timeline.in_time()
    assert unit == "year"
    assert sum(one.dropped for one in stretches) == 30


def test_ids_of_other_types_and_ids_of_one_hour_tell_no_time() -> None:
    for ids in ([encode({"_id": 1})], [raw_id(FIRST), encode({"_id": "a"})], [raw_id(FIRST)] * 5):
        timeline = Timeline()
        timeline.add(ids, np.zeros(len(ids), bool))
        assert timeline.in_time() == ("", [])
        assert timeline.in_order()


def test_more_hours_than_are_counted_become_days(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_HOURS", 48)
    timeline = Timeline()
    for day in range(10):
        moments = [FIRST + timedelta(days=day, hours=hour) for hour in range(24)]
        timeline.add(list(map(raw_id, moments)), np.array([hour < 6 for hour in range(24)]))
    unit, stretches = timeline.in_time()
    assert unit == "day"
    assert [(one.records, one.dropped) for one in stretches] == [(24, 6)] * 10
