"""The compiled loops of the segment index: appending to buckets, walking through them, and plain scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

Fingerprints = npt.NDArray[np.uint64]  # (n, words)

SEGMENT_BITS = 16
KEYS = 1 << SEGMENT_BITS
SEGMENTS_PER_WORD = 64 // SEGMENT_BITS
UNIT = 8  # entries that are tested at once; also the smallest block
LARGEST_BLOCK = 128  # entries
WAVE = 256  # buckets that are walked side by side
STRETCH = 256  # rows that a scan compares before it looks at the distances


class Table(NamedTuple):
    """All that an index stores. A bucket is a chain of blocks, a block a run of units in one shared pool.

    The first slot of each block but a bucket's first holds no entry: its sketch is the link to the block
    before, as that block's first unit.
    """

    fingerprints: Fingerprints  # by position
    heads: npt.NDArray[np.uint32]  # (mapped segments, KEYS, 2), slots in use, first unit of the newest block
    sketches: npt.NDArray[np.uint32]  # (units, UNIT), the two segments after this one, cyclic
    positions: npt.NDArray[np.uint32]  # (units, UNIT)


class Search(NamedTuple):
    """What is wanted of one segment's buckets."""

    queries: Fingerprints
    segment: int
    radius: int
    flips: npt.NDArray[np.int64]  # (segments,), bits by which a segment may differ and still be probed, or -1


class Probes(NamedTuple):
    """Buckets to look through, all of one segment."""

    buckets: npt.NDArray[np.uint16]
    queries: npt.NDArray[np.int64]  # (len(buckets),), row of the query for which


class Found(NamedTuple):
    """Neighbours, as numbers that sort by query, distance, position: 24, 8 and 32 bits."""

    numbers: npt.NDArray[np.uint64]  # those that there is room for
    total: npt.NDArray[np.int64]  # (1,), how many there are


class Wave(NamedTuple):
    """Buckets that are walked side by side, so that their cache misses overlap; a column is (WAVE,)."""

    query: npt.NDArray[np.int64]
    sketch: npt.NDArray[np.uint32]
    allowed: npt.NDArray[np.uint32]  # bits by which a sketch may differ
    left: npt.NDArray[np.int64]  # slots not yet seen; they are seen from the newest block backwards
    block: npt.NDArray[np.int64]  # first unit of the block that holds the last of them
    walking: npt.NDArray[np.int64]  # which of the buckets are not yet through
    touched: npt.NDArray[np.uint32]  # keeps the compiler from leaving out the early loads


def compiled(function: Callable[..., object]) -> Any:
    """Compile at the first call, release the GIL, and keep the machine code for the next process."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # nowhere to keep it (read-only installation, no home): compile in each process
        return numba.njit(nogil=True)(function)


def instruction(builder: Callable[..., object]) -> Any:
    """Let compiled code call what this function builds of the compiler's own instructions."""
    return intrinsic(builder)


@instruction
def popcount(_context: Any, bits: Any) -> Any:
    """Bits set in an unsigned integer, of the same type."""
    return bits(bits), lambda _, builder, __, arguments: builder.ctpop(arguments[0])


