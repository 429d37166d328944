"""Other thresholds: how many of the near duplicates would stay, were `min_similarity` higher than it is.

A duplicate that is less similar to its keeper than a threshold need not stay: it goes all the same when an
earlier one that stays is similar enough to it.  So groups of the sample are decided again, each by itself,
and what is found of them is carried over to all (a ratio estimate, with the interval of Cochran, "Sampling
Techniques", 1977, section 2.11).  Were a duplicate kept, it might in turn stand for records that are unique
now; that is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from dedup_job.lab.scoring import Z95

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Regrouped:
    """The near duplicates of one keeper, m of them, in the order of decision.

    similarity  float (m,), to the keeper
    among       float (m, m), to one another
    near        how many there are in all; more than m where a group is large
    """

    similarity: Floats
    among: Floats
    near: int

    def below(self, threshold: float) -> float:
        """Return how many are less similar to the keeper."""
        return float((self.similarity < threshold).sum()) * self._each

    def staying(self, threshold: float) -> float:
        """Return how many would stay.

        >>> two = Regrouped(np.array([0.8, 0.82, 0.95]), np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]]), 3)
        >>> [two.staying(threshold) for threshold in (0.8, 0.81, 0.85, 0.91, 0.96)]
        [0.0, 1.0, 1.0, 2.0, 3.0]
        """
        kept: list[int] = []
        for row in np.flatnonzero(self.similarity < threshold).tolist():
            if not (self.among[row, kept] >= threshold).any():
                kept.append(row)
        return len(kept) * self._each

    @property
    def _each(self) -> float:
        return self.near / max(1, len(self.similarity))


@dataclass(frozen=True, slots=True)
class Staying:
    """What one threshold would change.

    threshold  of similarity
    below      near duplicates that are less similar to their keeper
    likely     how many of them would stay; it lies between `low` and `high` in 95 % of all cases
    """

    threshold: float
    below: int
    likely: float
    low: float
    high: float


def staying(groups: Sequence[Regrouped], threshold: float, below: int, drawn: float) -> Staying:
    """Return what a threshold would change.

    below  near duplicates of the whole collection that are less similar to their keeper
    drawn  share of all groups that the sample has
    """
    seen, near = sum(len(one.similarity) for one in groups), sum(one.near for one in groups)
    drawn *= seen / max(1, near)
    found = np.array([(one.below(threshold), one.staying(threshold)) for one in groups]).reshape(-1, 2)
    found = found[found[:, 0] > 0]
    if not len(found) or not below:
        return Staying(threshold, below, float(below), 0.0, float(below))
    share = float(found[:, 1].sum() / found[:, 0].sum())
    if len(found) == 1 and drawn < 1:
        return Staying(threshold, below, below * share, 0.0, float(below))
    apart = found[:, 1] - share * found[:, 0]
    spread = float((apart**2).sum()) * len(found) / max(1, len(found) - 1) * (1 - drawn)
    reach = Z95 * sqrt(spread) / float(found[:, 0].sum())
    low, high = max(0.0, share - reach), min(1.0, share + reach)
    return Staying(threshold, below, below * share, below * low, below * high)
