"""The segment index: which fingerprints seen so far lie within a Hamming radius of these ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dedup_job.match import _found, _kernel, _scan
from dedup_job.match._column import make_room
from dedup_job.match.cut import WORD_BITS
from dedup_job.match.layout import Layout, cheapest, cheapest_inside, folded_words
from dedup_job.match.likeness import Sample

Fingerprints = npt.NDArray[np.uint64]

LARGEST_BITS = 256
LARGEST_RADIUS = 255  # distances are uint8
LARGEST_COUNT = 1 << 32  # positions are uint32
QUERIES_AT_ONCE = (1 << 24) - 1  # as many as a number in Found can tell apart
FEW = 4  # neighbours of a query
GROWTH = 2.0  # times as many as were settled: then all are settled anew,
SCAN_GROWTH = 1.2  # and as long as all are compared, the layout is only looked for
# Measured, in nanoseconds.
HOP_COST = 4.0  # passing a fresh entry
SETTLE_COST = 16.0  # settling an entry
KEY_COST = 2.0  # making a bucket


@dataclass(frozen=True, slots=True)
class Candidates:
    """The neighbours of the n queries of one batch: those of query q are rows offsets[q] to offsets[q+1].

    Within a query they ascend by distance, then by position: the nearest and earliest comes first.
    """

    offsets: npt.NDArray[np.int64]  # (n + 1,)
    positions: npt.NDArray[np.uint32]
    distances: npt.NDArray[np.uint8]  # in bits


def pairs_within(fingerprints: Fingerprints, radius: int) -> Candidates:
    """Find for each row of one batch the earlier rows of the same batch within the radius.

    fingerprints: (n, words); positions in the answer are row numbers. Compares all pairs, so it is meant
    for n up to about 5,000.
    """
    words = fingerprints.shape[-1]
    rows = _checked(fingerprints, words)
    _check_radius(radius, words * WORD_BITS)
    layout = cheapest_inside(words * WORD_BITS, radius, len(rows))
    if layout.cuts:
        return _candidates(len(rows), lambda found: _join(rows, radius, layout, found))
    ends, room = np.arange(len(rows)), _room(words * WORD_BITS, radius)
    return _candidates(len(rows), lambda found: _scan.scan(rows, rows, ends, radius, room, found))


def _join(rows: Fingerprints, radius: int, layout: Layout, found: _found.Found) -> None:
    nodes = np.empty((len(rows), len(layout.cuts), 2), np.uint32)
    _kernel.join(rows, radius, _table(rows, layout, 0)._replace(nodes=nodes), found)


class SegmentIndex:
    """All fingerprints within a Hamming radius, exactly, while the collection grows.

    A fingerprint is `bits` / 64 uint64 words, the least significant first. It is cut into segments, and each
    segment has a map of its own, from the segment's value to the bucket of fingerprints with that value. Cut
    into four, 0x4444_3333_2222_1111 lies in bucket 0x1111 of map 0, 0x2222 of map 1, 0x3333 of map 2 and
    0x4444 of map 3. `layout` says how it is cut now.

    Most fingerprints are settled: each map has their entries in one array, in the order of the buckets. The
    latest are fresh: in each bucket a chain. From time to time all become settled, in another layout if that
    is cheaper by now.

    An index belongs to one thread at a time.
    """

    def __init__(self, bits: int = 64, radius: int = 3) -> None:
        """Make an empty index; ValueError for bits or a radius that it cannot serve."""
        if bits % WORD_BITS or not 0 < bits <= LARGEST_BITS:
            raise ValueError(f"bits must be 64, 128, 192 or 256, not {bits}")
        _check_radius(radius, bits)
        self._bits = bits
        self._radius = radius
        self._count = 0
        self._settled = 0  # fingerprints before this position are settled,
        self._entered = 0  # those before this one at least fresh
        self._walked = 0  # fresh entries that searches met since all were settled
        self._usual = FEW  # neighbours of a query, twice as many as there were last time
        self.layout = Layout(bits, radius)
        self._table = _table(np.empty((0, bits // WORD_BITS), np.uint64), self.layout, 0)

    def __len__(self) -> int:
        """Fingerprints added so far."""
        return self._count

    def __repr__(self) -> str:
        where = f"{self._bits} bits within {self._radius}, {self.layout}"
        return f"<SegmentIndex: {self._count:,} fingerprints of {where}>"

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        columns = (self._table.fingerprints, *self._table[2:])
        return sum(column.nbytes for column in columns)

    def add(self, fingerprints: Fingerprints) -> int:
        """Add n fingerprints, shape (n, words), at the next n positions, and return the first of these.

        Equal fingerprints may be added as often as wanted. ValueError for a wrong shape or dtype;
        OverflowError when there would be more than 2**32.
        """
        rows = _checked(fingerprints, self._table.fingerprints.shape[1])
        first, last = self._count, self._count + len(rows)
        if last > LARGEST_COUNT:
            raise OverflowError(f"an index holds at most {LARGEST_COUNT} fingerprints")
        make_room(self._table.fingerprints, last)
        self._table.fingerprints[first:last] = rows
        self._count = last
        return first

    def within(self, fingerprints: Fingerprints) -> Candidates:
        """Find everything added so far within the radius of each fingerprint, shape (n, words)."""
        queries = _checked(fingerprints, self._table.fingerprints.shape[1])
        self._enter()
        search = self._look if self.layout.cuts else self._scan
        found = _candidates(len(queries), lambda found: search(queries, found), self._usual)
        self._usual = max(FEW, 2 * len(found.positions) // max(1, len(queries)))
        return found

    def _scan(self, queries: Fingerprints, found: _found.Found) -> None:
        ends, stored = np.full(len(queries), self._count), self._table.fingerprints[: self._count]
        _scan.scan(queries, stored, ends, self._radius, _room(self._bits, self._radius), found)

    def _look(self, queries: Fingerprints, found: _found.Found) -> None:
        self._walked += _kernel.look(queries, self._radius, self._settled, self._table, found)

    def _enter(self) -> None:
        """Enter what was added since the last search into the maps."""
        if self._settling_pays():
            self._settle()
        elif self.layout.cuts and self._entered < self._count:
            make_room(self._table.nodes, self._count - self._settled)
            _kernel.chain(self._entered, self._count, self._settled, self._table)
            self._entered = self._count

    def _settling_pays(self) -> bool:
        """Return whether there are many more than were settled, or passing the fresh has cost as much by now.

        That costs at most twice what it would cost to settle at the best moments.
        """
        if self._count > (GROWTH if self.layout.cuts else SCAN_GROWTH) * self._settled:
            return True
        keys = sum(1 << cut.width for cut in self.layout.cuts)
        return self._walked * HOP_COST > self._count * len(self.layout.cuts) * SETTLE_COST + keys * KEY_COST

    def _settle(self) -> None:
        """Enter all anew, each map in one array, in the layout that is cheapest by now."""
        stored = self._table.fingerprints
        self.layout = cheapest(
            self._bits, self._radius, self._count, Sample(stored[: self._count], self._radius)
        )
        del self._table  # the old maps go before the new ones come
        self._table = _table(stored, self.layout, self._count)
        _kernel.settle(self._count, self._table)
        self._settled = self._entered = self._count
        self._walked = 0


def _table(fingerprints: Fingerprints, layout: Layout, settled: int) -> _kernel.Table:
    """Return empty maps that have room for so many settled fingerprints."""
    cuts, masks, limits = _cuts(layout)
    maps, keys = len(layout.cuts), sum(1 << cut.width for cut in layout.cuts)
    return _kernel.Table(
        fingerprints=fingerprints,
        cuts=cuts,
        masks=masks,
        limits=limits,
        starts=np.zeros(keys + 2 * maps, np.uint32),
        sketches=np.empty((maps, settled + _kernel.UNIT), np.uint32),
        positions=np.empty((maps, settled), np.uint32),
        newest=np.zeros(keys, np.uint32),
        nodes=np.empty((0, maps, 2), np.uint32),
    )


@cache
def _cuts(layout: Layout) -> tuple[_kernel.Cuts, npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return a layout as the kernel has it, the differences of keys that are probed, and their limits."""
    probed = [_masks(layout, i) for i in range(len(layout.cuts))]
    masks, limits = np.concatenate([np.empty((0, 2), np.uint32), *probed]).T.copy()
    keys = np.array([1 << cut.width for cut in layout.cuts], np.int64)
    cuts = _kernel.Cuts(
        first=np.array([cut.first for cut in layout.cuts], np.int64),
        width=np.array([cut.width for cut in layout.cuts], np.int64),
        starts=np.cumsum(keys + 2) - keys - 2,
        newest=np.cumsum(keys) - keys,
        masks=np.cumsum([0, *map(len, probed)]),
    )
    return cuts, masks, limits


