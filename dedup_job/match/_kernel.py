"""The compiled loops of the segment index that fill its maps and look through them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types

from dedup_job.compiled import compiled, inlined
from dedup_job.instructions import differing, instruction, lowest, popcount, prefetch, spread
from dedup_job.match._found import Fingerprints, Found, differing_bits, note
from dedup_job.match.cut import WORD_BITS

UNIT = 16  # sketches that are compared at once; arrays of sketches have so many spare entries at the end
WAVE = 256  # buckets that are looked through side by side
AHEAD = 24  # rows by which a fill looks ahead of itself


class Cuts(NamedTuple):
    """How fingerprints are cut into keys; a column is (maps,), int64."""

    first: npt.NDArray[np.int64]  # the key's lowest bit
    width: npt.NDArray[np.int64]  # its bits
    starts: npt.NDArray[np.int64]  # where in Table.starts this map begins
    newest: npt.NDArray[np.int64]  # where in Table.newest
    masks: npt.NDArray[np.int64]  # (maps + 1,), where in Table.masks and Table.limits


class Table(NamedTuple):
    """All that an index stores, m maps of the same s settled and f fresh fingerprints.

    In map i, the settled fingerprints with key k are the entries from `starts[b + k]` to `starts[b + k + 1]`
    in row i of `sketches` and `positions`, where b is `cuts.starts[i]`.  The fresh ones are a chain: number
    `newest[cuts.newest[i] + k] - 1`, the one before it `nodes[number, i, 0] - 1`, and so on down to -1.
    """

    fingerprints: Fingerprints  # by position
    cuts: Cuts
    masks: npt.NDArray[np.uint32]  # differences of keys that are probed,
    limits: npt.NDArray[np.uint32]  # and by how many bits a sketch may then differ
    starts: npt.NDArray[np.uint32]
    sketches: npt.NDArray[np.uint32]  # (m, s + UNIT), the 32 bits behind the key, cyclic
    positions: npt.NDArray[np.uint32]  # (m, s)
    newest: npt.NDArray[np.uint32]
    nodes: npt.NDArray[np.uint32]  # (f, m, 2), number of the next one + 1; sketch


class Search(NamedTuple):
    """What is wanted of one map."""

    queries: Fingerprints
    radius: int
    settled: int  # fingerprints
    map: int


class Wave(NamedTuple):
    """Buckets that are looked through side by side, so that their cache misses overlap.

    A column is (WAVE,).
    """

    query: npt.NDArray[np.int64]
    sketch: npt.NDArray[np.uint32]
    allowed: npt.NDArray[np.uint32]  # bits by which a sketch may differ
    start: npt.NDArray[np.int64]  # the settled entries: at first where the directory has them
    end: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.int64]  # number of the next fresh one, or -1; at first where the directory has it
    candidates: npt.NDArray[np.int64]  # (WAVE, 2), query and entry or position, to be confirmed


@instruction
def close(_context: Any, sketches: Any, place: Any, sketch: Any, allowed: Any) -> Any:
    """Which of UNIT sketches from `place` on differ from this one by at most so many bits: bit k for entry k.

    In words of its own because the compiler does not always see that they fit one vector register.
    """
    vector = ir.VectorType(ir.IntType(32), UNIT)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pool, at, wanted, limit = arguments
        data = context.make_array(signature.args[0])(context, builder, pool).data
        entries = builder.load(builder.bitcast(builder.gep(data, [at]), vector.as_pointer()), align=4)
        bits = differing(builder, entries, spread(builder, wanted, UNIT))
        near = builder.icmp_unsigned("<=", bits, spread(builder, limit, UNIT))
        return builder.zext(builder.bitcast(near, ir.IntType(UNIT)), ir.IntType(64))

    return types.uint64(sketches, types.int64, types.uint32, types.uint32), build


@inlined
def bits_from(fingerprints: Fingerprints, row: int, first: int) -> np.uint64:
    """The 64 bits of a row from bit `first` on, cyclic."""
    word, shift = first >> 6, first & 63
    low: np.uint64 = fingerprints[row, word] >> np.uint64(shift)
    if shift == 0:
        return low
    following = word + 1 if word + 1 < fingerprints.shape[1] else 0
    high: np.uint64 = fingerprints[row, following] << np.uint64(WORD_BITS - shift)
    return low | high


@inlined
def key(fingerprints: Fingerprints, row: int, first: int, width: int) -> np.uint64:
    """The key of one row: `width` bits from bit `first` on."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    bits: np.uint64 = bits_from(fingerprints, row, first)
    return bits & mask


