"""Estimate a whole collection's share of duplicates from a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, sqrt

import numpy as np
import numpy.typing as npt

# The size of a group that occurs more often than this in a sample is estimated by simple scaling.
FREQUENT_GROUP = 16
# Steps of expectation maximisation.
STEPS = 300
# Groups that must occur more than once; fewer say little about all groups.
FEW_GROUPS = 10

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ShareRange:
    """A share of the records: its likely value, and an interval around it."""

    low: float
    likely: float
    high: float

    def as_json(self) -> dict[str, float]:
        """Return the share as JSON values."""
        return {"low": round(self.low, 4), "likely": round(self.likely, 4), "high": round(self.high, 4)}


@dataclass(frozen=True, slots=True)
class SampledCopies:
    """Duplicates in a sample that consists of stretches of consecutive records.

    Attributes:
        records: Judged records of the whole collection.
        sampled: Judged records of the sample.
        nearby: Copies of an earlier record of the same stretch, by stretch.
        met: How many groups of copies occur in 1, 2, 3 ... stretches.
    """

    records: int
    sampled: int
    nearby: Sequence[int]
    met: Mapping[int, int]

    @classmethod
    def of(cls, records: int, stretches: Sequence[Sequence[bytes]]) -> SampledCopies:
        """Count copies.

        Args:
            records: Judged records of the whole collection.
            stretches: The group of each judged record, by stretch; a group is named by its keeper.
        """
        groups = [set(stretch) for stretch in stretches]
        times = Counter(group for stretch in groups for group in stretch)
        return cls(
            records=records,
            sampled=sum(map(len, stretches)),
            nearby=[
                len(stretch) - len(distinct) for stretch, distinct in zip(stretches, groups, strict=True)
            ],
            met=Counter(times.values()),
        )

    @property
    def repeated(self) -> int:
        """Number of groups that occur in more than one stretch."""
        return _count_repeated(self.met)

    def dropped(self) -> ShareRange:
        """Estimate the share of records that a backfill of the whole collection drops.

        Copies near their original are as frequent in a stretch as in the collection.  Only copies far apart
        are rarer in the sample, and are extrapolated.
        """
        if not self.sampled:
            return ShareRange(0.0, 0.0, 1.0)
        near, margin = self._nearby_share()
        far = estimate_distant_copies(round(self.records * (1 - near)), self.met)
        least, most = max(0.0, near - margin), min(1.0, near + margin)
        return ShareRange(_combine(least, far.low), _combine(near, far.likely), _combine(most, far.high))

    def _nearby_share(self) -> tuple[float, float]:
        """Return the share of copies near their original, and a margin from its variation among stretches."""
        share = sum(self.nearby) / self.sampled
        if self.sampled >= self.records:
            return share, 0.0
        mean = sum(self.nearby) / len(self.nearby)
        return share, 2 * sqrt(sum((count - mean) ** 2 for count in self.nearby)) / self.sampled


def _combine(first: float, second: float) -> float:
    """Return the total of two shares, the second one being a share of the records that the first leaves."""
    return first + (1 - first) * second


def estimate_distant_copies(records: int, met: Mapping[int, int]) -> ShareRange:
    """Estimate the share of records that have their keeper elsewhere in the collection.

    Args:
        records: Judged records of the whole collection.
        met: How many groups have one record in the sample, how many have two, and so on.
    """
    sampled = sum(times * count for times, count in met.items())
    groups = sum(met.values())
    if sampled >= records:
        return ShareRange(*[1 - groups / sampled if sampled else 0.0] * 3)
    extra = sampled - groups
    # Twice the standard deviation of a Poisson count.
    low = max(0.0, extra - 2 * sqrt(extra)) / sampled
    high = max(low, 1 - _fewest_groups(records, met) / records)
    if _count_repeated(met) < FEW_GROUPS:
        # Too few to estimate group sizes: assume that all groups are pairs.
        likely = met.get(2, 0) * records / sampled**2
    else:
        likely = 1 - _likeliest_groups(records, met) / records
    return ShareRange(low, min(max(low, likely), high), high)


def _count_repeated(met: Mapping[int, int]) -> int:
    return sum(count for times, count in met.items() if times > 1)


def sample_size_for(records: int, dropped: float) -> int:
    """Return the sample size that has about `FEW` pairs of copies, if this share of records is dropped."""
    return int(sqrt(2 * FEW_GROUPS * records / max(dropped, 0.01)))


def _fewest_groups(records: int, met: Mapping[int, int]) -> float:
    """Return Chao and Lin's lower bound on the number of groups.

    With n of N records sampled, q = n / N, and f1 and f2 groups that occur once and twice, at least
    f1^2 / (2 f2 n / (n - 1) + f1 q / (1 - q)) groups are not in the sample.
    """
    sampled = sum(times * count for times, count in met.items())
    once = met.get(1, 0)
    # About the upper end of a 95 % interval of a Poisson count, for pairs that chance may have hidden.
    twice = (sqrt(met.get(2, 0)) + 1) ** 2 + 2.7
    share = sampled / records
    unseen = (
        once**2 / (2 * twice * sampled / max(1, sampled - 1) + once * share / (1 - share)) if once else 0.0
    )
    return min(float(records), sum(met.values()) + unseen)


def _likeliest_groups(records: int, met: Mapping[int, int]) -> float:
    """Return the number of groups in the most likely mixture of group sizes; every record is in a group."""
    share = sum(times * count for times, count in met.items()) / records
    large = {times: count for times, count in met.items() if times > FREQUENT_GROUP}
    rest = records - sum(times * count for times, count in large.items()) / share
    times = np.array(sorted(met.keys() - large.keys()))
    if rest <= 0 or not len(times):
        return float(sum(met.values()))
    counts = np.array([met[number] for number in times.tolist()], np.float64)
    # Sizes in steps of a factor of sqrt(2), up to a size that would occur far more than OFTEN times.
    sizes = np.unique(np.round(2 ** np.arange(0, log(8 * FREQUENT_GROUP / share, 2), 0.5)))
    chances = np.array([[_chance(n, size, share) for size in sizes.tolist()] for n in times.tolist()])
    groups: Floats = rest / len(sizes) / sizes
    for _ in range(STEPS):
        # Not 0: a division by it follows.
        expected = np.maximum(chances @ groups, 1e-300)
        groups = groups * (chances.T @ (counts / expected)) / (1 - (1 - share) ** sizes)
        groups *= rest / (groups @ sizes)
    return float(groups.sum()) + sum(large.values())


def _chance(times: int, size: float, share: float) -> float:
    """Return the binomial probability that `times` records of a group of this size are in the sample."""
    if times > size:
        return 0.0
    ways = lgamma(size + 1) - lgamma(times + 1) - lgamma(size - times + 1)
    return exp(ways + times * log(share) + (size - times) * log(1 - share))
