"""Tuning: what a grid of settings would find among the near-duplicates of a sample.

The sample is the beginning of the source in `_id` order.  Two copies are both in a random sample of a share p
only p times p of the time, so a random sample of a large collection holds next to none; and a stretch from
the middle holds copies without what they were copied from.  The beginning holds for every copy in it the
earlier record too, wherever `_id` grows with time, and is what a backfill decides first.

Which pairs are near-duplicates is found without fingerprints, so recall is measured, not assumed: all pairs
of distinct texts whose shingle sets are similar enough.  Identical texts are found by any settings, and are
counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from dedup_job.compiled import compiled
from dedup_job.document import Fingerprints
from dedup_job.fingerprint.simhash import hamming
from dedup_job.match.allpairs import Pairs, similar_pairs, similarities
from dedup_job.match.index import pairs_within
from dedup_job.match.layout import cheapest
from dedup_job.match.minhash import banded_pairs
from dedup_job.ragged import Ragged
from dedup_job.report.scoring import Score, Setting

RADII = {64: (3, 7, 8, 10), 128: (15, 19, 23)}
LEVELS = (0.0, 0.7, 0.8, 0.9)  # of min_similarity
FAR = 1 << 16  # a distance beyond every radius
AS_GOOD = 0.01  # an F1 that is lower by this much at most is as good

SEGMENT_BITS = 16
# Nanoseconds: a keeper's text that is read again and compared takes about 0.1 ms.
TEXT_COST = 100_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The n distinct texts of a sample that can be judged, in the order of decision.

    read       records looked at
    unjudged     those of them that cannot be judged
    same_text  those with the text of an earlier one
    bits       by width: uint64 (n, width / 64)
    near       bool (n,), whether the text has enough terms to be found by its fingerprint
    short      bool (n,), whether it has so few shingles that it is found by them
    shingles   the shingle set of each text
    """

    read: int
    unjudged: int
    same_text: int
    bits: Mapping[int, npt.NDArray[np.uint64]]
    near: npt.NDArray[np.bool_]
    short: npt.NDArray[np.bool_]
    shingles: Ragged

    def __len__(self) -> int:
        return len(self.near)

    @classmethod
    def of(cls, prints: Fingerprints, bits: Mapping[int, npt.NDArray[np.uint64]], short_text: int) -> Sample:
        """Take records as fingerprinted, with their fingerprints by width; `short_text` as in Matching."""
        judged = [row for row, reason in enumerate(prints.reasons) if not reason]
        first = {prints.digests[row].tobytes(): row for row in reversed(judged)}
        rows = sorted(first.values())
        shingles = prints.shingles.take(rows)
        return cls(
            read=len(prints),
            unjudged=len(prints) - len(judged),
            same_text=len(judged) - len(rows),
            bits={width: column[rows] for width, column in bits.items()},
            near=prints.near[rows],
            short=np.diff(shingles.offsets) <= short_text,
            shingles=shingles,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """What one way to find near-duplicates does on the sample.

    setting     the settings; None for the yardstick, which is no choice here
    name        what the row is called
    score       pairs of distinct texts, found or not
    probes      buckets that are looked into for a document
    candidates  fingerprints met there, on average, each once
    near        candidates within the radius, on average: those whose texts are compared
    wrong       those of them that are no near-duplicates
    dropped     distinct texts that would be dropped
    """

    setting: Setting | None
    name: str
    min_similarity: float
    score: Score
    probes: int
    candidates: float
    near: float
    wrong: float
    dropped: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "name": self.name,
            "settings": asdict(self.setting) if self.setting else None,
            "min_similarity": self.min_similarity,
            **self.score.as_json(),
            "probes": self.probes,
            "candidates": round(self.candidates, 3),
            "near": round(self.near, 3),
            "wrong": round(self.wrong, 3),
            "dropped": self.dropped,
        }


