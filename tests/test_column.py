from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.match.column import SPARE, extended, with_room


def test_a_column_with_room_enough_is_the_column_itself() -> None:
    column = np.arange(6).reshape(3, 2)
    assert with_room(column, 3) is column


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_longer_column_begins_with_the_same_rows(rows: int, more: int) -> None:
    column = np.arange(2 * rows, dtype=np.uint32).reshape(rows, 2)
    longer = with_room(column, rows + more)
    assert longer.dtype == column.dtype
    assert longer.shape == (max(rows + more, rows + rows // SPARE), 2)
    assert longer[:rows].tolist() == column.tolist()


def test_what_was_seen_of_a_column_stays_as_it_was_when_it_grows() -> None:
    column = np.arange(4)
    seen = column[:2]
    longer = with_room(column, 9)
    longer[:2] = 7
    assert seen.tolist() == [0, 1]


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=9))
def test_a_column_holds_all_that_it_was_extended_by(chunks: list[list[int]]) -> None:
    column, count = np.empty(0, np.int64), 0
    for chunk in chunks:
        column = extended(column, count, np.array(chunk, np.int64))
        count += len(chunk)
    assert column[:count].tolist() == [value for chunk in chunks for value in chunk]
