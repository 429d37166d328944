"""Precision, recall and F1, with confidence intervals."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

from dedup_job.fingerprint.recipe import Matching

# A normal distribution lies within this many standard deviations of its mean in 95 % of all cases.
Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Share:
    """A share and its 95 % confidence interval; all three are None if nothing was counted."""

    value: float | None
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.value is None or self.low is None or self.high is None:
            return "-"
        return f"{self.value:.4f}  ({self.low:.4f} to {self.high:.4f})"

    def as_json(self) -> dict[str, float | None]:
        """Return the share as JSON values."""
        return {name: share and round(share, 6) for name, share in asdict(self).items()}


NO_SHARE = Share(None, None, None)


# The settings that decide which near duplicates are found.
TUNED = ("radius", "bands", "rows", "band_radius", "min_similarity")


def tuned_json(matching: Matching) -> dict[str, Any]:
    """Return the settings that decide which near duplicates are found as JSON values."""
    return {name: getattr(matching, name) for name in TUNED}


def tuned_toml(matching: Matching) -> str:
    """Return the same settings as lines of a settings file."""
    return "\n".join(["[match]", *(f"{name} = {value}" for name, value in tuned_json(matching).items())])


@dataclass(frozen=True, slots=True)
class Score:
    """Number of pairs by label and result.

    Attributes:
        hits: The same, and found.
        false_alarms: Different, and found.
        misses: The same, and not found.
        rejections: Different, and not found.
    """

    hits: int = 0
    false_alarms: int = 0
    misses: int = 0
    rejections: int = 0

    @property
    def pairs(self) -> int:
        """All pairs."""
        return self.hits + self.false_alarms + self.misses + self.rejections

    @property
    def precision(self) -> Share:
        """Share of the found pairs that are the same."""
        return wilson(self.hits, self.hits + self.false_alarms)

    @property
    def recall(self) -> Share:
        """Share of the pairs that are the same that were found."""
        return wilson(self.hits, self.hits + self.misses)

    @property
    def f1(self) -> Share:
        """The harmonic mean of precision and recall."""
        share = wilson(self.hits, self.hits + self.false_alarms + self.misses)
        return Share(_f1_of(share.value), _f1_of(share.low), _f1_of(share.high))

    def as_json(self) -> dict[str, Any]:
        """Return counts and shares as JSON values."""
        return {
            **asdict(self),
            "precision": self.precision.as_json(),
            "recall": self.recall.as_json(),
            "f1": self.f1.as_json(),
        }


def wilson(hits: int, trials: int) -> Share:
    """Return the share of hits with its 95 % confidence interval.

    With p = hits / n, z = 1.96 and q = z^2 / n, the interval ends at
    (p + q/2 -+ sqrt(p (1 - p) q + q^2/4)) / (1 + q).

    >>> str(wilson(8, 10))
    '0.8000  (0.4902 to 0.9433)'
    """
    if not trials:
        return NO_SHARE
    share, square = hits / trials, Z95 * Z95 / trials
    centre = (share + square / 2) / (1 + square)
    margin = sqrt(share * (1 - share) * square + square * square / 4) / (1 + square)
    # Exactly 1 if all are hits, which the formula misses by rounding.
    high = 1.0 if hits == trials else centre + margin
    return Share(share, centre - margin, high)


def _f1_of(share: float | None) -> float | None:
    return None if share is None else 2 * share / (1 + share)
