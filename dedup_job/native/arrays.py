"""Arrays for compiled functions: their types, rows of different length in one array, and arrays that grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dedup_job.native.numba_compile import compiled

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different length in one array: row i is `values[offsets[i]:offsets[i + 1]]`.

    Attributes:
        offsets: int64, shape (n + 1,).
        values: uint32, the rows one after the other.
    """

    offsets: Numbers
    values: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> npt.NDArray[np.uint32]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[npt.NDArray[np.uint32]]:
        return (self[row] for row in range(len(self)))

    @classmethod
    def empty(cls, rows: int) -> Ragged:
        """Return this number of empty rows."""
        return cls(np.zeros(rows + 1, np.int64), np.empty(0, np.uint32))

    def take(self, rows: Sequence[int] | npt.NDArray[np.intp]) -> Ragged:
        """Return some rows, in any order; a row may be repeated.

        Raises:
            IndexError: If a row does not exist.
        """
        rows = np.array(rows, np.int64)
        # Checked here, because compiled code checks no bounds.
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"there are {len(self)} rows; asked for {rows.min()} to {rows.max()}")
        return Ragged(*_take_rows(self.offsets, self.values, rows))

    def where(self, is_kept: Flags) -> Ragged:
        """Return the same rows with some of their values.

        Args:
            is_kept: Whether each value is kept.
        """
        return Ragged(*_keep_values(self.offsets, self.values, is_kept))

    @classmethod
    def join(cls, parts: Sequence[Ragged]) -> Ragged:
        """Put the rows of all parts one after the other."""
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cls(offsets, np.concatenate([part.values for part in parts]))


@compiled
def _take_rows(
    offsets: Numbers, values: npt.NDArray[np.uint32], rows: Numbers
) -> tuple[Numbers, npt.NDArray[np.uint32]]:
    """Return the offsets and the values of these rows."""
    ends = np.zeros(len(rows) + 1, np.int64)
    for i in range(len(rows)):
        ends[i + 1] = ends[i] + offsets[rows[i] + 1] - offsets[rows[i]]
    taken = np.empty(ends[-1], np.uint32)
    for i in range(len(rows)):
        taken[ends[i] : ends[i + 1]] = values[offsets[rows[i]] : offsets[rows[i] + 1]]
    return ends, taken


@compiled
def _keep_values(
    offsets: Numbers, values: npt.NDArray[np.uint32], is_kept: Flags
) -> tuple[Numbers, npt.NDArray[np.uint32]]:
    """Return the offsets and the values that are kept."""
    ends, kept = np.zeros_like(offsets), np.empty_like(values)
    filled = 0
    for row in range(len(offsets) - 1):
        for place in range(offsets[row], offsets[row + 1]):
            # Written in any case, so that there is no branch to mispredict.
            kept[filled] = values[place]
            filled += is_kept[place]
        ends[row + 1] = filled
    return ends, kept[:filled]


Value = TypeVar("Value", bound=np.generic)

# An array that must grow gets room for at least one more row per this many rows.
SPARE = 16


def ensure_capacity(column: npt.NDArray[Value], rows: int) -> npt.NDArray[Value]:
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
    # pages.  In small pages a lookup among 35 million texts takes a tenth longer (`scripts.bench.index`).
    longer = np.empty((max(rows, len(column) + len(column) // SPARE), *column.shape[1:]), column.dtype)
    longer[: len(column)] = column
    return longer


def append_rows(column: npt.NDArray[Value], count: int, rows: npt.NDArray[Value]) -> npt.NDArray[Value]:
    """Write rows behind the first `count` rows of an array, and lengthen the array if it is too short.

    Returns:
        The array that now holds `count + len(rows)` rows: `column` itself or a longer copy.
    """
    column = ensure_capacity(column, count + len(rows))
    column[count : count + len(rows)] = rows
    return column