@inlined
def sketch(fingerprints: Fingerprints, row: int, first: int, width: int) -> np.uint32:
    """The 32 bits behind a key: most candidates are rejected by these, without leaving the bucket."""
    behind = first + width
    bits = fingerprints.shape[1] * WORD_BITS
    return np.uint32(bits_from(fingerprints, row, behind if behind < bits else behind - bits))


@compiled()
def settle(count: int, table: Table) -> None:
    """Enter the first `count` fingerprints into all maps."""
    cuts = table.cuts
    for i in range(len(cuts.first)):
        begin = cuts.starts[i]
        starts = table.starts[begin : begin + (1 << cuts.width[i]) + 2]
        entries = table.sketches[i], table.positions[i]
        sort(table.fingerprints[:count], (cuts.first[i], cuts.width[i]), starts, entries)


@compiled()
def sort(
    fingerprints: Fingerprints,
    cut: tuple[int, int],
    starts: npt.NDArray[np.uint32],
    entries: tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]],
) -> None:
    """Enter fingerprints into one map, by a counting sort on their keys."""
    (first, width), (sketches, positions) = cut, entries
    count, one = len(fingerprints), np.uint64(1)
    starts[:] = 0
    for row in range(count):
        starts[key(fingerprints, row, first, width) + one + one] += np.uint32(1)
    for k in range(2, len(starts)):
        starts[k] += starts[k - 1]
    # Now entry k + 1 is where key k starts; after all rows were placed it is where key k ends.
    for row in range(count):
        if row + AHEAD < count:
            coming = np.int64(starts[key(fingerprints, row + AHEAD, first, width) + one])
            prefetch(sketches, coming)
            prefetch(positions, coming)
        k = key(fingerprints, row, first, width) + one
        place = np.uint64(starts[k])
        starts[k] += np.uint32(1)
        sketches[place] = sketch(fingerprints, row, first, width)
        positions[place] = row


@compiled()
def chain(first: int, last: int, settled: int, table: Table) -> None:
    """Enter the fingerprints at positions `first` to `last` as fresh ones."""
    cuts, newest, nodes, fingerprints = table.cuts, table.newest, table.nodes, table.fingerprints
    for i in range(len(cuts.first)):
        begin, width, base = cuts.first[i], cuts.width[i], np.uint64(cuts.newest[i])
        for row in range(first, last):
            k = base + key(fingerprints, row, begin, width)
            nodes[row - settled, i, 0] = newest[k]
            nodes[row - settled, i, 1] = sketch(fingerprints, row, begin, width)
            newest[k] = row - settled + 1


@compiled()
def look(queries: Fingerprints, radius: int, settled: int, table: Table, found: Found) -> int:
    """Note every neighbour of the queries, once; returns how many fresh entries were met on the way."""
    wave = Wave(
        query=np.empty(WAVE, np.int64),
        sketch=np.empty(WAVE, np.uint32),
        allowed=np.empty(WAVE, np.uint32),
        start=np.empty(WAVE, np.int64),
        end=np.empty(WAVE, np.int64),
        fresh=np.empty(WAVE, np.int64),
        candidates=np.empty((WAVE, 2), np.int64),
    )
    met = 0
    for i in range(len(table.cuts.first)):
        search = Search(queries, radius, settled, i)
        probes = len(queries) * (table.cuts.masks[i + 1] - table.cuts.masks[i])
        for probe in range(0, probes, WAVE):
            n = min(WAVE, probes - probe)
            enter(wave, probe, n, search, table)
            arrive(wave, n, i, table)
            look_settled(wave, n, search, table, found)
            met += look_fresh(wave, n, search, table, found)
    return met


@inlined
def enter(wave: Wave, probe: int, n: int, search: Search, table: Table) -> None:
    """Fill the wave with the next n probes of a map, and ask for their places in the directories."""
    cuts, i, queries = table.cuts, search.map, search.queries
    begin, width, masks = cuts.first[i], cuts.width[i], table.masks[cuts.masks[i] : cuts.masks[i + 1]]
    limits = table.limits[cuts.masks[i] : cuts.masks[i + 1]]
    query, flipped = probe // len(masks), probe % len(masks)
    own, own_sketch = key(queries, query, begin, width), sketch(queries, query, begin, width)
    for x in range(n):
        bucket = np.int64(own ^ np.uint64(masks[flipped]))
        wave.query[x] = query
        wave.sketch[x] = own_sketch
        wave.allowed[x] = limits[flipped]
        wave.start[x] = cuts.starts[i] + bucket
        wave.fresh[x] = cuts.newest[i] + bucket
        prefetch(table.starts, wave.start[x])
        prefetch(table.newest, wave.fresh[x])
        flipped += 1
        if flipped == len(masks):
            query, flipped = query + 1, 0
            if query < len(queries):
                own, own_sketch = key(queries, query, begin, width), sketch(queries, query, begin, width)


