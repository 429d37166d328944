"""How fingerprints are cut into keys: the exact layout that is cheapest for so many fingerprints.

Cut b bits into s segments of about b / s bits.  With radius = s*f + a (0 <= a < s), two fingerprints within
the radius differ in at most f bits in one of the first a+1 segments, or in at most f-1 bits in one of the
others: were it otherwise, they would differ in at least (a+1)*(f+1) + (s-a-1)*f = radius + 1 bits.  So each
such segment gets a map, and only buckets that near need probing (Norouzi, Punjani and Fleet, Fast Search in
Hamming Space with Multi-Index Hashing, CVPR 2012, section 3; Manku, Jain and Das Sarma, Detecting
Near-Duplicates for Web Crawling, WWW 2007, section 3).  A map's key may be the lowest bits of its segment
alone: they differ in no more bits than all.

A pair is noted by one map only: that in which the keys are nearest, the earliest of equals.  It is probed
there: some map's keys are within its flips; an earlier map has as many flips at least, a later one one
less at most, but there the keys must be nearer.  So in a bucket that is d flips away, the keys of all other
maps differ in d bits at least.  What that leaves of the radius rejects most candidates.

Few wide segments mean many probes of small buckets, many narrow ones few probes of large buckets.  What is
cheapest depends on the number of fingerprints, so the layout is chosen anew as they grow.

It depends on what they are like, too.  Frequent words vote alike in all texts, so the fingerprints of texts
crowd in few buckets.  Therefore the cost of maps is reckoned from pairs of those that are there (`Likeness`)
before they are preferred to none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb

from llvmlite import binding

from dedup_job.match.cut import SKETCH_BITS, WORD_BITS, Cut
from dedup_job.match.likeness import RANDOM, Likeness, share_within

# Measured, in nanoseconds; docs/index.md says how.
SCAN_COSTS = {
    "avx512vpopcntdq": 0.04,
    "avx2": 0.18,
}  # comparing one word in a scan, by what the processor has
SLOW_SCAN_COST = 0.35
MOST_PASSED = 0.003  # of random pairs that a scan may take for near ones when they are folded
PROBE_COST = 35.0  # looking into a bucket
ENTRY_COST = 0.7  # passing an entry in it
CONFIRM_COST = 40.0  # comparing a candidate in full
JOIN_MAP_COST = 12.0  # inside a batch, where all is in the cache: a map
JOIN_PROBE_COST = 3.0  # and a probe
SEGMENT_BITS = 16  # at least, on average: each map takes 8 bytes a fingerprint
WIDTHS = range(10, 25)  # of keys
MOST_PROBES = 5_000
KEY_BYTES = 8  # what the directories of a map hold for each key
DIRECTORY_BYTES = 3  # a fingerprint, for all directories together, at most
SMALL_DIRECTORIES = 4 << 20  # bytes, at any number of fingerprints


@dataclass(frozen=True, slots=True)
class Layout:
    """The maps of an index; without any, all fingerprints are compared."""

    bits: int
    radius: int
    cuts: tuple[Cut, ...] = ()

    def __str__(self) -> str:
        if not self.cuts:
            return "all compared"
        widths = "+".join(str(cut.width) for cut in self.cuts)
        return f"{len(self.cuts)} maps of {widths} bits, {self.probes} probes"

    @property
    def probes(self) -> int:
        """Buckets that are looked into for one query."""
        return sum(comb(cut.width, flips) for cut, flips, _ in _steps(self))

    @property
    def directory_bytes(self) -> int:
        """Bytes that the maps take when they are empty."""
        return sum(KEY_BYTES << cut.width for cut in self.cuts)

    def cost(self, count: int, likeness: Likeness = RANDOM) -> float:
        """Return the nanoseconds that a query among so many fingerprints takes, about."""
        if not self.cuts:
            return scan_cost() * count * folded_words(self.bits, self.radius)
        met = [likeness.met(*step) for step in _steps(self)]
        entries, candidates = sum(one.entered for one in met), sum(one.passed for one in met)
        return self.probes * PROBE_COST + count * (entries * ENTRY_COST + candidates * CONFIRM_COST)

    def limit(self, i: int, flips: int) -> int:
        """Return by how many bits at most the sketch of a pair differs that map i notes at so many flips.

        The sketch is the 32 bits behind the key.  Keys that have none of these bits take their share of the
        radius: `flips` bits each, one more in earlier maps.  Less than 0 where no pair is noted.
        """
        first = self.cuts[i].first + self.cuts[i].width
        left = self.radius - flips
        for other, cut in enumerate(self.cuts):
            inside = cut.overlaps(first, first + SKETCH_BITS)
            if other != i and not inside and not cut.overlaps(0, first + SKETCH_BITS - self.bits):
                left -= flips + (other < i)
        return left


@cache
def _steps(layout: Layout) -> tuple[tuple[Cut, int, int], ...]:
    """Return for each map and number of flips that is probed: the cut, the flips, the sketch's limit."""
    return tuple(
        (cut, flips, limit)
        for i, cut in enumerate(layout.cuts)
        for flips in range(cut.flips + 1)
        if (limit := layout.limit(i, flips)) >= 0
    )


