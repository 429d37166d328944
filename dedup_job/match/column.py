"""Arrays that grow: room for more rows, and rows written behind those already there."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Value = TypeVar("Value", bound=np.generic)

# An array that must grow gets room for at least one more row per this many rows.
SPARE = 16


def with_room(column: npt.NDArray[Value], rows: int) -> npt.NDArray[Value]:
    """Return the array itself if it has room for `rows` rows, otherwise a longer copy.

    Args:
        column: Shape (n, ...); all of its rows are copied.
        rows: Number of rows that the result must hold.

    Returns:
        An array that begins with the rows of `column`; the rows behind them are uninitialized.
    """
    if rows <= len(column):
        return column
    # A new array instead of one lengthened in place: only for a new one does numpy ask for large memory
    # pages.  In small pages a lookup among 35 million texts takes a tenth longer (`bench_index`).
    longer = np.empty((max(rows, len(column) + len(column) // SPARE), *column.shape[1:]), column.dtype)
    longer[: len(column)] = column
    return longer


def extended(column: npt.NDArray[Value], count: int, rows: npt.NDArray[Value]) -> npt.NDArray[Value]:
    """Write rows behind the first `count` rows of an array, and lengthen the array if it is too short.

    Returns:
        The array that now holds `count + len(rows)` rows: `column` itself or a longer copy.
    """
    column = with_room(column, count + len(rows))
    column[count : count + len(rows)] = rows
    return column
