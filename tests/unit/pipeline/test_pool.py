from __future__ import annotations

import os
from multiprocessing import Pipe
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.native.arrays import Ragged
from dedup_job.pipeline.pool import receive, send


def passed_on(*values: object) -> list[Any]:
    """The objects at the other end; a thread sends them, as a pipe holds only some of their bytes."""
    ours, theirs = Pipe()
    with ours, theirs:
        sender = Thread(target=lambda: [send(ours, value) for value in values])
        sender.start()
        received = [receive(theirs) for _ in values]
        sender.join()
    return received


ARRAYS = st.lists(st.integers(0, 2**32 - 1), max_size=50).map(lambda some: np.array(some, np.uint32))


@given(st.lists(st.binary(max_size=50)), st.lists(ARRAYS, max_size=4), st.floats(allow_nan=False))
def test_objects_arrive_as_they_were(raws: list[bytes], arrays: list[Any], seconds: float) -> None:
    others, again = passed_on((raws, arrays, seconds), raws)
    assert (others[0], others[2], again) == (raws, seconds, raws)
    assert [array.tolist() for array in others[1]] == [array.tolist() for array in arrays]
    assert {array.dtype for array in others[1]} <= {np.dtype(np.uint32)}


def test_arrays_larger_than_the_pipe_arrive_and_can_be_changed() -> None:
    large = Ragged(np.array([0, 3_000_000]), np.arange(3_000_000, dtype=np.uint32))
    columns = np.arange(12).reshape(3, 4).T[::2]
    (received, strided) = passed_on((large, columns))[0]
    assert (received.values == large.values).all()
    assert (strided == columns).all()
    received.values[0] = 7


@pytest.mark.parametrize("sent", [0, 4, 11, 30, 200])
def test_a_pipe_that_closes_within_an_object_raises(sent: int) -> None:
    ours, theirs = Pipe()
    with ours, theirs:
        send(ours, np.arange(40))
        message = os.read(theirs.fileno(), 1_000)
        os.write(ours.fileno(), message[:sent])
        ours.close()
        with pytest.raises(EOFError):
            receive(theirs)


def test_nothing_is_sent_to_a_closed_pipe() -> None:
    ours, theirs = Pipe()
    with ours:
        theirs.close()
        with pytest.raises(OSError, match="Broken pipe"):
            send(ours, [b"record"])
