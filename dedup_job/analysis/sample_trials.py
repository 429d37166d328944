"""Count which near duplicates of a sample the present settings find, and which other settings would find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from dedup_job.analysis.forecast import index_bytes
from dedup_job.analysis.match_conditions import segments_searched
from dedup_job.analysis.scores import Score, Share, tuned_json, tuned_toml, wilson
from dedup_job.fingerprint.minhash_bands import band_keys
from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.candidate_index import CandidateIndex
from dedup_job.index.shingle_similarity import ShingleSets, similarities_at_least, similarity_at_least
from dedup_job.native.arrays import Ragged
from dedup_job.native.numba_compile import compiled
from dedup_job.recipe_from_settings import PROFILES
from dedup_job.records import Fingerprints

# Bands and rows to try.
SHAPES = ((4, 4), (6, 4), (8, 4), (8, 5), (9, 4), (10, 4), (16, 4), (20, 4), (8, 3))
# Band radii to try, in bits of 64.
BAND_RADII = (12, 16, 20, 64)
# Values of min_similarity to try.
THRESHOLDS = (0.0, 0.7, 0.8, 0.9)
# A recall that is lower by at most this much counts as equal.
AS_GOOD = 0.002
# With fewer pairs than this nothing is suggested.
FEW_PAIRS = 30
MOST_RECORDS = 20_000
# Subtracted from bounds, so that a product like 0.7 * 10 that comes out too large excludes no pair.
ROUNDING = 1e-9


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

    def count_near_duplicates(self, at: float) -> int:
        """Return how many pairs of texts have a similarity of `at` or more, by comparing all pairs."""
        if not 0 < at <= 1:
            raise ValueError(f"at must be greater than 0 and at most 1, not {at}")
        return int(_count_pairs(self.shingles.offsets, self.shingles.values, at))

    def candidates(self, setting: Matching) -> CandidatePairs:
        """Return the pairs that the index finds with some settings: they share a key and are near enough."""
        keys = band_keys(self.shingles, setting.bands, setting.rows)
        index = CandidateIndex(self.width, setting)
        index.add(self.bits, self.has_fingerprint, keys)
        candidates = index.candidates(np.arange(len(self)), keys)
        left = candidates.texts
        right = np.repeat(np.arange(len(self)), np.diff(candidates.offsets))
        ascending = np.lexsort((left, right))
        # Each pair once: a run sees only earlier texts.
        ascending = ascending[left[ascending] < right[ascending]]
        left, right = left[ascending], right[ascending]
        sets = ShingleSets(self.shingles.offsets, self.shingles.values)
        return CandidatePairs(left, right, similarities_at_least(sets, left, sets, right, 0.0))


@dataclass(frozen=True, slots=True)
class CandidatePairs:
    """Pairs of texts, `left` before `right`, in ascending order of right and then left.

    Attributes:
        left: int64, shape (n,).
        right: int64, shape (n,).
        similarity: float64, shape (n,), Jaccard similarity of their shingle sets.
    """

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True, slots=True)
class BandResult:
    """The candidates in a sample with one set of keys.

    Attributes:
        setting: The keys; `min_similarity` is the least similarity of near duplicates.
        bits: Bits of a fingerprint.
        found: Near duplicates that are candidates, as pairs of distinct texts.
        missed: Near duplicates that are no candidates.
        wrong: Candidates that are no near duplicates.
        texts: Distinct texts of the sample.
    """

    setting: Matching
    bits: int
    found: int
    missed: int
    wrong: int
    texts: int

    @property
    def recall(self) -> Share:
        """Share of the near duplicates that are candidates."""
        return wilson(self.found, self.found + self.missed)

    @property
    def nbytes(self) -> int:
        """Bytes in memory of a text: its fingerprint and its keys."""
        return index_bytes(self.bits, self.setting)

    @property
    def compared(self) -> float:
        """Average number of candidates of a text."""
        return (self.found + self.wrong) / max(1, self.texts)

    @property
    def in_vain(self) -> float:
        """Average number of candidates of a text that are no near duplicates."""
        return self.wrong / max(1, self.texts)

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "settings": tuned_json(self.setting),
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


def bands_to_try(present: Matching, bits: int) -> list[Matching]:
    """Return the keys to try: the present ones, each profile's, and each shape with each band radius."""
    settings = {
        replace(present, bands=bands, rows=rows, band_radius=limit * bits // 64)
        for bands, rows in SHAPES
        for limit in BAND_RADII
    }
    settings |= set(_present_and_profiles(present, bits).values())
    return sorted(settings, key=lambda setting: (setting.bands, setting.rows, setting.band_radius))


def _present_and_profiles(present: Matching, bits: int) -> dict[str, Matching]:
    """Return the present keys, and each profile's, by name."""
    named = {"present": present}
    for name, profile in PROFILES.items():
        bands, rows, limit = profile.matching.bands, profile.matching.rows, profile.matching.band_radius
        named[name] = replace(present, bands=bands, rows=rows, band_radius=limit * bits // 64)
    return named


def try_bands(sample: TextSample, settings: Iterable[Matching], pairs: int) -> Iterator[BandResult]:
    """Yield the candidates with each set of keys.

    Args:
        sample: The sample.
        settings: The keys; pairs as similar as their `min_similarity` are near duplicates.
        pairs: Near duplicates in the sample.
    """
    for setting in settings:
        candidates = sample.candidates(setting)
        found = int((candidates.similarity >= setting.min_similarity).sum())
        yield BandResult(
            setting, sample.width, found, pairs - found, wrong=len(candidates) - found, texts=len(sample)
        )


def try_thresholds(sample: TextSample, present: Matching, at: float, pairs: int) -> Iterator[ThresholdResult]:
    """Yield the effect of each `min_similarity` on the candidates of the present keys.

    Args:
        sample: The sample.
        present: The present settings.
        at: Least similarity of near duplicates.
        pairs: Near duplicates in the sample.
    """
    candidates = sample.candidates(present)
    for level in sorted({*THRESHOLDS, at, present.min_similarity}):
        is_matched = candidates.similarity >= level
        hits = int((is_matched & (candidates.similarity >= at)).sum())
        wrong = int(is_matched.sum()) - hits
        rejected = comb(len(sample), 2) - pairs - wrong
        dropped = _dropped(len(sample), candidates.left[is_matched], candidates.right[is_matched])
        yield ThresholdResult(level, Score(hits, wrong, pairs - hits, rejected), int(dropped.sum()))


@dataclass(frozen=True, slots=True)
class TunedSample:
    """A sample, and the duplicates that the tried settings find in it.

    Attributes:
        source: Name of the collection.
        sample: The sample.
        stretches: Stretches of consecutive records that the sample consists of.
        at: Least similarity of near duplicates.
        present: The present settings.
        count: Estimated number of records in the whole collection.
        pairs: Near duplicates in the sample, as pairs of distinct texts.
        rows: Results of several shapes of bands.
        levels: Results of several values of `min_similarity`.
    """

    source: str
    sample: TextSample
    stretches: int
    at: float
    present: Matching
    count: int
    pairs: int
    rows: Sequence[BandResult]
    levels: Sequence[ThresholdResult]

    @classmethod
    def of(
        cls, source: str, sample: TextSample, stretches: int, at: float, present: Matching, count: int
    ) -> TunedSample:
        """Try all settings on a sample."""
        pairs = sample.count_near_duplicates(at)
        tried = bands_to_try(replace(present, min_similarity=at), sample.width)
        rows = list(try_bands(sample, tried, pairs))
        levels = list(try_thresholds(sample, present, at, pairs))
        return cls(source, sample, stretches, at, present, count, pairs, rows, levels)

    @property
    def best(self) -> BandResult | None:
        """The suggested keys, or None if the sample has too few near duplicates.

        The present keys, unless others find more than chance explains; then the keys of a profile, by the
        same rule; then the smallest whose recall is about the highest, and of these the ones with fewest
        comparisons.
        """
        most = max(self.rows, key=lambda row: row.found, default=None)
        if most is None or not most.found or self.pairs < FEW_PAIRS:
            return None
        rows = {row.setting: row for row in self.rows}
        for setting in self._named_settings().values():
            row = rows.get(setting)
            if row and (row.recall.value or 0.0) >= (most.recall.low or 0.0):
                return row
        least = (most.recall.value or 0.0) - AS_GOOD
        good = [row for row in self.rows if (row.recall.value or 0.0) >= least]
        return min(good, key=lambda row: (row.nbytes, row.wrong))

    @property
    def named_rows(self) -> dict[str, BandResult]:
        """The rows for people, by name: the present keys, each profile's, and the suggested ones."""
        named = self._named_settings()
        if self.best:
            named["suggested"] = self.best.setting
        names: dict[Matching, list[str]] = {}
        for name, setting in named.items():
            names.setdefault(setting, []).append(name)
        rows = {row.setting: row for row in self.rows}
        return {", ".join(some): rows[setting] for setting, some in names.items()}

    def _named_settings(self) -> dict[str, Matching]:
        return _present_and_profiles(replace(self.present, min_similarity=self.at), self.sample.width)

    def as_json(self) -> dict[str, Any]:
        """Return all results as one JSON object."""
        return {
            "source": self.source,
            "read": self.sample.read,
            "stretches": self.stretches,
            "texts": len(self.sample),
            "same_text": self.sample.same_text,
            "unchecked": self.sample.unchecked,
            "at": self.at,
            "pairs": self.pairs,
            "present": tuned_json(self.present),
            "best": tuned_json(self.best.setting) if self.best else None,
            "rows": [row.as_json() for row in self.rows],
            "levels": [level.as_json() for level in self.levels],
        }

    def as_text(self) -> str:
        """Return the results that matter, and the suggested settings, as text."""
        sample, radius = self.sample, self.present.radius
        segments = segments_searched(sample.width, radius)
        found_by = f"{segments} segments find" if segments else "a comparison with every text finds"
        stretches = "1 stretch" if self.stretches == 1 else f"{self.stretches} stretches"
        return "\n".join(
            [
                *self._warning(),
                f"tune: {sample.read:,} records of {self.source}, in {stretches}: {len(sample):,} different "
                f"texts, {sample.same_text:,} exact copies, {sample.unchecked:,} unchecked",
                f"  {self.pairs:,} pairs of near duplicates: similarity {self.at:g} or more",
                "",
                f"  {'keys':27}  bands  rows  band_radius  recall  compared  in vain  bytes",
                *(_band_line(name, row) for name, row in self.named_rows.items()),
                "",
                "  recall: the share of the pairs that are found. For each text: comparisons with other",
                "  texts; those in vain; bytes in memory of its fingerprint and keys. --json has more bands.",
                f"  In addition to the bands, {found_by} all fingerprints within radius {radius}.",
                "",
                "  min_similarity        recall  precision  dropped",
                *map(self._level_line, self.levels),
                "",
                "  with the present keys; dropped texts, without exact copies",
                *self._advice(),
            ]
        )

    def _warning(self) -> list[str]:
        """Return what to say first: that the sample has too few pairs."""
        if self.pairs >= FEW_PAIRS:
            return []
        pairs = f"only {self.pairs} pair{'s' * (self.pairs != 1)}" if self.pairs else "no pair"
        # The number of pairs grows with the square of the sample.
        size = max(5_000, int(self.sample.read * sqrt(FEW_PAIRS / max(1, self.pairs))))
        has_more = self.sample.read < min(MOST_RECORDS, self.count)
        more = f"; try --sample {min(MOST_RECORDS, size)}" if has_more else ""
        return [f"the sample has {pairs} of near duplicates, too few to choose settings by{more}", ""]

    def _level_line(self, level: ThresholdResult) -> str:
        name = f"{level.min_similarity or 'none'}" + (
            " (present)" if level.min_similarity == self.present.min_similarity else ""
        )
        shares = f"{_share(level.score.recall.value)}  {_share(level.score.precision.value):>9}"
        return f"  {name:20}  {shares}  {level.dropped:>7,}"

    def _advice(self) -> list[str]:
        if self.best is None:
            return []
        title = f"suggested, with a recall of {self.best.recall} (95 % interval):"
        lines = ["", title, "", tuned_toml(self.best.setting)]
        if self.best.setting != self.present:
            lines += ["", "a target made with other settings must be rebuilt with these"]
        return lines


def _band_line(name: str, row: BandResult) -> str:
    setting = row.setting
    limit = "any" if setting.band_radius >= row.bits else setting.band_radius
    shape = f"{setting.rows:>4}  {limit:>11}" if setting.bands else f"{'-':>4}  {'-':>11}"
    return (
        f"  {name:27}  {setting.bands:>5}  {shape}  {_share(row.recall.value)}  {row.compared:>8,.2f}  "
        f"{row.in_vain:>7,.2f}  {row.nbytes:>5}"
    )


def _share(value: float | None) -> str:
    return f"{'-':>6}" if value is None else f"{value:.4f}"


@compiled
def _count_pairs(offsets: npt.NDArray[np.int64], values: npt.NDArray[np.uint32], at: float) -> int:
    """Return how many pairs of rows have similarity `at` or more, by comparing all.

    Args:
        offsets: Offsets of a `Ragged` with a set in each row.
        values: Its values.
        at: Least similarity.
    """
    count = 0
    for right in range(len(offsets) - 1):
        one = values[offsets[right] : offsets[right + 1]]
        for left in range(right):
            other = values[offsets[left] : offsets[left + 1]]
            # The smaller set has all shared values, at most.
            if min(len(one), len(other)) >= at * max(len(one), len(other)) - ROUNDING:
                count += similarity_at_least(one, other, at) >= at
    return count


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
