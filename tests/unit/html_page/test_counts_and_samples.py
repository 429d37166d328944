from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from bson import encode
from bson.objectid import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.html_page.counts_and_samples import STRETCHES, GroupReservoir, Timeline
from dedup_job.report.sampled_pairs_and_groups import Reservoir


@given(st.integers(0, 6), st.integers(0, 40))
def test_a_sample_has_all_or_as_many_as_asked_for_and_none_twice(most: int, seen: int) -> None:
    reservoir: Reservoir[int] = Reservoir(most)
    for number in range(seen):
        reservoir.add(number)
    assert reservoir.seen == seen
    assert len(set(reservoir.drawn)) == len(reservoir.drawn) == min(most, seen)


def test_each_is_drawn_as_often_as_any_other() -> None:
    """500 samples of 5 out of 20: each is in 125 on average, and 6 standard deviations are 58."""
    drawn = np.zeros(20, int)
    for seed in range(500):
        reservoir: Reservoir[int] = Reservoir(5)
        reservoir._random.seed(seed)
        for number in range(20):
            reservoir.add(number)
        drawn[list(reservoir.drawn)] += 1
    assert drawn.min() > 125 - 58
    assert drawn.max() < 125 + 58


GROUPS = st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=200)


@given(GROUPS, st.integers(1, 60))
def test_a_group_that_is_drawn_is_whole(records: list[tuple[int, bool]], most: int) -> None:
    groups = GroupReservoir(most, of_one=3)
    sizes: Counter[bytes] = Counter()
    near: Counter[bytes] = Counter()
    for number, (keeper, is_near) in enumerate(records):
        name = b"keeper %d" % keeper
        groups.add(name, b"%d" % number, 0.9 if is_near else None)
        sizes[name] += 1
        near[name] += is_near
    for group in groups.drawn:
        assert (group.size, group.near) == (sizes[group.keeper], near[group.keeper])
        assert len(group.members) == min(3, group.near)
    held = sum(1 + len(group.members) for group in groups.drawn)
    assert held <= most or len(groups.drawn) == 1
    assert bool(groups.drawn) == bool(records)
    if groups.share == 1:
        assert len(groups.drawn) == len(sizes)


def test_the_number_of_groups_is_what_the_share_says() -> None:
    """400 of 10,000 groups: the estimate is within 4 standard deviations, which are 5 % each."""
    groups = GroupReservoir(400, of_one=3)
    for keeper in range(10_000):
        groups.add(b"%d" % keeper, b"duplicate", None)
    assert len(groups.drawn) / groups.share == pytest.approx(10_000, rel=0.2)


FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def object_id(moment: datetime) -> bytes:
    return encode({"_id": ObjectId.from_datetime(moment)})


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=300), max_size=12))
def test_the_timeline_cuts_the_order_of_decision_into_at_most_sixty_stretches_that_add_up(
    batches: list[list[bool]],
) -> None:
    timeline = Timeline()
    for flags in batches:
        timeline.add([encode({"_id": "a"})] * len(flags), np.array(flags))
    stretches = timeline.stretches()
    every = [flag for flags in batches for flag in flags]
    assert len(stretches) <= STRETCHES
    for stretch in stretches:
        assert isinstance(stretch.start, int)
        assert isinstance(stretch.end, int)
        assert stretch.records == stretch.end - stretch.start
        assert stretch.dropped == sum(every[stretch.start : stretch.end])
    assert sum(stretch.records for stretch in stretches) == len(every)


def test_the_timeline_of_ids_with_times_has_times() -> None:
    timeline = Timeline()
    days = [FIRST + timedelta(days=day) for day in range(5)]
    for day in days:
        timeline.add([object_id(day), object_id(day + timedelta(hours=5))], np.array([False, True]))
    stretches = timeline.stretches()
    assert [stretch.start for stretch in stretches[:-1]] == days[:-1]
    assert sum(stretch.dropped for stretch in stretches) == 5


def test_ids_without_times_or_not_in_their_order_have_a_timeline_by_position() -> None:
    later = FIRST + timedelta(days=1)
    for ids in ([encode({"_id": 1})] * 2, [object_id(FIRST), encode({"_id": "a"})], [object_id(FIRST)] * 3,
                [object_id(later), object_id(FIRST)]):  # fmt: skip
        timeline = Timeline()
        for raw_id in ids:
            timeline.add([raw_id], np.zeros(1, bool))
        assert [stretch.start for stretch in timeline.stretches()] == list(range(len(ids)))
