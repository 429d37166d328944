"""What stands on a page, as values: what was counted of all records, and what samples tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dedup_job.document import Counts
from dedup_job.report.differences import Gap, Piece
from dedup_job.report.page.timeline import Stretch

Weighted = tuple[int, float]  # a length in characters, and how many records it stands for


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number of records that a sample tells; it lies between `low` and `high` in 95 % of all cases."""

    likely: float
    low: float
    high: float

    @classmethod
    def about(cls, number: float, is_exact: bool) -> Estimate:
        """Return a number that was counted, or one of which no interval is known."""
        return cls(number, number, number) if is_exact else cls(number, 0.0, float("inf"))

    @property
    def is_exact(self) -> bool:
        """Whether it was counted."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record of a pair or a group.

    id      as the command line takes it
    length  characters of its text; None for one that is gone, or has no text any more
    fields  what the settings ask for, by path
    """

    id: str
    length: int | None
    fields: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ShownPair:
    """A duplicate beside its keeper.

    reason      "exact" or "near"
    keys        by which it was found
    parts       of both texts, the keeper's first, with gaps
    stands_for  so many duplicates are like it, about
    """

    keeper: ShownRecord
    duplicate: ShownRecord
    reason: str
    distance: int | None
    similarity: float | None
    keys: str
    parts: Sequence[Piece | Gap]
    has_other_numbers: bool
    stands_for: float


@dataclass(frozen=True, slots=True)
class Group:
    """A keeper, how its text begins, how many duplicates it stands for, and some of them."""

    keeper: ShownRecord
    size: int
    beginning: str
    members: Sequence[ShownPair]


@dataclass(frozen=True, slots=True)
class Place:
    """A value of a field: how many records have it, how many of them go, and for which value mostly."""

    value: str
    records: float
    dropped: float
    keeper: str
    keeper_share: float


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a higher `min_similarity` would change: so many pairs are below it, so many of them would stay."""

    similarity: float
    below: int
    staying: Estimate


@dataclass(frozen=True, slots=True)
class Sampled:
    """How many of all records of a kind were looked at."""

    what: str
    drawn: int
    total: int


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a page shows.

    is_done       whether it tells what a run did; else what one would do
    facts         small print: names and values
    similarities  near duplicates by hundredths of similarity, rounded down
    distances     near duplicates by distance; under None those that have none
    sizes         groups by size, the keeper counted in
    group_count   how many groups there are
    numbers       near duplicates that differ from their keeper in a number; None where none was compared
    in_time       the name of a unit, and the stretches
    show          paths of fields
    """

    source: str
    target: str
    run: str
    is_done: bool
    facts: Sequence[tuple[str, str]]
    counts: Counts
    min_similarity: float
    is_distinguishing: bool
    similarities: Sequence[int]
    distances: Mapping[int | None, int]
    sizes: Mapping[int, float]
    group_count: Estimate
    kept_lengths: Sequence[Weighted]
    dropped_lengths: Sequence[Weighted]
    in_order: Sequence[Stretch]
    in_time: tuple[str, Sequence[Stretch]]
    numbers: Estimate | None
    thresholds: Sequence[Threshold]
    pairs: Sequence[ShownPair]
    groups: Sequence[Group]
    show: Sequence[str]
    group_by: str
    places: Sequence[Place]
    sampled: Sequence[Sampled]