@dataclass(frozen=True, slots=True)
class _Sifted:
    """The pairs that a sieve may let through.

    distance     int64 (n,), in bits; FAR where a fingerprint is missing or the sieve does not see the pair
    by_shingles  bool (n,), whether both texts are short enough to be found by their shingles
    """

    pairs: Pairs
    distance: npt.NDArray[np.int64]
    by_shingles: npt.NDArray[np.bool_]

    def found(self, radius: int, min_similarity: float) -> npt.NDArray[np.bool_]:
        """Return which of the pairs would match."""
        sieved = self.distance <= radius
        if min_similarity:  # texts are looked up by shingles only where texts are compared
            sieved = sieved | self.by_shingles
        return sieved & (self.pairs.similarity >= min_similarity)


def grid(present: Setting) -> list[Setting]:
    """Return the settings to try, the present ones among them."""
    tried = {Setting(bits, radius, level) for bits in RADII for radius in RADII[bits] for level in LEVELS}
    return sorted(tried | {present}, key=lambda one: (one.bits, one.radius, one.min_similarity))


def rows(sample: Sample, settings: Iterable[Setting], at: float) -> Iterator[Row]:
    """Yield what each of the settings does; a pair with Jaccard similarity `at` or more is a near-duplicate.

    One thing is left out: in a run a shingle finds the first 64 short keepers alone.
    """
    settings = list(settings)
    alike = _alike(sample, [at, *(one.min_similarity for one in settings)])
    true = int((alike.similarity >= at).sum())
    size = max(1, len(sample))
    for bits in sorted({one.bits for one in settings}):
        mine = [one for one in settings if one.bits == bits]
        radii = sorted({one.radius for one in mine})
        sifted = _sifted(sample, bits, radii[-1], alike)
        met = bucket_mates(sample.bits[bits][sample.near], radii)
        for one in mine:
            within = sifted.distance <= one.radius
            found = sifted.found(one.radius, one.min_similarity)
            yield Row(
                setting=one,
                name="simhash",
                min_similarity=one.min_similarity,
                score=_score(sample, sifted.pairs.similarity[found] >= at, true),
                probes=probes(bits, one.radius),
                candidates=met[one.radius] / size,
                near=int(within.sum()) / size,
                wrong=int((within & (sifted.pairs.similarity < at)).sum()) / size,
                dropped=_dropped(sample, sifted.pairs, found),
            )


def yardstick(sample: Sample, at: float) -> list[Row]:
    """Return what MinHash does, 128 permutations banded for threshold 0.8; ImportError without datasketch.

    A band is a bucket, and all candidates are compared.
    """
    pairs, bands = banded_pairs(sample.shingles)
    true = int((_alike(sample, [at]).similarity >= at).sum())
    size = max(1, len(sample))
    return [
        Row(
            setting=None,
            name="minhash",
            min_similarity=level,
            score=_score(sample, pairs.similarity[pairs.similarity >= level] >= at, true),
            probes=bands,
            candidates=len(pairs) / size,
            near=len(pairs) / size,
            wrong=int((pairs.similarity < at).sum()) / size,
            dropped=_dropped(sample, pairs, pairs.similarity >= level),
        )
        for level in LEVELS
    ]


def probes(bits: int, radius: int) -> int:
    """Return how many buckets are looked into for one fingerprint.

    >>> probes(64, 3), probes(64, 7), probes(128, 19)
    (4, 68, 616)
    """
    return sum(comb(SEGMENT_BITS, k) for flips in reach(bits, radius) for k in range(int(flips) + 1))


def reach(bits: int, radius: int) -> npt.NDArray[np.int64]:
    """Return by how many bits each 16-bit segment may differ and still be probed, -1 where none is.

    As SegmentIndex has it: with radius = s f + a, f bits in the first a + 1 segments and f - 1 in the others.

    >>> reach(64, 3).tolist(), reach(64, 8).tolist()
    ([0, 0, 0, 0], [2, 1, 1, 1])
    """
    segments = bits // SEGMENT_BITS
    most, ahead = divmod(radius, segments)
    return np.where(np.arange(segments) <= ahead, most, most - 1)