@cache
def folded_words(bits: int, radius: int) -> int:
    """Return to how many words a scan folds fingerprints: as few as still reject most that are not near.

    >>> folded_words(64, 3), folded_words(128, 19), folded_words(128, 30), folded_words(256, 38)
    (1, 1, 2, 2)
    """
    words = bits // WORD_BITS
    return next(
        (few for few in range(1, words) if share_within(few * WORD_BITS, radius) < MOST_PASSED), words
    )


@cache
def scan_cost() -> float:
    """Return the nanoseconds that comparing a word takes on this processor."""
    features = binding.get_host_cpu_features()
    return next((cost for name, cost in SCAN_COSTS.items() if features.get(name)), SLOW_SCAN_COST)


def cheapest(bits: int, radius: int, count: int, likeness: Likeness = RANDOM) -> Layout:
    """Return the layout that costs least for so many fingerprints, within the bound of memory.

    Which maps are best is reckoned for random ones, and whether they are better than none for those at hand.
    """
    most = max(SMALL_DIRECTORIES, DIRECTORY_BYTES * count)
    fitting = [layout for layout in layouts(bits, radius) if layout.directory_bytes <= most]
    scanned = Layout(bits, radius)
    mapped = min([scanned, *fitting], key=lambda layout: layout.cost(count))
    return mapped if mapped.cost(count, likeness) < scanned.cost(count) else scanned


def cheapest_inside(bits: int, radius: int, count: int) -> Layout:
    """Return the layout that finds all pairs inside a batch of so many fingerprints at least cost."""
    width = min(SEGMENT_BITS, count.bit_length() + 4)  # most buckets are empty, and all fit the cache
    scanned, joined = Layout(bits, radius), cut(bits, radius, bits // SEGMENT_BITS, width)
    cost = len(joined.cuts) * JOIN_MAP_COST + joined.probes * JOIN_PROBE_COST
    return joined if cost < scanned.cost(count) / 2 else scanned


@cache
def layouts(bits: int, radius: int) -> tuple[Layout, ...]:
    """Return every layout with maps that is exact for this radius and probes in reason."""
    return tuple(
        layout
        for segments in range(1, bits // SEGMENT_BITS + 1)
        for width in WIDTHS
        if (layout := cut(bits, radius, segments, width)).probes <= MOST_PROBES
    )


@cache
def cut(bits: int, radius: int, segments: int, width: int) -> Layout:
    """Cut into so many segments, those that are probed least the longest, with keys of at most `width` bits.

    >>> str(cut(64, 3, 4, 16)), str(cut(64, 7, 4, 16))
    ('4 maps of 16+16+16+16 bits, 4 probes', '4 maps of 16+16+16+16 bits, 68 probes')
    >>> cut(64, 3, 3, 24).cuts
    (Cut(first=0, width=21, flips=1), Cut(first=21, width=21, flips=0), Cut(first=42, width=22, flips=0))
    """
    most, ahead = divmod(radius, segments)
    length, longer = divmod(bits, segments)
    cuts, first = [], 0
    for i in range(segments):
        own = length + (i >= segments - longer)
        flips = most if i <= ahead else most - 1
        if flips >= 0:
            cuts.append(Cut(first, min(own, width), min(flips, own, width)))
        first += own
    return Layout(bits, radius, tuple(cuts))
