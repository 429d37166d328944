"""A column that grows in place."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


def make_room(column: npt.NDArray[Any], rows: int) -> None:
    """Lengthen a column in place to hold at least so many rows, by a 32nd at least.

    The C library extends a large allocation by remapping its pages (mremap on Linux): nothing is copied, and
    there are never two copies.  No view of the column may be in use.
    """
    if rows > len(column):
        longer = max(rows, len(column) + len(column) // 32)
        column.resize((longer, *column.shape[1:]), refcheck=False)
