"""The segment index: which fingerprints seen so far lie within a Hamming radius of these ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dedup_job.match import _kernel

Fingerprints = npt.NDArray[np.uint64]

WORD_BITS = 64
LARGEST_BITS = 256
LARGEST_RADIUS = 255  # distances are uint8
LARGEST_COUNT = 1 << 32  # positions are uint32
PROBE_COST = 64  # a probe costs about as much as comparing this many fingerprints in a scan,
ENTRY_COST = 8  # and every entry that it meets as this many more
QUERIES_AT_ONCE = (1 << 24) - 1  # as many as a number in Found can tell apart
PROBES_AT_ONCE = 1 << 20  # bounds the memory of a search


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
    ends = np.arange(len(rows))
    return _candidates(len(rows), lambda found: _kernel.scan(rows, rows, ends, radius, found))


class SegmentIndex:
    """All fingerprints within a Hamming radius, exactly, while the collection grows.

    A fingerprint is `bits` / 64 uint64 words, the least significant first. It is cut into segments of
    16 bits: segment i holds bits 16*i to 16*i+15 and has a map of its own, from the segment's value to the
    bucket of fingerprints with that value. 0x4444_3333_2222_1111 lies in bucket 0x1111 of map 0, 0x2222 of
    map 1, 0x3333 of map 2 and 0x4444 of map 3.

    With s segments and radius = s*f + a (0 <= a < s), two fingerprints within the radius differ in at most
    f bits in one of the first a+1 segments, or in at most f-1 bits in one of the others: were it otherwise,
    they would differ in at least (a+1)*(f+1) + (s-a-1)*f = radius + 1 bits. So only buckets that near need
    probing: 4 at radius 3 and 68 at radius 7 for 64 bits. (Norouzi, Punjani and Fleet, Fast Search in Hamming
    Space with Multi-Index Hashing, CVPR 2012, section 3; Manku, Jain and Das Sarma, Detecting Near-Duplicates
    for Web Crawling, WWW 2007, section 3.)

    An index belongs to one thread at a time.
    """

    def __init__(self, bits: int = 64, radius: int = 3) -> None:
        """Make an empty index; ValueError for bits or a radius that it cannot serve."""
        if bits % WORD_BITS or not 0 < bits <= LARGEST_BITS:
            raise ValueError(f"bits must be 64, 128, 192 or 256, not {bits}")
        _check_radius(radius, bits)
        segments = bits // _kernel.SEGMENT_BITS
        self._count = 0
        self._units = 0
        self._radius = radius
        self._flips = _flips(segments, radius)
        self._masks = [_masks(flips) for flips in self._flips.tolist()]
        self._table = _kernel.Table(
            fingerprints=np.empty((0, bits // WORD_BITS), np.uint64),
            heads=np.zeros((len(self._flips), _kernel.KEYS, 2), np.uint32),
            sketches=np.empty((0, _kernel.UNIT), np.uint32),
            positions=np.empty((0, _kernel.UNIT), np.uint32),
        )

    def __len__(self) -> int:
        """Fingerprints added so far."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(column.nbytes for column in self._table)

    def add(self, fingerprints: Fingerprints) -> int:
        """Add n fingerprints, shape (n, words), at the next n positions, and return the first of these.

        Equal fingerprints may be added as often as wanted. ValueError for a wrong shape or dtype;
        OverflowError when there would be more than 2**32.
        """
        rows = _checked(fingerprints, self._table.fingerprints.shape[1])
        first = self._count
        if first + len(rows) > LARGEST_COUNT:
            raise OverflowError(f"an index holds at most {LARGEST_COUNT} fingerprints")
        _make_room(self._table.fingerprints, first + len(rows))
        while self._count < first + len(rows):
            rest = rows[self._count - first :]
            entered, self._units = _kernel.append(rest, self._count, self._units, self._table)
            self._count += entered
            if entered < len(rest):
                self._make_room_for_units()
        return first

    def within(self, fingerprints: Fingerprints) -> Candidates:
        """Find everything added so far within the radius of each fingerprint, shape (n, words).

        Probes buckets, or compares with every fingerprint where that is cheaper; the answer is the same.
        """
        queries = _checked(fingerprints, self._table.fingerprints.shape[1])
        if self._probing_pays():
            return _candidates(len(queries), lambda found: self._probe(queries, found))
        return _candidates(len(queries), lambda found: self._scan(queries, found))

    def _probing_pays(self) -> bool:
        """Count the expected work: a probe meets 1 in 65,536 of the fingerprints, a scan all of them."""
        probes = sum(len(masks) for masks in self._masks)
        return probes * (PROBE_COST + ENTRY_COST * self._count / _kernel.KEYS) < self._count

    def _scan(self, queries: Fingerprints, found: _kernel.Found) -> None:
        ends = np.full(len(queries), self._count)
        _kernel.scan(queries, self._table.fingerprints, ends, self._radius, found)

    def _probe(self, queries: Fingerprints, found: _kernel.Found) -> None:
        """Look through all buckets in reach, segment by segment, in the order of the buckets."""
        for i, masks in enumerate(self._masks):
            search = _kernel.Search(queries, i, self._radius, self._flips)
            keys = _segment(queries, i)
            step = PROBES_AT_ONCE // len(masks)
            for first in range(0, len(queries), step):
                buckets = (keys[first : first + step, None] ^ masks).ravel()
                order = np.argsort(buckets, kind="stable")
                probes = _kernel.Probes(buckets[order], first + order // len(masks))
                _kernel.walk(probes, search, self._table, found)

    def _make_room_for_units(self) -> None:
        most_per_row = len(self._table.heads) * _kernel.LARGEST_BLOCK // _kernel.UNIT
        _make_room(self._table.positions, self._units + most_per_row)
        _make_room(self._table.sketches, self._units + most_per_row)  # last: append goes by their number


def _flips(segments: int, radius: int) -> npt.NDArray[np.int64]:
    """Bits that may differ in each segment that is probed: f in the first a+1, f-1 in the others if f > 0."""
    most, ahead = divmod(radius, segments)
    flips = np.where(np.arange(segments) <= ahead, most, most - 1)
    return flips[flips >= 0]


def _masks(flips: int) -> npt.NDArray[np.uint16]:
    """Return all 16-bit differences of at most so many bits."""
    masks = np.arange(_kernel.KEYS, dtype=np.uint16)
    return masks[np.bitwise_count(masks).astype(np.int64) <= flips]


def _segment(fingerprints: Fingerprints, i: int) -> npt.NDArray[np.uint16]:
    word, place = divmod(i, _kernel.SEGMENTS_PER_WORD)
    return (fingerprints[:, word] >> np.uint64(_kernel.SEGMENT_BITS * place)).astype(np.uint16)


def _make_room(column: npt.NDArray[np.generic], rows: int) -> None:
    """Lengthen a column in place to hold at least so many rows, by a sixteenth at least.

    The C library extends a large allocation by remapping its pages (mremap on Linux): nothing is copied, and
    there are never two copies.
    """
    if rows > len(column):
        longer = max(rows, len(column) + len(column) // 16)
        column.resize((longer, *column.shape[1:]), refcheck=False)


def _check_radius(radius: int, bits: int) -> None:
    most = min(bits, LARGEST_RADIUS)
    if not 0 <= radius <= most:
        raise ValueError(f"radius must be between 0 and {most} for {bits} bits, not {radius}")


def _checked(fingerprints: Fingerprints, words: int) -> Fingerprints:
    if fingerprints.dtype != np.uint64 or fingerprints.ndim != 2 or fingerprints.shape[1] != words:
        given = f"{fingerprints.dtype} of shape {fingerprints.shape}"
        raise ValueError(f"fingerprints must be uint64 of shape (n, {words}), not {given}")
    return np.require(fingerprints, requirements=["C", "A", "W"])  # one kind of array: compiled once


def _candidates(queries: int, search: Callable[[_kernel.Found], None]) -> Candidates:
    """Search with room for a few neighbours each, and again with room for all where that was not enough."""
    if queries > QUERIES_AT_ONCE:
        raise ValueError(f"look for at most {QUERIES_AT_ONCE} fingerprints at once, not {queries}")
    found = _found(4 * queries)
    search(found)
    if found.total[0] > len(found.numbers):
        found = _found(int(found.total[0]))
        search(found)
    numbers = found.numbers[: found.total[0]]
    numbers.sort()
    offsets = np.searchsorted(numbers, np.arange(queries + 1, dtype=np.uint64) << np.uint64(40))
    distances = (numbers >> np.uint64(32)).astype(np.uint8)
    return Candidates(offsets, numbers.astype(np.uint32), distances)


def _found(room: int) -> _kernel.Found:
    return _kernel.Found(np.empty(room, np.uint64), np.zeros(1, np.int64))
