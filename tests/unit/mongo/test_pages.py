from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dedup_job.mongo.pages import prefetch
from dedup_job.records import Batch
from tests.support.waiting import HANG_SECONDS

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
