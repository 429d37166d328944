"""A column that grows."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Value = TypeVar("Value", bound=np.generic)

SPARE = 16  # room for one row more for so many rows


def with_room(column: npt.NDArray[Value], rows: int) -> npt.NDArray[Value]:
    """Return a column that begins with this one and has room for at least so many rows: itself if it has.

    A longer one is a copy.  numpy asks for large pages for it, which a column that is lengthened in place
    does not get; in small ones a look-up among 35 million texts takes a tenth longer (`bench_index`).
    """
    if rows <= len(column):
        return column
    longer = np.empty((max(rows, len(column) + len(column) // SPARE), *column.shape[1:]), column.dtype)
    longer[: len(column)] = column
    return longer


def extended(column: npt.NDArray[Value], count: int, rows: npt.NDArray[Value]) -> npt.NDArray[Value]:
    """Return a column with these rows behind the first `count`, made longer where there is no room."""
    column = with_room(column, count + len(rows))
    column[count : count + len(rows)] = rows
    return column
