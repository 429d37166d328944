"""A column that grows."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Column = TypeVar("Column", bound=npt.NDArray[Any])

SPARE = 16  # room for one row more for so many rows


def with_room(column: Column, rows: int) -> Column:
    """Return a column that begins with this one and has room for at least so many rows: itself if it has.

    A longer one is a copy.  numpy asks for large pages for it, which a column that is lengthened in place
    does not get; in small ones a look-up among 35 million texts takes a tenth longer (`bench_index`).
    """
    if rows <= len(column):
        return column
    longer = np.empty((max(rows, len(column) + len(column) // SPARE), *column.shape[1:]), column.dtype)
    longer[: len(column)] = column
    return longer  # type: ignore[return-value]
