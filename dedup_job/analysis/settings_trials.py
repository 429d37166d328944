"""Which near duplicates of a sample other band shapes and thresholds would find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from dedup_job.analysis.match_conditions import segments_searched
from dedup_job.analysis.scores import Score, Share, TunedSettings, wilson
from dedup_job.analysis.similar_pairs import SimilarPairs, similar_pairs, similarities
from dedup_job.fingerprint.bands import band_keys
from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.candidate_index import FOUND, CandidateIndex
from dedup_job.native.arrays import Ragged
from dedup_job.native.compiled import compiled
from dedup_job.records import Fingerprints

# Bands and rows to try.
SHAPES = ((4, 4), (6, 4), (8, 4), (8, 5), (9, 4), (10, 4), (16, 4), (20, 4), (8, 3))
# Band radii to try, in bits of 64.
BAND_RADII = (12, 16, 20, 64)
# Values of min_similarity to try.
THRESHOLDS = (0.0, 0.7, 0.8, 0.9)
# A recall that is lower by at most this much counts as equal.
AS_GOOD = 0.002
# Other settings are worth a change if they cost at most this share of the present ones.
WORTH = 0.9

# Nanoseconds: each record without any key; adding a key and searching for it in a large index; comparing a
# cached text; reading a text again that is not cached.
RECORD_COST, KEY_COST, TEXT_COST, READ_COST = 50_000, 300, 5_000, 100_000
# Texts that the cache holds, approximately.
CACHED_TEXTS = 150_000
# Bytes of a key in memory, with its share of the map's directory.
KEY_BYTES = 7


@dataclass(frozen=True, slots=True)
class TextSample:
    """The n distinct texts of a sample that can be judged, in the order of decision.

    Attributes:
        read: Records of the sample.
        unchecked: Records that cannot be judged.
        same_text: Records with the text of an earlier record.
        bits: uint64, shape (n, words), fingerprints.
        has_fingerprint: bool, shape (n,).
        shingles: The shingle set of each text.
    """

    read: int
    unchecked: int
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
    def of(cls, prints: Fingerprints) -> TextSample:
        """Take the distinct texts of fingerprinted records."""
        judged = [row for row, reason in enumerate(prints.reasons) if not reason]
        # Backwards, so that the first row with a text overwrites the later ones.
        first_rows = {prints.digests[row].tobytes(): row for row in reversed(judged)}
        rows = sorted(first_rows.values())
        return cls(
            read=len(prints),
            unchecked=len(prints) - len(judged),
            same_text=len(judged) - len(rows),
            bits=prints.bits[rows],
            has_fingerprint=prints.has_fingerprint[rows],
            shingles=prints.shingles.take(rows),
        )

    def candidates(self, setting: TunedSettings) -> SimilarPairs:
        """Return the pairs that the index finds with some settings: they share a key and are near enough."""
        keys = band_keys(self.shingles, setting.bands, setting.rows)
        matching = Matching(setting.radius, setting.bands, setting.rows, setting.band_radius)
        index = CandidateIndex(self.width, matching)
        index.add(self.bits, self.has_fingerprint, keys)
        candidates = index.candidates(np.arange(len(self)), keys)
        left = candidates.texts.astype(np.int64)
        right = np.repeat(np.arange(len(self)), np.diff(candidates.offsets))
        ascending = np.lexsort((left, right))
        # Each pair once: a run sees only earlier texts.
        ascending = ascending[left[ascending] < right[ascending]]
        left, right = left[ascending], right[ascending]
        return SimilarPairs(
            left, right, similarities(self.shingles.offsets, self.shingles.values, left, right)
        )


@dataclass(frozen=True, slots=True)
class BandResult:
    """The candidates in a sample with one set of keys.

    Attributes:
        setting: The keys; `min_similarity` is the least similarity of near-duplicates.
        bits: Bits of a fingerprint.
        found: Near-duplicates that are candidates, as pairs of distinct texts.
        missed: Near-duplicates that are no candidates.
        wrong: Candidates that are no near-duplicates.
        texts: Distinct texts of the sample.
    """

    setting: TunedSettings
    bits: int
    found: int
    missed: int
    wrong: int
    texts: int

    @property
    def recall(self) -> Share:
        """Share of the near-duplicates that are candidates."""
        return wilson(self.found, self.found + self.missed)

    @property
    def keys(self) -> int:
        """Number of keys of a text."""
        return segments_searched(self.bits, self.setting.radius) + self.setting.bands

    @property
    def nbytes(self) -> int:
        """Bytes in memory of a text: its fingerprint and its keys."""
        return self.bits // 8 + 1 + KEY_BYTES * self.keys

    @property
    def compared(self) -> float:
        """Average number of candidates of a text."""
        return (self.found + self.wrong) / max(1, self.texts)

    @property
    def in_vain(self) -> float:
        """Average number of candidates of a text that are no near-duplicates."""
        return self.wrong / max(1, self.texts)

    def cost(self, records: int) -> float:
        """Return the cost of a record in a collection of this size, in nanoseconds.

        Comparisons in vain grow with the collection, until each key returns as many candidates as it may.
        """
        in_vain = min(self.in_vain * records / max(1, self.texts), FOUND * self.keys)
        text_cost = TEXT_COST + READ_COST * max(0.0, 1 - CACHED_TEXTS / max(1, records))
        return RECORD_COST + KEY_COST * self.keys + text_cost * in_vain

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
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
class ThresholdResult:
    """The effect of one `min_similarity` on the candidates of the present keys.

    Attributes:
        min_similarity: The threshold.
        score: Pairs of distinct texts, by whether they match.
        dropped: Distinct texts that would be dropped.
    """

    min_similarity: float
    score: Score
    dropped: int

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"min_similarity": self.min_similarity, **self.score.as_json(), "dropped": self.dropped}


def count_near_duplicates(sample: TextSample, at: float) -> int:
    """Return how many pairs of texts have a similarity of `at` or more."""
    return len(similar_pairs(sample.shingles, at))


def bands_to_try(present: TunedSettings, bits: int) -> list[TunedSettings]:
    """Return the keys to try: the present ones, no bands, and each shape of bands with each band radius."""
    settings = {
        replace(present, bands=bands, rows=rows, band_radius=limit * bits // 64)
        for bands, rows in SHAPES
        for limit in BAND_RADII
    }
    settings |= {present, replace(present, bands=0)}
    return sorted(settings, key=lambda setting: (setting.bands, setting.rows, setting.band_radius))


def try_bands(sample: TextSample, settings: Iterable[TunedSettings], pairs: int) -> Iterator[BandResult]:
    """Yield the candidates with each set of keys.

    Args:
        sample: The sample.
        settings: The keys; pairs as similar as their `min_similarity` are near-duplicates.
        pairs: Near-duplicates in the sample.
    """
    for setting in settings:
        candidates = sample.candidates(setting)
        found = int((candidates.similarity >= setting.min_similarity).sum())
        yield BandResult(
            setting, sample.width, found, pairs - found, wrong=len(candidates) - found, texts=len(sample)
        )


def try_thresholds(
    sample: TextSample, present: TunedSettings, at: float, pairs: int
) -> Iterator[ThresholdResult]:
    """Yield the effect of each `min_similarity` on the candidates of the present keys.

    Args:
        sample: The sample.
        present: The present settings.
        at: Least similarity of near-duplicates.
        pairs: Near-duplicates in the sample.
    """
    candidates = sample.candidates(present)
    for level in sorted({*THRESHOLDS, at, present.min_similarity}):
        is_matched = candidates.similarity >= level
        hits = int((is_matched & (candidates.similarity >= at)).sum())
        wrong = int(is_matched.sum()) - hits
        rejected = comb(len(sample), 2) - pairs - wrong
        dropped = _dropped(len(sample), candidates.left[is_matched], candidates.right[is_matched])
        yield ThresholdResult(level, Score(hits, wrong, pairs - hits, rejected), int(dropped.sum()))


def choose_bands(tried: Sequence[BandResult], records: int, present: TunedSettings) -> BandResult | None:
    """Return the cheapest keys whose recall is about the highest.

    Args:
        tried: Results of several sets of keys.
        records: Size of the whole collection.
        present: The present keys, which win if others save little and find no more than chance explains.

    Returns:
        The result of the suggested keys, or None if nothing was found.
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
    """Return which texts are dropped: those that match an earlier text that is kept.

    Args:
        texts: Number of texts.
        left: int64, shape (n,), the earlier text of each match.
        right: int64, shape (n,), the later text, ascending.
    """
    dropped = np.zeros(texts, np.bool_)
    for pair in range(len(left)):
        if not dropped[left[pair]]:
            dropped[right[pair]] = True
    return dropped
