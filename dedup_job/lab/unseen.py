"""Unseen duplicates: how many a whole collection has, judged by a sample of it.

Two copies are both in a sample of the share f with probability f^2, so a sample shows far fewer duplicates
than there are; what it shows is a lower bound.  Groups of copies are to records what species are to animals,
and how many groups there are is the question of the unseen species.

The most likely share comes from the sizes of groups that best explain how often groups were met: maximum
likelihood over all mixtures of sizes, found by expectation maximisation (Norris and Pollock, "Non-parametric
MLE for Poisson species abundance models", Environmental and Ecological Statistics 5, 1998; here binomial, for
the size of the collection is known).  The upper end is what the lower bound on the number of groups leaves
(Chao and Lin, "Nonparametric lower bounds for species richness and shared species richness under sampling
without replacement", Biometrics 68, 2012).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, sqrt

import numpy as np
import numpy.typing as npt

OFTEN = 16  # a group met more often is as large as it seems
STEPS = 300  # of expectation maximisation
FEW = 10  # groups met twice or more; fewer say little about all groups

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Span:
    """A share of the records: its likely value, and the ends between which it lies."""

    low: float
    likely: float
    high: float

    def as_json(self) -> dict[str, float]:
        """Return it as JSON values."""
        return {"low": round(self.low, 4), "likely": round(self.likely, 4), "high": round(self.high, 4)}


@dataclass(frozen=True, slots=True)
class Copies:
    """What a sample made of stretches of the collection shows of its duplicates.

    records  judged records of the whole collection
    sampled  judged records of the sample
    nearby   those of them that another record of the same stretch is a copy of, by stretch
    met      how many groups of copies were met in 1, 2, 3 ... stretches
    """

    records: int
    sampled: int
    nearby: Sequence[int]
    met: Mapping[int, int]

    @classmethod
    def of(cls, records: int, stretches: Sequence[Sequence[bytes]]) -> Copies:
        """Take the group of each judged record, named by the record that stands for it, by stretch."""
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
        """Groups that were met in more than one stretch."""
        return _repeated(self.met)

    def dropped(self) -> Span:
        """Return the share of records that a decision on the whole collection would drop.

        A copy that lies near its original is met as often as there are such; a stretch shows its share.  Only
        copies that lie far apart are rarer in the sample, and they are extrapolated.
        """
        if not self.sampled:
            return Span(0.0, 0.0, 1.0)
        near, reach = self._near()
        far = far_apart(round(self.records * (1 - near)), self.met)
        least, most = max(0.0, near - reach), min(1.0, near + reach)
        return Span(_either(least, far.low), _either(near, far.likely), _either(most, far.high))

    def _near(self) -> tuple[float, float]:
        """Return the share of copies near their original, and how far the stretches differ in it."""
        share = sum(self.nearby) / self.sampled
        if self.sampled >= self.records:
            return share, 0.0
        mean = sum(self.nearby) / len(self.nearby)
        return share, 2 * sqrt(sum((count - mean) ** 2 for count in self.nearby)) / self.sampled


def _either(first: float, other: float) -> float:
    """Return the share of what one or the other takes, the other of what the first has left."""
    return first + (1 - first) * other


def far_apart(records: int, met: Mapping[int, int]) -> Span:
    """Return the share of records that a record elsewhere in the collection stands for.

    `met` tells how many groups had one record in the sample, how many had two, and so on.
    """
    sampled = sum(times * count for times, count in met.items())
    seen = sum(met.values())
    if sampled >= records:
        return Span(*[1 - seen / sampled if sampled else 0.0] * 3)
    extra = sampled - seen
    low = max(0.0, extra - 2 * sqrt(extra)) / sampled
    high = max(low, 1 - _fewest_groups(records, met) / records)
    if _repeated(met) < FEW:  # the sizes of the groups are anyone's guess: take them for pairs
        likely = met.get(2, 0) * records / sampled**2
    else:
        likely = 1 - _likeliest_groups(records, met) / records
    return Span(low, min(max(low, likely), high), high)


def _repeated(met: Mapping[int, int]) -> int:
    return sum(count for times, count in met.items() if times > 1)


def pairs_needed(records: int, dropped: float) -> int:
    """Return how large a sample shows about `FEW` groups twice, if that share of the records are copies."""
    return int(sqrt(2 * FEW * records / max(dropped, 0.01)))


def _fewest_groups(records: int, met: Mapping[int, int]) -> float:
    """Return Chao and Lin's lower bound on the number of groups, with the pairs that chance may have hidden.

    With n of N records sampled, q = n / N, and f1 and f2 groups met once and twice, at least
    f1^2 / (2 f2 n / (n - 1) + f1 q / (1 - q)) groups were not met.
    """
    sampled = sum(times * count for times, count in met.items())
    once = met.get(1, 0)
    twice = (sqrt(met.get(2, 0)) + 1) ** 2 + 2.7  # about the upper end of a 95 % interval of a Poisson count
    share = sampled / records
    unseen = (
        once**2 / (2 * twice * sampled / max(1, sampled - 1) + once * share / (1 - share)) if once else 0.0
    )
    return min(float(records), sum(met.values()) + unseen)


def _likeliest_groups(records: int, met: Mapping[int, int]) -> float:
    """Return how many groups the likeliest mixture of sizes has, all records in some group."""
    share = sum(times * count for times, count in met.items()) / records
    large = {times: count for times, count in met.items() if times > OFTEN}
    rest = records - sum(times * count for times, count in large.items()) / share
    times = np.array(sorted(met.keys() - large.keys()))
    if rest <= 0 or not len(times):
        return float(sum(met.values()))
    counts = np.array([met[one] for one in times.tolist()], np.float64)
    sizes = np.unique(np.round(2 ** np.arange(0, log(8 * OFTEN / share, 2), 0.5)))
    chances = np.array([[_chance(one, size, share) for size in sizes.tolist()] for one in times.tolist()])
    groups: Floats = rest / len(sizes) / sizes
    for _ in range(STEPS):
        expected = np.maximum(chances @ groups, 1e-300)
        groups = groups * (chances.T @ (counts / expected)) / (1 - (1 - share) ** sizes)
        groups *= rest / (groups @ sizes)
    return float(groups.sum()) + sum(large.values())


def _chance(times: int, size: float, share: float) -> float:
    """Return how likely it is that so many of a group's records are in the sample."""
    if times > size:
        return 0.0
    ways = lgamma(size + 1) - lgamma(times + 1) - lgamma(size - times + 1)
    return exp(ways + times * log(share) + (size - times) * log(1 - share))
