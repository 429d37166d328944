"""The page's contents as values: counts of all records, and what samples show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dedup_job.records import Counts
from dedup_job.report.differences import TextGap, TextPiece

WeightedLength = tuple[int, float]
"""The length of a sampled text in characters, and the number of records that it represents."""


@dataclass(frozen=True, slots=True)
class EstimatedCount:
    """A number of records, counted or estimated from a sample.

    Attributes:
        likely: The estimate.
        low: Lower end of its 95 % confidence interval.
        high: Upper end; infinite if no interval is known.
    """

    likely: float
    low: float
    high: float

    @classmethod
    def about(cls, number: float, is_exact: bool) -> EstimatedCount:
        """Return a counted number, or an estimate without a known interval."""
        return cls(number, number, number) if is_exact else cls(number, 0.0, float("inf"))

    @property
    def is_exact(self) -> bool:
        """Whether the number was counted."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record of a pair or a group.

    Attributes:
        id: The id as the command line takes it.
        length: Characters of its text; None if the record was deleted or no longer has a text.
        fields: The fields that the settings name, as paths and values.
    """

    id: str
    length: int | None
    fields: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ShownPair:
    """A duplicate and its keeper.

    Attributes:
        keeper: The keeper.
        duplicate: The duplicate.
        reason: "exact" or "near".
        distance: Hamming distance of the fingerprints, None if there is none.
        similarity: Similarity of the texts, None if they were not compared.
        keys: The keys that both share, in words.
        parts: Both texts with gaps, the keeper's first.
        has_other_numbers: Whether the texts differ in a number.
        weight: Near duplicates in the same hundredth of similarity, for each of them on the page.
    """

    keeper: ShownRecord
    duplicate: ShownRecord
    reason: str
    distance: int | None
    similarity: float | None
    keys: str
    parts: Sequence[TextPiece | TextGap]
    has_other_numbers: bool
    weight: float


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """A keeper, the beginning of its text, the number of its duplicates, and some of them."""

    keeper: ShownRecord
    size: int
    beginning: str
    members: Sequence[ShownPair]


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value of the field that records are counted by.

    Attributes:
        value: The value.
        records: Number of records with it.
        dropped: Number of these that are dropped.
        keeper: The most frequent value among their keepers.
        keeper_share: Share of their keepers that have this value.
    """

    value: str
    records: float
    dropped: float
    keeper: str
    keeper_share: float


@dataclass(frozen=True, slots=True)
class ShownThreshold:
    """The effect of a higher `min_similarity`.

    Attributes:
        similarity: The threshold.
        below: Number of pairs below it.
        staying: Number of duplicates among these that would be kept.
    """

    similarity: float
    below: int
    staying: EstimatedCount


@dataclass(frozen=True, slots=True)
class SampleSize:
    """The size of a sample: `drawn` of the `total` records of a kind."""

    what: str
    drawn: int
    total: int


@dataclass(frozen=True, slots=True)
class CollectionStretch:
    """A stretch of the collection.

    Attributes:
        start: Its first moment, or the place of its first record in the order of decision.
        end: Its end, exclusive.
        records: Number of its records.
        dropped: Number of these that are dropped.
    """

    start: datetime | int
    end: datetime | int
    records: int
    dropped: int


@dataclass(frozen=True, slots=True)
class PageContents:
    """Everything that the page shows.

    Attributes:
        source: The source's name.
        is_done: Whether the page is about a finished run, or about a dry run.
        facts: Names and values for the small print.
        counts: The verdicts.
        min_similarity: The threshold in the settings.
        is_distinguishing: Whether texts with different numbers are kept apart.
        similarities: Near duplicates by hundredths of similarity, rounded down.
        distances: Near duplicates by distance; None is the key of those without a distance.
        sizes: Number of groups by size; the size includes the keeper.
        group_count: Number of groups.
        kept_lengths: Lengths of kept texts.
        dropped_lengths: Lengths of dropped texts.
        timeline: Records and drops along the collection.
        numbers: Near duplicates that differ from their keeper in a number; None if no texts were compared.
        thresholds: The effects of higher thresholds, the present one first.
        pairs: The pairs to show, the least similar first.
        groups: The largest groups.
        group_by: Path of the field that records are counted by, empty if there is none.
        places: The values of that field with the most drops.
        sampled: The sizes of the samples.
        next_steps: Commands that could follow, and their effects.
    """

    source: str
    is_done: bool
    facts: Sequence[tuple[str, str]]
    counts: Counts
    min_similarity: float
    is_distinguishing: bool
    similarities: Sequence[int]
    distances: Mapping[int | None, int]
    sizes: Mapping[int, float]
    group_count: EstimatedCount
    kept_lengths: Sequence[WeightedLength]
    dropped_lengths: Sequence[WeightedLength]
    timeline: Sequence[CollectionStretch]
    numbers: EstimatedCount | None
    thresholds: Sequence[ShownThreshold]
    pairs: Sequence[ShownPair]
    groups: Sequence[ShownGroup]
    group_by: str
    places: Sequence[FieldValue]
    sampled: Sequence[SampleSize]
    next_steps: Sequence[tuple[str, str]] = ()