@inlined
def arrive(wave: Wave, n: int, i: int, table: Table) -> None:
    """Read the directories, and ask for the entries."""
    here, maps = i * table.sketches.shape[1], len(table.cuts.first)
    for x in range(n):
        place = wave.start[x]
        wave.start[x], wave.end[x] = table.starts[place], table.starts[place + 1]
        wave.fresh[x] = np.int64(table.newest[wave.fresh[x]]) - 1
        prefetch(table.sketches, here + wave.start[x])
        prefetch(table.nodes, (wave.fresh[x] * maps + i) * 2 if wave.fresh[x] > 0 else 0)


@inlined
def look_settled(wave: Wave, n: int, search: Search, table: Table, found: Found) -> None:
    """Look through the settled entries of the wave."""
    here, there = search.map * table.sketches.shape[1], search.map * table.positions.shape[1]
    candidates, waiting = wave.candidates, 0
    for x in range(n):
        own, allowed, end = wave.sketch[x], wave.allowed[x], wave.end[x]
        for place in range(wave.start[x], end, UNIT):
            near = close(table.sketches, here + place, own, allowed)
            if end - place < UNIT:
                near &= (np.uint64(1) << np.uint64(end - place)) - np.uint64(1)
            while near:
                candidates[waiting, 0], candidates[waiting, 1] = wave.query[x], place + lowest(near)
                prefetch(table.positions, there + candidates[waiting, 1])
                near &= near - np.uint64(1)
                waiting += 1
                if waiting == WAVE:
                    confirm_all(candidates, waiting, search, table, found)
                    waiting = 0
    confirm_all(candidates, waiting, search, table, found)


@inlined
def confirm_all(
    candidates: npt.NDArray[np.int64], n: int, search: Search, table: Table, found: Found
) -> None:
    """Confirm n candidates, given by query and entry."""
    words = search.queries.shape[1]
    for x in range(n):
        candidates[x, 1] = table.positions[search.map, candidates[x, 1]]
        prefetch(table.fingerprints, candidates[x, 1] * words)
    for x in range(n):
        confirm(candidates[x, 0], candidates[x, 1], search, table, found)


@inlined
def look_fresh(wave: Wave, n: int, search: Search, table: Table, found: Found) -> int:
    """Look through the fresh entries of the wave, one of each bucket in turn; returns how many."""
    nodes, i, maps = table.nodes, search.map, len(table.cuts.first)
    met = 0
    while n:
        still = 0
        for x in range(n):
            fresh = wave.fresh[x]
            if fresh < 0:
                continue
            met += 1
            if np.int64(popcount(nodes[fresh, i, 1] ^ wave.sketch[x])) <= np.int64(wave.allowed[x]):
                confirm(wave.query[x], search.settled + fresh, search, table, found)
            following = np.int64(nodes[fresh, i, 0]) - 1
            prefetch(nodes, (following * maps + i) * 2 if following > 0 else 0)
            wave.query[still], wave.sketch[still] = wave.query[x], wave.sketch[x]
            wave.allowed[still], wave.fresh[still] = wave.allowed[x], following
            still += 1
        n = still
    return met


@compiled()
def join(rows: Fingerprints, radius: int, table: Table, found: Found) -> None:
    """Note for each row the neighbours among the rows before it; the table is empty, with room for all."""
    cuts, newest, nodes = table.cuts, table.newest, table.nodes
    for i in range(len(cuts.first)):
        search = Search(rows, radius, 0, i)
        begin, width, masks = cuts.first[i], cuts.width[i], table.masks[cuts.masks[i] : cuts.masks[i + 1]]
        for row in range(len(rows)):
            own = key(rows, row, begin, width)
            for flipped in masks:
                other = np.int64(newest[cuts.newest[i] + np.int64(own ^ np.uint64(flipped))]) - 1
                while other >= 0:
                    confirm(row, other, search, table, found)
                    other = np.int64(nodes[other, i, 0]) - 1
            place = cuts.newest[i] + np.int64(own)
            nodes[row, i, 0] = newest[place]
            newest[place] = row + 1


@inlined
def confirm(query: int, position: int, search: Search, table: Table, found: Found) -> None:
    """Note a candidate that is within the radius and whose keys are nearer in no other map."""
    queries, stored, cuts = search.queries, table.fingerprints, table.cuts
    distance = differing_bits(queries, query, stored, position)
    if distance > search.radius:
        return
    nearest, best = 0, np.int64(WORD_BITS)
    for i in range(len(cuts.first)):
        begin, width = cuts.first[i], cuts.width[i]
        flips = np.int64(popcount(key(queries, query, begin, width) ^ key(stored, position, begin, width)))
        if flips < best:
            nearest, best = i, flips
    if nearest == search.map:
        note(query, distance, position, found)
