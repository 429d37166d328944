"""Convert columns between Arrow and numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dedup_job.native.arrays import Ragged
from dedup_job.records import Fingerprints

POSITION_BITS = 40  # of a record's order: its place in its range, below the number of the range

RECORDS = pa.schema(
    [
        ("order", pa.int64()),
        ("id", pa.binary()),
        ("hash", pa.binary()),
        ("digest", pa.binary()),
        ("reason", pa.string()),
        ("bits", pa.binary()),
        ("near", pa.bool_()),
        ("keys", pa.binary()),
        ("shingles", pa.binary()),
    ]
)

TYPES = {pa.int64(): "bigint", pa.binary(): "binary", pa.bool_(): "boolean", pa.string(): "string"}
TYPES |= {pa.float64(): "double"}


def ddl(schema: pa.Schema) -> str:
    """Return a schema as Spark reads it.

    >>> ddl(pa.schema([("text", pa.int64()), ("id", pa.binary())]))
    '`text` bigint, `id` binary'
    """
    return ", ".join(f"`{field.name}` {TYPES[field.type]}" for field in schema)


def records(ids: Iterable[bytes], prints: Fingerprints, first: int) -> pa.RecordBatch:
    """Return fingerprinted records as Arrow has them, their orders counted from `first` on."""
    columns = [
        pa.array(np.arange(first, first + len(prints))),
        pa.array(list(ids), pa.binary()),
        fixed(prints.hashes),
        fixed(prints.digests),
        pa.array(list(prints.reasons), pa.string()),
        fixed(prints.bits),
        pa.array(prints.has_fingerprint),
        fixed(prints.keys),
        ragged(prints.shingles),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def fixed(matrix: npt.NDArray[Any]) -> pa.Array:
    """Return each row of a matrix as a binary value.

    >>> fixed(np.array([[1, 2], [3, 4]], np.uint8)).to_pylist()
    [b'\\x01\\x02', b'\\x03\\x04']
    """
    matrix = np.ascontiguousarray(matrix)
    width = matrix.shape[1] * matrix.itemsize
    return _binary(np.arange(len(matrix) + 1, dtype=np.int64) * width, matrix)


def ragged(rows: Ragged) -> pa.Array:
    """Return each row as a binary value of little-endian numbers."""
    first, last = rows.offsets[0], rows.offsets[-1]
    return _binary((rows.offsets - first) * 4, np.ascontiguousarray(rows.values[first:last]))


def matrix(column: pa.Array, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return binary values of equal width as rows of a matrix of this dtype.

    >>> matrix(fixed(np.array([[1, 2], [3, 4]], np.uint32)), np.uint32).tolist()
    [[1, 2], [3, 4]]
    """
    width = len(column[0].as_py()) // np.dtype(dtype).itemsize if len(column) else 0
    return _joined(column).view(dtype).reshape(len(column), width)


def sets(column: pa.Array) -> Ragged:
    """Return binary values of 32-bit numbers as rows.

    >>> [row.tolist() for row in sets(pa.array([b"", bytes(8)], pa.binary()))]
    [[], [0, 0]]
    """
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    return Ragged((offsets.astype(np.int64) - offsets[0]) // 4, _joined(column).view(np.uint32))


def whole(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return all batches of a partition as a table in one piece, its columns cast to this schema."""
    parts = [batch.cast(schema) for batch in batches]
    return pa.Table.from_batches(parts, schema=schema).combine_chunks()


def column(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table in one piece."""
    chunks = table.column(name).chunks
    return (
        chunks[0]
        if len(chunks) == 1
        else pa.concat_arrays(chunks or [pa.array([], table.schema.field(name).type)])
    )


def numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Return a column of a table as a numpy array."""
    array: npt.NDArray[Any] = column(table, name).to_numpy(zero_copy_only=False)
    return array


def in_batches(table: pa.Table, rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
    """Yield a table in pieces."""
    yield from table.to_batches(max_chunksize=rows)


def _binary(offsets: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> pa.Array:
    """Return binary values from where they begin and their bytes."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _joined(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of binary values, one behind the other."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    if not len(column) or offsets[0] == offsets[-1]:
        return np.empty(0, np.uint8)
    return np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