def _masks(layout: Layout, i: int) -> npt.NDArray[np.uint32]:
    """Return the differences of keys that map i is probed with, each with the limit of the sketch."""
    cut = layout.cuts[i]
    masks = [
        (sum(1 << bit for bit in flipped), layout.limit(i, flips))
        for flips in range(cut.flips + 1)
        if layout.limit(i, flips) >= 0
        for flipped in combinations(range(cut.width), flips)
    ]
    return np.array(masks, np.uint32).reshape(-1, 2)


def _room(bits: int, radius: int) -> _scan.Room:
    return _scan.room_for(folded_words(bits, radius), bits // WORD_BITS)


def _check_radius(radius: int, bits: int) -> None:
    most = min(bits, LARGEST_RADIUS)
    if not 0 <= radius <= most:
        raise ValueError(f"radius must be between 0 and {most} for {bits} bits, not {radius}")


def _checked(fingerprints: Fingerprints, words: int) -> Fingerprints:
    if fingerprints.dtype != np.uint64 or fingerprints.ndim != 2 or fingerprints.shape[1] != words:
        given = f"{fingerprints.dtype} of shape {fingerprints.shape}"
        raise ValueError(f"fingerprints must be uint64 of shape (n, {words}), not {given}")
    return np.require(fingerprints, requirements=["C", "A", "W"])  # one kind of array: compiled once


def _candidates(queries: int, search: Callable[[_found.Found], None], each: int = FEW) -> Candidates:
    """Search with room for so many neighbours each, and again with room for all where that was not enough."""
    if queries > QUERIES_AT_ONCE:
        raise ValueError(f"look for at most {QUERIES_AT_ONCE} fingerprints at once, not {queries}")
    found = _empty(each * queries)
    search(found)
    if found.total[0] > len(found.numbers):
        found = _empty(int(found.total[0]))
        search(found)
    numbers = found.numbers[: found.total[0]]
    numbers.sort()
    distances = (numbers >> np.uint64(32)).astype(np.uint8)
    return Candidates(_found.offsets(numbers, queries), numbers.astype(np.uint32), distances)


def _empty(room: int) -> _found.Found:
    return _found.Found(np.empty(room, np.uint64), np.zeros(1, np.int64))
