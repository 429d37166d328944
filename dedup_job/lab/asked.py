"""Advise on a threshold: the `min_similarity` that judges the fewest labelled pairs wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class LabelAdvice:
    """The threshold that suits some labelled pairs best.

    Attributes:
        min_similarity: The suggested threshold, in the middle of the thresholds that are equally good.
        above: Every threshold above this one is equally good,
        up_to: up to and including this one.
        wrong: Pairs that the suggested threshold judges wrong, by their similarity alone.
        wrong_now: Pairs that the present threshold judges wrong.
        pairs: All labelled pairs, without those that cannot be judged.
    """

    min_similarity: float
    above: float
    up_to: float
    wrong: int
    wrong_now: int
    pairs: int

    def as_json(self) -> dict[str, Any]:
        """Return the advice as JSON values."""
        return asdict(self)

    def as_text(self) -> str:
        """Return the advice as text."""
        return (
            f"min_similarity = {self.min_similarity:g} fits these labels best: "
            f"{self.wrong:,} of {self.pairs:,} pairs judged wrong, now {self.wrong_now:,}\n"
            f"(by similarity alone; any value above {self.above:.3f} up to {self.up_to:.3f} is as good)"
        )


def asked(labels: Sequence[tuple[float, bool]], present: float) -> LabelAdvice | None:
    """Return the threshold that judges the fewest labelled pairs wrong.

    Among equally good thresholds the highest ones win: dropping a record wrongly is worse than keeping a
    copy.

    >>> advice = asked([(0.81, False), (0.84, False), (0.88, True), (0.86, True), (0.97, True)], 0.8)
    >>> print(advice.as_text())
    min_similarity = 0.85 fits these labels best: 0 of 5 pairs judged wrong, now 2
    (by similarity alone; any value above 0.840 up to 0.860 is as good)

    Args:
        labels: The similarity of each pair, and whether its texts are the same.
        present: The present threshold.

    Returns:
        The advice, or None without labels.
    """
    if not labels:
        return None
    edges = [0.0, *sorted({similarity for similarity, _ in labels}), 1.0]
    # All thresholds of an interval (low, high] judge every pair alike.
    intervals = [(_count_wrong(labels, high), -high, low) for low, high in pairwise(edges) if low < high]
    wrong, minus_high, low = min(intervals)
    high = -minus_high
    return LabelAdvice(
        min_similarity=_round_between(low, high),
        above=low,
        up_to=high,
        wrong=wrong,
        wrong_now=_count_wrong(labels, present),
        pairs=len(labels),
    )


def _count_wrong(labels: Sequence[tuple[float, bool]], threshold: float) -> int:
    return sum((similarity >= threshold) != is_same for similarity, is_same in labels)


def _round_between(low: float, high: float) -> float:
    """Return the middle of the interval (low, high] with two or three decimals, or `high` if neither fits."""
    middle = (low + high) / 2
    return next((rounded for digits in (2, 3) if low < (rounded := round(middle, digits)) <= high), high)
