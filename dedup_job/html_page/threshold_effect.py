"""Estimate what a higher threshold would keep, from a sample of groups of near duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from dedup_job.analysis.scores import Z95
from dedup_job.html_page.page_data import EstimatedCount

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KeeperGroup:
    """The near duplicates of one keeper, or m of them, in the order of decision.

    Attributes:
        similarity: float64, shape (m,), similarity to the keeper.
        among: float64, shape (m, m), similarity to each other.
        near: All near duplicates of the keeper; more than m if the group is large.
    """

    similarity: Floats
    among: Floats
    near: int

    def below(self, threshold: float) -> float:
        """Return how many near duplicates are less similar to the keeper than a threshold."""
        return float((self.similarity < threshold).sum()) * self._weight

    def staying(self, threshold: float) -> float:
        """Return how many near duplicates would be kept with a threshold.

        >>> two = KeeperGroup(np.array([0.8, 0.82, 0.95]), np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]]), 3)
        >>> [two.staying(threshold) for threshold in (0.8, 0.81, 0.85, 0.91, 0.96)]
        [0.0, 1.0, 1.0, 2.0, 3.0]
        """
        kept: list[int] = []
        for row in np.flatnonzero(self.similarity < threshold).tolist():
            if not (self.among[row, kept] >= threshold).any():
                kept.append(row)
        return len(kept) * self._weight

    @property
    def _weight(self) -> float:
        """Near duplicates that each measured one represents."""
        return self.near / max(1, len(self.similarity))


def estimate_staying(
    groups: Sequence[KeeperGroup], threshold: float, below: int, drawn: float
) -> EstimatedCount:
    """Estimate how many near duplicates of the whole collection would be kept with a threshold.

    Args:
        groups: A random sample of groups.
        threshold: Least similarity.
        below: Near duplicates of the whole collection that are less similar to their keeper.
        drawn: Share of all groups that the sample has.
    """
    measured, near = sum(len(group.similarity) for group in groups), sum(group.near for group in groups)
    drawn *= measured / max(1, near)
    counts = np.array([(group.below(threshold), group.staying(threshold)) for group in groups]).reshape(-1, 2)
    counts = counts[counts[:, 0] > 0]
    # Without any group below the threshold nothing can be excluded.
    if not len(counts) or not below:
        return EstimatedCount(float(below), 0.0, float(below))
    share = float(counts[:, 1].sum() / counts[:, 0].sum())
    # One group says nothing about how much groups vary.
    if len(counts) == 1 and drawn < 1:
        return EstimatedCount(below * share, 0.0, float(below))
    residuals = counts[:, 1] - share * counts[:, 0]
    # With the finite population correction: a sample of everything is exact.
    variance = float((residuals**2).sum()) * len(counts) / max(1, len(counts) - 1) * (1 - drawn)
    margin = Z95 * sqrt(variance) / float(counts[:, 0].sum())
    low, high = max(0.0, share - margin), min(1.0, share + margin)
    return EstimatedCount(below * share, below * low, below * high)
