"""The compiled loop that compares all: each query with every fingerprint that is stored.

Fingerprints are folded to fewer words for it, word i and the words behind it by exclusive or.  Two that
differ in d bits differ in d at most when they are folded, so what is far apart then need not be compared.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types

from dedup_job.compiled import compiled, inlined
from dedup_job.instructions import differing, instruction, lesser, lowest, spread
from dedup_job.match._found import Fingerprints, Found, differing_bits, note
from dedup_job.match.cut import WORD_BITS

Columns = tuple[npt.NDArray[np.uint64], ...]  # for each word, (BLOCK,)
Places = npt.NDArray[np.int64]  # (n,)

LANES = 8  # words that are compared by one instruction
STRETCH = 64  # rows that are compared at once
BLOCK = 32 * STRETCH  # rows that are compared with all queries while they are in the nearest cache


class Room(NamedTuple):
    """Where a block of rows is laid out, word by word."""

    folded: Columns
    whole: Columns
    stretches: Places  # (BLOCK / STRETCH,), where some row is close to the query


def room_for(folded: int, whole: int) -> Room:
    """Return room for a block of fingerprints of so many words, folded and whole.

    Each column begins with a cache line, so that no vector lies in two of them.
    """
    numbers = np.empty((folded + whole) * BLOCK + LANES, np.uint64)
    first = -numbers.ctypes.data // numbers.itemsize % LANES
    columns = [*numbers[first : len(numbers) - LANES + first].reshape(folded + whole, BLOCK)]
    return Room(tuple(columns[:folded]), tuple(columns[folded:]), np.empty(BLOCK // STRETCH, np.int64))


@compiled()
def scan(
    queries: Fingerprints, stored: Fingerprints, ends: Places, radius: int, room: Room, found: Found
) -> None:
    """Compare query q with each row stored before ends[q]: a block with all queries, then the next one."""
    folded = np.empty((len(queries), len(room.folded)), np.uint64)
    for q in range(len(queries)):
        for word in range(len(room.folded)):
            folded[q, word] = fold(queries, q, word, len(room.folded))
    for start in range(0, len(stored), BLOCK):
        lay_out(stored[start : start + BLOCK], room)
        for q in range(len(queries)):
            rows = min(BLOCK, ends[q] - start)
            for k in room.stretches[: close_stretches(folded, q, radius, rows, room)]:
                near = close_rows(room.whole, k, queries, q, radius) & first_bits(rows - k)
                while near:
                    row = start + k + lowest(near)
                    note(q, differing_bits(queries, q, stored, row), row, found)
                    near &= near - np.uint64(1)


@inlined
def lay_out(rows: Fingerprints, room: Room) -> None:
    """Put a block of rows into the columns."""
    for k in range(len(rows)):
        for word in range(len(room.folded)):
            room.folded[word][k] = fold(rows, k, word, len(room.folded))
        for word in range(len(room.whole)):
            room.whole[word][k] = rows[k, word]


@inlined
def fold(fingerprints: Fingerprints, row: int, word: int, words: int) -> np.uint64:
    """One word of a fingerprint that is folded to so many."""
    folded: np.uint64 = fingerprints[row, word]
    for other in range(word + words, fingerprints.shape[1], words):
        folded ^= fingerprints[row, other]
    return folded


@inlined
def close_stretches(folded: Fingerprints, query: int, radius: int, rows: int, room: Room) -> int:
    """Write down where a stretch begins that has a close row in it; returns how many there are."""
    count = 0
    for k in range(0, rows, STRETCH):
        room.stretches[count] = k  # overwritten by the next one, unless it counts: no branch to guess
        count += some_close(room.folded, k, folded, query, radius)
    return count


@inlined
def first_bits(count: int) -> np.uint64:
    """A number whose lowest bits are set, so many of them; all where there are more."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(max(0, WORD_BITS - count))


@instruction
def some_close(_context: Any, columns: Any, place: Any, queries: Any, query: Any, radius: Any) -> Any:
    """Whether one of STRETCH rows from `place` on differs from a query by at most `radius` bits."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = distances(context, builder, signature, arguments)
        least = reduce(lambda one, other: lesser(builder, one, other), parts)
        near = builder.icmp_unsigned("<=", least, spread(builder, arguments[4], LANES))
        lanes = ir.IntType(LANES)
        return builder.icmp_unsigned("!=", builder.bitcast(near, lanes), lanes(0))

    return types.boolean(columns, types.int64, queries, types.int64, types.int64), build


@instruction
def close_rows(_context: Any, columns: Any, place: Any, queries: Any, query: Any, radius: Any) -> Any:
    """Which rows these are: bit k for row k."""
    number = ir.IntType(WORD_BITS)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        near = number(0)
        for part, bits in enumerate(distances(context, builder, signature, arguments)):
            which = builder.icmp_unsigned("<=", bits, spread(builder, arguments[4], LANES))
            which = builder.zext(builder.bitcast(which, ir.IntType(LANES)), number)
            near = builder.or_(near, builder.shl(which, number(part * LANES)))
        return near

    return types.uint64(columns, types.int64, queries, types.int64, types.int64), build


def distances(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """Build the distances of STRETCH rows from a query, LANES in a vector."""
    number = ir.IntType(WORD_BITS)
    vector = ir.VectorType(number, LANES)
    columns, at, rows, row, _ = arguments
    arrays = [
        context.make_array(kind)(context, builder, builder.extract_value(columns, word)).data
        for word, kind in enumerate(signature.args[0])
    ]
    wanted = context.make_array(signature.args[2])(context, builder, rows).data
    begin = builder.gep(wanted, [builder.mul(row, number(len(arrays)))])
    own = [builder.load(builder.gep(begin, [number(word)])) for word in range(len(arrays))]
    vectors = []
    for first in range(0, STRETCH, LANES):
        bits = ir.Constant(vector, None)
        for array, value in zip(arrays, own, strict=True):
            place = builder.gep(array, [builder.add(at, number(first))])
            entries = builder.load(builder.bitcast(place, vector.as_pointer()), align=8)
            bits = builder.add(bits, differing(builder, entries, spread(builder, value, LANES)))
        vectors.append(bits)
    return vectors
