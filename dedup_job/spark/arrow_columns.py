"""Convert columns between Arrow and numpy, as whole buffers and not value by value.

Spark has no type for a row of a matrix: fingerprints, band keys and shingles travel as binary columns of
little-endian numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dedup_job.native.arrays import Numbers, Ragged
from dedup_job.preference.preference_ranks import preference_keys
from dedup_job.records import Fingerprints

# A record's `order` is one int64 that sorts like the source: the number of its range in the upper bits, and
# its position in the range in the lower 40.
POSITION_BITS = 40

# Columns of the `records` stage: one row for each record.
RECORDS = pa.schema(
    [
        ("order", pa.int64()),
        ("id", pa.binary()),
        ("hash", pa.binary()),
        ("digest", pa.binary()),
        ("reason", pa.string()),
        ("partial", pa.bool_()),
        ("bits", pa.binary()),
        ("near", pa.bool_()),
        ("keys", pa.binary()),
        ("shingles", pa.binary()),
        ("preference", pa.binary()),
    ]
)

TYPES = {pa.int64(): "bigint", pa.binary(): "binary", pa.bool_(): "boolean", pa.string(): "string"}
TYPES |= {pa.float64(): "double"}


def ddl(schema: pa.Schema) -> str:
    """Convert an Arrow schema to Spark's DDL string.

    >>> ddl(pa.schema([("text", pa.int64()), ("id", pa.binary())]))
    '`text` bigint, `id` binary'
    """
    return ", ".join(f"`{field.name}` {TYPES[field.type]}" for field in schema)


def records(ids: Sequence[bytes], prints: Fingerprints, first: int) -> pa.RecordBatch:
    """Convert fingerprinted records to an Arrow batch with the columns of `RECORDS`.

    Args:
        ids: Raw id of each record.
        prints: Fingerprints of the same records.
        first: `order` of the first record; the others count up from it.
    """
    columns = [
        pa.array(np.arange(first, first + len(prints))),
        pa.array(ids, pa.binary()),
        fixed(prints.hashes),
        fixed(prints.digests),
        pa.array(list(prints.reasons), pa.string()),
        pa.array(prints.partial),
        fixed(prints.bits),
        pa.array(prints.has_fingerprint),
        fixed(prints.keys),
        ragged(prints.shingles),
        pa.array(preference_keys(ids, prints.ranks, first), pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def fixed(matrix: npt.NDArray[Any]) -> pa.Array:
    """Convert each row of a matrix to a binary value.

    >>> fixed(np.array([[1, 2], [3, 4]], np.uint8)).to_pylist()
    [b'\\x01\\x02', b'\\x03\\x04']
    """
    matrix = np.ascontiguousarray(matrix)
    width = matrix.shape[1] * matrix.itemsize
    return _binary(np.arange(len(matrix) + 1, dtype=np.int64) * width, matrix)


def ragged(rows: Ragged) -> pa.Array:
    """Convert each row to a binary value of little-endian 32-bit numbers."""
    # Offsets count numbers, and need not begin at 0; Arrow counts bytes from the start of its buffer.
    first, last = rows.offsets[0], rows.offsets[-1]
    return _binary((rows.offsets - first) * 4, np.ascontiguousarray(rows.values[first:last]))


def matrix(column: pa.Array, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Convert binary values of equal width to rows of a matrix; the inverse of `fixed`.

    >>> matrix(fixed(np.array([[1, 2], [3, 4]], np.uint32)), np.uint32).tolist()
    [[1, 2], [3, 4]]
    """
    width = len(column[0].as_py()) // np.dtype(dtype).itemsize if len(column) else 0
    return _joined(column).view(dtype).reshape(len(column), width)


def sets(column: pa.Array) -> Ragged:
    """Convert binary values of 32-bit numbers to rows of different lengths; the inverse of `ragged`.

    >>> [row.tolist() for row in sets(pa.array([b"", bytes(8)], pa.binary()))]
    [[], [0, 0]]
    """
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    return Ragged((offsets.astype(np.int64) - offsets[0]) // 4, _joined(column).view(np.uint32))


def whole(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return all batches of a partition as one table, with one chunk per column and cast to `schema`."""
    parts = [batch.cast(schema) for batch in batches]
    return pa.Table.from_batches(parts, schema=schema).combine_chunks()


def column(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table as one array, without chunks."""
    found = table.column(name)
    # Not `combine_chunks` of a single chunk: it would copy it.
    return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()


def numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Return a column of a table as a numpy array."""
    array: npt.NDArray[Any] = column(table, name).to_numpy(zero_copy_only=False)
    return array


def in_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield a table in batches of at most 65,536 rows."""
    yield from table.to_batches(max_chunksize=1 << 16)


def _binary(offsets: Numbers, values: npt.NDArray[Any]) -> pa.Array:
    """Build a binary array from its two buffers.

    Args:
        offsets: int64, shape (n + 1,), first byte of each value, and the end of the last.
        values: The bytes of all values, end to end.
    """
    # pa.binary() has 32-bit offsets.
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _joined(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all values, end to end, as a view of Arrow's buffer."""
    # A slice of an array shares its buffers, so the offsets begin at `column.offset`.
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    if not len(column) or offsets[0] == offsets[-1]:
        return np.empty(0, np.uint8)
    return np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
