from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from bson import decode, encode
from bson.objectid import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.ledger.plan_format import PlanId, StoredPlan
from dedup_job.mongo.pages import Window, prefetch, rest_of_backfill, since
from dedup_job.native.arrays import Ragged
from dedup_job.records import ADOPT, BACKFILL, NIGHTLY, Batch, Plan
from tests.support.waiting import HANG_SECONDS

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))


def object_id(time: datetime) -> bytes:
    return encode({"_id": ObjectId.from_datetime(time)})


def stored(mode: str, *ids: bytes) -> StoredPlan:
    column = np.zeros((len(ids), 2), np.uint64)
    plan = Plan(ids, [], column, column, Ragged.empty(len(ids)), column, column)
    return StoredPlan(PlanId(0, 1), None, "run", mode, NOON, plan)


def test_a_backfill_goes_on_behind_the_watermark() -> None:
    assert rest_of_backfill(None) == Window()
    assert rest_of_backfill(b"id").after == b"id"


def test_a_first_nightly_run_looks_at_everything() -> None:
    assert since(None, timedelta(hours=48), only_object_ids=True) == Window()


def test_ids_without_a_time_are_all_looked_at() -> None:
    assert since(NOON, timedelta(hours=48), only_object_ids=False) == Window()


def test_the_window_begins_the_lookback_before_the_last_look() -> None:
    window = since(NOON, timedelta(hours=48), only_object_ids=True)
    assert decode(window.start)["_id"].generation_time == NOON - timedelta(hours=48)


@given(
    TIMES,
    st.timedeltas(timedelta(0), timedelta(days=3_000)),
    st.timedeltas(timedelta(0), timedelta(days=900)),
)
def test_an_id_made_within_the_lookback_is_never_left_out(
    covered: datetime, lookback: timedelta, age: timedelta
) -> None:
    window = since(covered, lookback, only_object_ids=True)
    if age <= lookback:
        assert object_id(covered - age) >= window.start


@pytest.mark.parametrize("days", [25_000, 1_000_000, 50_000_000])
def test_a_lookback_beyond_all_time_means_everything(days: int) -> None:
    """`lookback_hours = 1e9` is how a cautious person writes "look at all of it"."""
    window = since(NOON, timedelta(days=days), only_object_ids=True)
    assert window.start is None or window.start <= encode({"_id": ObjectId(bytes(12))})


OLD, NEW = object_id(NOON - timedelta(days=9)), object_id(NOON)


def test_a_nightly_window_leaves_out_what_was_decided_in_it() -> None:
    window = since(NOON, timedelta(days=1), only_object_ids=True)
    window = window.without(
        [stored(BACKFILL, OLD, NEW), stored(NIGHTLY, object_id(NOON + timedelta(hours=1)))]
    )
    assert len(window.decided) == 2
    assert window.decided.missing([OLD, NEW]) == [OLD]


def test_everything_leaves_out_everything_decided() -> None:
    window = Window().without([stored(BACKFILL, OLD), stored(NIGHTLY, NEW)])
    assert window.decided.missing([OLD, NEW, b"x"]) == [b"x"]


def test_the_rest_of_a_backfill_leaves_out_what_nightly_runs_decided() -> None:
    """What the backfill itself decided lies before the watermark anyway."""
    window = rest_of_backfill(OLD).without([stored(BACKFILL, OLD), stored(NIGHTLY, NEW)])
    assert (window.after, len(window.decided)) == (OLD, 1)
    assert window.decided.missing([NEW]) == []


def test_no_window_leaves_out_what_was_adopted() -> None:
    """The target's own records say nothing of the source's, whatever their ids."""
    for window in (Window(), rest_of_backfill(OLD), Window(start=OLD)):
        assert len(window.without([stored(ADOPT, NEW)]).decided) == 0


BATCHES = [Batch([b"%d" % number], [b"record"]) for number in range(5)]


def test_batches_come_in_their_order() -> None:
    assert list(prefetch(BATCHES)) == BATCHES
    assert list(prefetch([])) == []


def test_the_next_batch_is_read_while_one_is_worked_on() -> None:
    read = [threading.Event() for _ in BATCHES]

    def reading() -> Iterator[Batch]:
        for batch, event in zip(BATCHES, read, strict=True):
            event.set()
            yield batch

    batches = prefetch(reading())
    next(batches)
    assert read[1].wait(HANG_SECONDS)
    assert not read[2].is_set()
    batches.close()


def test_an_error_comes_where_its_batch_would_have() -> None:
    def failing() -> Iterator[Batch]:
        yield BATCHES[0]
        raise OSError("gone")

    batches = prefetch(failing())
    assert next(batches) == BATCHES[0]
    with pytest.raises(OSError, match="gone"):
        next(batches)


def test_stopping_does_not_wait_for_a_read_that_hangs() -> None:
    hanging, release, through = threading.Event(), threading.Event(), threading.Event()

    def reading() -> Iterator[Batch]:
        yield BATCHES[0]
        hanging.set()
        release.wait(HANG_SECONDS)
        through.set()

    batches = prefetch(reading())
    next(batches)
    assert hanging.wait(HANG_SECONDS)
    batches.close()
    assert not through.is_set()
    release.set()
