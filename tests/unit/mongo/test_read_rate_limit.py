from __future__ import annotations

import threading
from math import inf
from typing import Any

import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.pages import BatchSize, Window
from dedup_job.mongo.read_rate_limit import FIRST_PAGE, SAVED_SECONDS, Pace, Rates
from dedup_job.mongo.source import Source
from dedup_job.records import Batch
from tests.support.job import retrying

WITHIN = 0.05


class Time:
    """A clock that only sleeping and working move on."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


rates = st.floats(0.1, 1e9)
# What was taken, in seconds' worth, and the seconds until it was.
takings = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=40)


@given(rates, takings)
def test_each_taking_is_let_go_when_its_rate_says(rate: float, taken: list[tuple[float, float]]) -> None:
    # The oracle: what came in any stretch of time is worth no more than its length and what was saved, so a
    # taking ends at the latest time that some stretch before it asks for; the first second is not saved.
    time = Time()
    pace, begin = Pace(Rates(records=rate), time.clock, time.pass_), time.now
    came: list[tuple[float, float]] = []
    for seconds, gap in taken:
        time.pass_(gap)
        now = time.now
        came.append((now, seconds))
        pace.spend(seconds * rate, 0)  # type: ignore[arg-type]
        since_start = sum(worth for _, worth in came)
        bursts = [
            came[first][0] + sum(worth for _, worth in came[first:]) - SAVED_SECONDS
            for first in range(len(came))
        ]
        due = max(now, begin + since_start, *bursts)
        assert time.now == pytest.approx(due, abs=1e-6)


@given(st.floats(1, 1e5), st.lists(st.integers(1, 2_000), min_size=1, max_size=50))
def test_a_hungry_reader_takes_exactly_as_long_as_its_rate_says(rate: float, pages: list[int]) -> None:
    time = Time()
    pace = Pace(Rates(records=rate), time.clock, time.pass_)
    for page in pages:
        pace.spend(page, 1_000 * page)
    assert time.now - 100.0 == pytest.approx(sum(pages) / rate)


@given(
    st.floats(10, 1e5),
    st.floats(1e3, 1e8),
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 50_000), st.floats(0, 3)), max_size=50),
)
def test_no_stretch_of_time_sees_more_than_its_length_and_one_second_allow(
    records: float, nbytes: float, reads: list[tuple[int, int, float]]
) -> None:
    time = Time()
    pace = Pace(Rates(records, nbytes), time.clock, time.pass_)
    begun: list[float] = []
    for count, size, work in reads:
        begun.append(time.now)
        pace.spend(count, count * size)
        for first, start in enumerate(begun):
            stretch = time.now - start + SAVED_SECONDS + 1e-6
            assert sum(count for count, *_ in reads[first : len(begun)]) <= records * stretch
            assert sum(count * size for count, size, _ in reads[first : len(begun)]) <= nbytes * stretch
        time.pass_(work)


def test_a_page_is_no_more_than_a_second_of_either_rate() -> None:
    time = Time()
    pace = Pace(Rates(records=200.0, nbytes=100_000.0), time.clock, time.pass_)
    assert pace.records(1_000) == FIRST_PAGE
    pace.spend(FIRST_PAGE, FIRST_PAGE * 100)
    assert pace.records(1_000) == 200
    pace.spend(200, 200 * 10_000)
    assert pace.records(1_000) == 10
    assert pace.records(5) == 5
    assert pace.nbytes(16 << 20) == 100_000
    assert pace.nbytes(1_000) == 1_000


def test_a_slow_pace_still_moves() -> None:
    time = Time()
    pace = Pace(Rates(records=0.5, nbytes=10.0), time.clock, time.pass_)
    assert pace.records(1_000) == pace.nbytes(1_000) // 10 == 1
    pace.spend(1, 1_000)
    assert time.now == 200.0


def test_at_a_rate_next_to_nothing_the_wait_is_one_that_the_system_can_wait() -> None:
    time = Time()
    Pace(Rates(records=1e-300), time.clock, time.pass_).spend(1, 1_000)
    assert 1e8 < time.now < threading.TIMEOUT_MAX


def test_without_rates_nothing_waits_and_batches_are_as_large_as_they_may_be() -> None:
    time = Time()
    pace = Pace(Rates(), time.clock, time.pass_)
    pace.spend(1_000_000, 1 << 40)
    assert time.now == 100.0
    assert (pace.records(1_000), pace.nbytes(16 << 20)) == (1_000, 16 << 20)


def filled(database: Database[Any], count: int, size: int) -> None:
    database.pages.insert_many({"_id": number, "text": "x" * size} for number in range(count))


def read(
    database: Database[Any], rates: Rates, decided: IdSet = IdSet(), records: int = 1_000
) -> tuple[list[Batch], float]:
    time = Time()
    pace = Pace(rates, time.clock, time.pass_)
    source = Source(retrying(database.pages), {}, BatchSize(records), pace)
    return list(source.batches(Window(decided=decided))), time.now - 100.0


@pytest.mark.parametrize(
    ("rates", "count", "size", "seconds"),
    [
        (Rates(records=25.0), 1_000, 10, 40.0),
        (Rates(records=700.0), 14_000, 10, 20.0),
        (Rates(nbytes=100_000.0), 1_000, 10_000, 100.0),
        (Rates(records=10.0, nbytes=1e9), 300, 1_000, 30.0),
    ],
)
def test_a_collection_is_read_in_the_time_that_the_rate_asks_for(
    database: Database[Any], rates: Rates, count: int, size: int, seconds: float
) -> None:
    filled(database, count, size)
    batches, took = read(database, rates)
    assert [raw_id for batch in batches for raw_id in batch.ids] == [encode({"_id": n}) for n in range(count)]
    # Bytes are paid for as they come, and each page looks one record up again.
    assert took == pytest.approx(seconds, rel=WITHIN + (len(batches) / count if rates.nbytes < 1e9 else 0))
    for batch in batches:
        assert len(batch) <= max(FIRST_PAGE, rates.records)
        assert batch.nbytes <= max(rates.nbytes, FIRST_PAGE * 11_000)


def test_a_nightly_look_pays_for_the_records_that_it_fetches_and_hardly_for_the_ids(
    database: Database[Any],
) -> None:
    filled(database, 2_000, 100)
    decided = IdSet.of([[encode({"_id": n}) for n in range(1_800)]])
    batches, took = read(database, Rates(records=50.0), decided)
    assert sum(map(len, batches)) == 200
    assert max(map(len, batches)) == 50
    assert took == pytest.approx(4.0)


def test_batches_are_the_same_without_a_pace(database: Database[Any]) -> None:
    filled(database, 250, 10)
    batches, took = read(database, Rates(inf, inf), records=100)
    assert [len(batch) for batch in batches] == [100, 100, 50]
    assert took == 0.0
