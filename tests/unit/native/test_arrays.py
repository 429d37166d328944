from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.native.arrays import SPARE, Ragged, append_rows, ensure_capacity


def test_a_column_with_room_enough_is_the_column_itself() -> None:
    column = np.arange(6).reshape(3, 2)
    assert ensure_capacity(column, 3) is column


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_longer_column_begins_with_the_same_rows(rows: int, more: int) -> None:
    column = np.arange(2 * rows, dtype=np.uint32).reshape(rows, 2)
    longer = ensure_capacity(column, rows + more)
    assert longer.dtype == column.dtype
    assert longer.shape == (max(rows + more, rows + rows // SPARE), 2)
    assert longer[:rows].tolist() == column.tolist()


def test_what_was_seen_of_a_column_stays_as_it_was_when_it_grows() -> None:
    column = np.arange(4)
    seen = column[:2]
    longer = ensure_capacity(column, 9)
    longer[:2] = 7
    assert seen.tolist() == [0, 1]


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=9))
def test_a_column_holds_all_that_it_was_extended_by(chunks: list[list[int]]) -> None:
    column, count = np.empty(0, np.int64), 0
    for chunk in chunks:
        column = append_rows(column, count, np.array(chunk, np.int64))
        count += len(chunk)
    assert column[:count].tolist() == [value for chunk in chunks for value in chunk]


def ragged(rows: list[list[int]]) -> Ragged:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Ragged(offsets, np.array([value for row in rows for value in row], np.uint32))


@given(st.lists(st.lists(st.integers(0, 2**32 - 1))))
def test_ragged_rows_come_back_as_they_went_in(rows: list[list[int]]) -> None:
    held = ragged(rows)
    assert len(held) == len(rows)
    assert [row.tolist() for row in held] == rows


@given(st.lists(st.lists(st.lists(st.integers(0, 9))), min_size=1))
def test_joined_ragged_parts_have_the_rows_of_all(parts: list[list[list[int]]]) -> None:
    joined = Ragged.join(list(map(ragged, parts)))
    assert [row.tolist() for row in joined] == [row for rows in parts for row in rows]
    assert (joined.offsets.dtype, joined.values.dtype) == (np.int64, np.uint32)


@given(st.lists(st.lists(st.integers(0, 2**32 - 1)), min_size=1), st.data())
def test_rows_are_taken_in_any_order_and_more_than_once(rows: list[list[int]], data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1)))
    taken = ragged(rows).take(wanted)
    assert [row.tolist() for row in taken] == [rows[row] for row in wanted]
    assert [row.tolist() for row in taken.take(np.arange(len(taken))[::-1])] == [
        rows[row] for row in wanted[::-1]
    ]


@pytest.mark.parametrize("rows", [[2], [-1], [0, 7], [-3, 1]])
def test_a_row_that_there_is_not_is_an_error(rows: list[int]) -> None:
    with pytest.raises(IndexError, match="there are 2 rows"):
        ragged([[1, 2], [3]]).take(rows)


@pytest.mark.long
def test_what_is_taken_shares_no_memory_with_what_it_was_taken_from() -> None:
    held = ragged([[1, 2], [3]])
    held.values.flags.writeable = held.offsets.flags.writeable = False
    taken = held.take([0, 1])
    assert not np.shares_memory(taken.values, held.values)
    assert taken.values.flags.writeable