@instruction
def lowest(_context: Any, bits: Any) -> Any:
    """Place of the lowest bit set in a uint64 that is not 0."""

    def build(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(bits), build


@instruction
def close(_context: Any, sketches: Any, unit: Any, sketch: Any, allowed: Any) -> Any:
    """Which of a unit's sketches differ from this one by at most so many bits; bit k stands for entry k.

    In words of its own because the compiler does not always see that the eight fit one vector register.
    """
    eight = ir.VectorType(ir.IntType(32), UNIT)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pool, at, wanted, limit = arguments
        data = context.make_array(signature.args[0])(context, builder, pool).data
        units = builder.bitcast(data, eight.as_pointer())
        entries = builder.load(builder.gep(units, [at]), align=4)
        popcount = builder.module.declare_intrinsic("llvm.ctpop.v8i32", (), ir.FunctionType(eight, [eight]))
        apart = builder.call(popcount, [builder.xor(entries, spread(builder, wanted))])
        near = builder.icmp_unsigned("<=", apart, spread(builder, limit))
        return builder.zext(builder.bitcast(near, ir.IntType(UNIT)), ir.IntType(64))

    def spread(builder: Any, value: Any) -> Any:
        unset = ir.Constant(eight, ir.Undefined)
        first = builder.insert_element(unset, value, ir.IntType(32)(0))
        return builder.shuffle_vector(first, unset, ir.Constant(eight, [0] * UNIT))

    return types.uint64(sketches, types.int64, types.uint32, types.uint32), build


@compiled
def segment(fingerprints: Fingerprints, row: int, i: int) -> np.uint64:
    """Bits 16*i .. 16*i+15 of one row; i wraps round after the last segment."""
    i %= fingerprints.shape[1] * SEGMENTS_PER_WORD
    shift = np.uint64(SEGMENT_BITS * (i % SEGMENTS_PER_WORD))
    word: np.uint64 = fingerprints[row, i // SEGMENTS_PER_WORD]
    return (word >> shift) & np.uint64(KEYS - 1)


@compiled
def sketch(fingerprints: Fingerprints, row: int, i: int) -> np.uint32:
    """The 32 bits after segment i: most candidates are rejected by these, without leaving the bucket."""
    after, then = segment(fingerprints, row, i + 1), segment(fingerprints, row, i + 2)
    return np.uint32(after | then << np.uint64(SEGMENT_BITS))


@compiled
def block_size(slot: int) -> int:
    """Slots in the block that holds a bucket's n-th slot.

    Blocks have 8 8 8 8 16 16 32 32 64 64 128 128 ... slots and start at 0 8 16 24 32 48 64 96 128 192 256
    384 ...: each at a multiple of its size, so slot 53 is number 53 & 15 = 5 of the block from 48 on. From 16
    slots on at most a third of a bucket is empty.
    """
    size = UNIT
    while size < LARGEST_BLOCK and slot >= 4 * size:
        size *= 2
    return size


@compiled
def append(fingerprints: Fingerprints, first: int, used: int, table: Table) -> tuple[int, int]:
    """Enter the fingerprints from position `first` on, as long as the pool is sure to have room.

    Returns how many were entered, and how many units are in use after that.
    """
    segments = table.heads.shape[0]
    for row in range(len(fingerprints)):
        if used + segments * (LARGEST_BLOCK // UNIT) > len(table.sketches):
            return row, used
        table.fingerprints[first + row] = fingerprints[row]
        for i in range(segments):
            key = segment(fingerprints, row, i)
            slot = np.int64(table.heads[i, key, 0])
            size = block_size(slot)
            if slot & (size - 1) == 0:
                slot += link(i, key, used, table)
                used += size // UNIT
            place = slot & (size - 1)
            unit = np.int64(table.heads[i, key, 1]) + place // UNIT
            table.sketches[unit, place % UNIT] = sketch(fingerprints, row, i)
            table.positions[unit, place % UNIT] = first + row
            table.heads[i, key, 0] = slot + 1
    return len(fingerprints), used


@compiled
def link(i: int, key: int, block: int, table: Table) -> int:
    """Make this block the newest of its bucket; returns the slots that the link to the one before takes."""
    before = table.heads[i, key, 1]
    table.heads[i, key, 1] = block
    if table.heads[i, key, 0] == 0:
        return 0
    table.sketches[block, 0] = before
    return 1


@compiled
def walk(probes: Probes, search: Search, table: Table, found: Found) -> None:
    """Note every neighbour in these buckets, unless an earlier segment finds it too."""
    wave = Wave(
        query=np.empty(WAVE, np.int64),
        sketch=np.empty(WAVE, np.uint32),
        allowed=np.empty(WAVE, np.uint32),
        left=np.empty(WAVE, np.int64),
        block=np.empty(WAVE, np.int64),
        walking=np.empty(WAVE, np.int64),
        touched=np.zeros(1, np.uint32),
    )
    for first in range(0, len(probes.buckets), WAVE):
        walking = enter(wave, first, probes, search, table)
        while walking:
            touch(wave, walking, table.sketches)
            walking = advance(wave, walking, search, table, found)


@compiled
def enter(wave: Wave, first: int, probes: Probes, search: Search, table: Table) -> int:
    """Fill the wave with the next probes whose buckets are not empty; returns how many."""
    queries, heads, i = search.queries, table.heads, search.segment
    n = 0
    for x in range(first, min(first + WAVE, len(probes.buckets))):
        query, bucket = probes.queries[x], probes.buckets[x]
        if heads[i, bucket, 0] > 0:
            wave.query[n] = query
            wave.sketch[n] = sketch(queries, query, i)
            wave.allowed[n] = search.radius - np.int64(popcount(segment(queries, query, i) ^ bucket))
            wave.left[n] = heads[i, bucket, 0]
            wave.block[n] = heads[i, bucket, 1]
            wave.walking[n] = n
            n += 1
    return n


@compiled
def touch(wave: Wave, walking: int, sketches: npt.NDArray[np.uint32]) -> None:
    """Load the start of each bucket's next block: as none waits for another, memory serves many at once."""
    touched = np.uint32(0)
    for n in range(walking):
        touched ^= sketches[wave.block[wave.walking[n]], 0]
    wave.touched[0] = touched


@compiled
def advance(wave: Wave, walking: int, search: Search, table: Table, found: Found) -> int:
    """Look through one block of each bucket; returns how many buckets have another."""
    query, own, allowed, left, blocks, order, _ = wave
    fingerprints, _, sketches, positions = table
    still = 0
    for n in range(walking):
        x = order[n]
        start = (left[x] - 1) & -block_size(left[x] - 1)
        block, slots, first = blocks[x], left[x] - start, start > 0
        for unit in range((slots + UNIT - 1) // UNIT):
            candidates = close(sketches, block + unit, own[x], allowed[x])
            while candidates:
                k = lowest(candidates)
                candidates &= candidates - np.uint64(1)
                if first <= unit * UNIT + k < slots:
                    confirm(query[x], positions[block + unit, k], search, fingerprints, found)
        left[x] = start
        blocks[x] = sketches[block, 0]
        order[still] = x
        still += start > 0
    return still


@compiled
def confirm(query: int, position: int, search: Search, stored: Fingerprints, found: Found) -> None:
    """Note a candidate that is within the radius and that no earlier segment finds too."""
    distance = np.int64(0)
    for word in range(stored.shape[1]):
        distance += np.int64(popcount(search.queries[query, word] ^ stored[position, word]))
    if distance > search.radius:
        return
    for i in range(search.segment):
        apart = segment(search.queries, query, i) ^ segment(stored, position, i)
        if np.int64(popcount(apart)) <= search.flips[i]:
            return
    note(query, distance, position, found)


@compiled
def note(query: int, distance: int, position: int, found: Found) -> None:
    """Count one neighbour, and write it down if there is room."""
    if found.total[0] < len(found.numbers):
        nearness = np.uint64(query) << np.uint64(8) | np.uint64(distance)
        found.numbers[found.total[0]] = nearness << np.uint64(32) | np.uint64(position)
    found.total[0] += 1


@compiled
def scan(
    queries: Fingerprints, stored: Fingerprints, ends: npt.NDArray[np.int64], radius: int, found: Found
) -> None:
    """Compare query q with each of the stored rows before ends[q]."""
    distances = np.empty(STRETCH, np.uint64)
    for q in range(len(queries)):
        for start in range(0, ends[q], STRETCH):
            rows = min(STRETCH, ends[q] - start)
            distances[:] = 0
            for word in range(queries.shape[1]):
                for k in range(rows):
                    distances[k] += popcount(stored[start + k, word] ^ queries[q, word])
            for k in range(rows):
                if distances[k] <= np.uint64(radius):
                    note(q, distances[k], start + k, found)