def bucket_mates(bits: npt.NDArray[np.uint64], radii: Sequence[int]) -> dict[int, int]:
    """Return for each radius how many pairs of fingerprints, uint64 (n, words), meet in a probed bucket."""
    segments = np.ascontiguousarray(bits.astype("<u8").view("<u2").T)
    flips = {radius: reach(len(segments) * SEGMENT_BITS, radius).astype(np.int8)[:, None] for radius in radii}
    met = dict.fromkeys(radii, 0)
    for row in range(1, len(bits)):
        apart = np.bitwise_count(segments[:, :row] ^ segments[:, row : row + 1]).astype(np.int8)
        for radius in radii:
            met[radius] += int((apart <= flips[radius]).any(axis=0).sum())
    return met


def work(row: Row, records: int, texts: int) -> float:
    """Return what a document costs among so many records, in nanoseconds.

    A look-up costs what SegmentIndex reckons.  A wrong candidate within the radius costs a text that is read
    again; the sample of `texts` texts has few of them, and their number grows with the collection.
    """
    assert row.setting
    layout = cheapest(row.setting.bits, row.setting.radius, records)
    return layout.cost(records) + row.wrong * records / max(1, texts) * TEXT_COST


def best(tried: Sequence[Row], records: int, texts: int, present: Setting) -> Setting | None:
    """Return the settings that cost least of those whose F1 is as good as the highest; None without pairs.

    records  size of the whole collection
    texts    size of the sample
    present  wins a tie; then the better F1 does
    """
    scored = [(row, row.setting, row.score.f1.value or 0.0) for row in tried if row.setting]
    top = max((f1 for *_, f1 in scored), default=0.0)
    good = [one for one in scored if top and one[2] >= top - AS_GOOD]
    return (
        min(good, key=lambda one: (work(one[0], records, texts), one[1] != present, -one[2]))[1]
        if good
        else None
    )


def _alike(sample: Sample, levels: Iterable[float]) -> Pairs:
    """Return all pairs that are as similar as the lowest of the levels, 0 left out."""
    return similar_pairs(sample.shingles, min(level for level in levels if level))


def _sifted(sample: Sample, bits: int, radius: int, alike: Pairs) -> _Sifted:
    """Return the pairs within the radius, and short ones that are alike, with all that decides."""
    texts = len(sample)
    rows = np.flatnonzero(sample.near)
    inside = pairs_within(sample.bits[bits][rows], radius)
    later = np.repeat(rows, np.diff(inside.offsets))
    short = sample.short[alike.left] & sample.short[alike.right]
    keys = np.union1d(later * texts + rows[inside.positions], alike.right[short] * texts + alike.left[short])
    right, left = np.divmod(keys, max(1, texts))
    jaccard = similarities(sample.shingles.offsets, sample.shingles.values, left, right)
    prints = sample.bits[bits]
    distance = np.where(sample.near[left] & sample.near[right], hamming(prints[left], prints[right]), FAR)
    return _Sifted(Pairs(left, right, jaccard), distance, sample.short[left] & sample.short[right])


def _score(sample: Sample, hits: npt.NDArray[np.bool_], true: int) -> Score:
    """Count the pairs that were found, `hits` telling which of them are near-duplicates, and all others."""
    right, wrong = int(hits.sum()), int((~hits).sum())
    return Score(right, wrong, true - right, comb(len(sample), 2) - true - wrong)


def _dropped(sample: Sample, pairs: Pairs, found: npt.NDArray[np.bool_]) -> int:
    return int(_keep_first(len(sample), pairs.left[found], pairs.right[found]).sum())


@compiled("bool_[::1](int64, int64[::1], int64[::1])")
def _keep_first(
    texts: int, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which texts are dropped: those that match an earlier one which is not; pairs ascend by right."""
    dropped = np.zeros(texts, np.bool_)
    for pair in range(len(left)):
        if not dropped[left[pair]]:
            dropped[right[pair]] = True
    return dropped
