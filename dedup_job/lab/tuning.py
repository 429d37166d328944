"""Tuning: what bands of several shapes would find among the near-duplicates of a sample.

The sample is the beginning of the source in `_id` order.  Two copies are both in a random sample of a share p
only p times p of the time, so a random sample of a large collection holds next to none; and a stretch from
the middle holds copies without what they were copied from.  The beginning holds for every copy in it the
earlier record too, wherever `_id` grows with time, and is what a backfill decides first.

Which pairs are near-duplicates is found without keys, so recall is measured, not assumed: all pairs of
different texts whose shingle sets are similar enough.  What the keys find is found by the index itself.
Identical texts are found by any settings, and are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from dedup_job.document import Fingerprints
from dedup_job.fingerprint.bands import band_keys
from dedup_job.fingerprint.recipe import Matching
from dedup_job.lab.all_pairs import Pairs, similar_pairs, similarities
from dedup_job.lab.rules import segments_searched
from dedup_job.lab.scoring import Score, Setting, Share, wilson
from dedup_job.match.index import FOUND, Index
from dedup_job.native.compiled import compiled
from dedup_job.native.ragged import Ragged

SHAPES = ((4, 4), (6, 4), (8, 4), (8, 5), (9, 4), (10, 4), (16, 4), (20, 4), (8, 3))  # bands, rows
LIMITS = (12, 16, 20, 64)  # of the distance, in bits of 64
LEVELS = (0.0, 0.7, 0.8, 0.9)  # of min_similarity
AS_GOOD = 0.002  # a recall that is lower by this much at most is as good
WORTH = 0.9  # other settings that cost more than this share of the present ones are not worth a change

# Nanoseconds: what a record takes anyway; to enter a key and look for it among many; to compare a text that
# is at hand; to read it again where it is not.
RECORD_COST, KEY_COST, TEXT_COST, READ_COST = 50_000, 300, 5_000, 100_000
AT_HAND = 150_000  # texts, about
KEY_BYTES = 7  # in memory, the directory of its map included


@dataclass(frozen=True, slots=True)
class Sample:
    """The n different texts of a sample that can be judged, in the order of decision.

    read       records looked at
    unjudged   those of them that cannot be judged
    same_text  those with the text of an earlier one
    bits       uint64 (n, words), their fingerprints
    near       bool (n,), whether the text has one
    shingles   the shingle set of each text
    """

    read: int
    unjudged: int
    same_text: int
    bits: npt.NDArray[np.uint64]
    has_fingerprint: npt.NDArray[np.bool_]
    shingles: Ragged

    def __len__(self) -> int:
        return len(self.has_fingerprint)

    @property
    def width(self) -> int:
        """Bits of a fingerprint."""
        return 64 * int(self.bits.shape[1])

    @classmethod
    def of(cls, prints: Fingerprints) -> Sample:
        """Take records as fingerprinted."""
        judged = [row for row, reason in enumerate(prints.reasons) if not reason]
        first = {prints.digests[row].tobytes(): row for row in reversed(judged)}
        rows = sorted(first.values())
        return cls(
            read=len(prints),
            unjudged=len(prints) - len(judged),
            same_text=len(judged) - len(rows),
            bits=prints.bits[rows],
            has_fingerprint=prints.has_fingerprint[rows],
            shingles=prints.shingles.take(rows),
        )

    def candidates(self, setting: Setting) -> Pairs:
        """Return the pairs that share a key and are near enough, as the index finds them."""
        keys = band_keys(self.shingles, setting.bands, setting.rows)
        found_by = Matching(setting.radius, setting.bands, setting.rows, setting.band_radius)
        index = Index(self.width, found_by)
        index.add(self.bits, self.has_fingerprint, keys)
        found = index.candidates(np.arange(len(self)), keys)
        left, right = found.texts.astype(np.int64), np.repeat(np.arange(len(self)), np.diff(found.offsets))
        ascending = np.lexsort((left, right))
        ascending = ascending[left[ascending] < right[ascending]]  # what came before alone
        left, right = left[ascending], right[ascending]
        return Pairs(left, right, similarities(self.shingles.offsets, self.shingles.values, left, right))


@dataclass(frozen=True, slots=True)
class Row:
    """What one set of keys finds in a sample.

    setting  the keys; `min_similarity` is the similarity of near-duplicates
    bits     of a fingerprint
    found    near-duplicates that are candidates, as pairs of different texts
    missed   those that are not
    wrong    candidates that are no near-duplicates
    texts    of the sample
    """

    setting: Setting
    bits: int
    found: int
    missed: int
    wrong: int
    texts: int

    @property
    def recall(self) -> Share:
        """Of the near-duplicates, those that are candidates."""
        return wilson(self.found, self.found + self.missed)

    @property
    def keys(self) -> int:
        """Keys of a text."""
        return segments_searched(self.bits, self.setting.radius) + self.setting.bands

    @property
    def nbytes(self) -> int:
        """Bytes of memory for a text: its fingerprint and its keys."""
        return self.bits // 8 + 1 + KEY_BYTES * self.keys

    @property
    def compared(self) -> float:
        """Candidates of a text, on average."""
        return (self.found + self.wrong) / max(1, self.texts)

    @property
    def in_vain(self) -> float:
        """Those of them that are no near-duplicates."""
        return self.wrong / max(1, self.texts)

    def cost(self, records: int) -> float:
        """Return what a record costs among so many, in nanoseconds.

        What is compared in vain grows with the collection, until no key finds more.
        """
        in_vain = min(self.in_vain * records / max(1, self.texts), FOUND * self.keys)
        text_cost = TEXT_COST + READ_COST * max(0.0, 1 - AT_HAND / max(1, records))
        return RECORD_COST + KEY_COST * self.keys + text_cost * in_vain

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "settings": asdict(self.setting),
            "found": self.found,
            "missed": self.missed,
            "recall": self.recall.as_json(),
            "compared": round(self.compared, 4),
            "in_vain": round(self.in_vain, 4),
            "bytes": self.nbytes,
        }


@dataclass(frozen=True, slots=True)
class Level:
    """What one `min_similarity` makes of the candidates of the present keys.

    score    pairs of different texts, matched or not
    dropped  different texts that would be dropped
    """

    min_similarity: float
    score: Score
    dropped: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"min_similarity": self.min_similarity, **self.score.as_json(), "dropped": self.dropped}


def near_duplicates(sample: Sample, at: float) -> int:
    """Return how many pairs of texts have similarity `at` or more."""
    return len(similar_pairs(sample.shingles, at))


def grid(present: Setting, bits: int) -> list[Setting]:
    """Return the keys to try: the present ones, no bands, and each shape of bands with each limit."""
    tried = {
        replace(present, bands=bands, rows=rows, band_radius=limit * bits // 64)
        for bands, rows in SHAPES
        for limit in LIMITS
    }
    tried |= {present, replace(present, bands=0)}
    return sorted(tried, key=lambda one: (one.bands, one.rows, one.band_radius))


def rows(sample: Sample, settings: Iterable[Setting], pairs: int) -> Iterator[Row]:
    """Yield what each set of keys finds; a pair as similar as its `min_similarity` is one of `pairs`."""
    for setting in settings:
        candidates = sample.candidates(setting)
        found = int((candidates.similarity >= setting.min_similarity).sum())
        yield Row(
            setting, sample.width, found, pairs - found, wrong=len(candidates) - found, texts=len(sample)
        )


def levels(sample: Sample, present: Setting, at: float, pairs: int) -> Iterator[Level]:
    """Yield what each `min_similarity` makes of what the present keys find."""
    candidates = sample.candidates(present)
    for level in sorted({*LEVELS, at, present.min_similarity}):
        is_matched = candidates.similarity >= level
        hits = int((is_matched & (candidates.similarity >= at)).sum())
        wrong = int(is_matched.sum()) - hits
        rejected = comb(len(sample), 2) - pairs - wrong
        dropped = _dropped(len(sample), candidates.left[is_matched], candidates.right[is_matched])
        yield Level(level, Score(hits, wrong, pairs - hits, rejected), int(dropped.sum()))


def best(tried: Sequence[Row], records: int, present: Setting) -> Row | None:
    """Return the keys to take: the cheapest of those that find as much as the most; None without pairs.

    records  size of the whole collection
    present  taken where others save little, and find no more than may be chance
    """
    most = max(tried, key=lambda row: row.found, default=None)
    if most is None or not most.found:
        return None
    highest, low = most.recall.value or 0.0, most.recall.low or 0.0
    good = [row for row in tried if (row.recall.value or 0.0) >= highest - AS_GOOD]
    cheapest = min(good, key=lambda row: (row.cost(records), row.nbytes))
    now = next((row for row in tried if row.setting == present), cheapest)
    is_enough = (now.recall.value or 0.0) >= low and now.cost(records) * WORTH <= cheapest.cost(records)
    return now if is_enough else cheapest


@compiled
def _dropped(texts: int, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which texts are dropped: those that match an earlier one which is not; pairs ascend by right."""
    dropped = np.zeros(texts, np.bool_)
    for pair in range(len(left)):
        if not dropped[left[pair]]:
            dropped[right[pair]] = True
    return dropped
