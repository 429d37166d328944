"""The threshold that labelled pairs ask for: the `min_similarity` that judges the fewest of them wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class LabelAdvice:
    """What labels ask for.

    min_similarity  the threshold to take: the middle of those that judge as well
    above, up_to    every threshold above the one and up to the other judges as well
    wrong           pairs that it judges wrong, by their similarity alone
    wrong_now       those that the present threshold judges wrong
    pairs           labelled pairs, without those that cannot be judged
    """

    min_similarity: float
    above: float
    up_to: float
    wrong: int
    wrong_now: int
    pairs: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    def as_text(self) -> str:
        """Return it for people."""
        return (
            f"these labels ask for min_similarity = {self.min_similarity:g}: "
            f"{self.wrong:,} of {self.pairs:,} pairs judged wrong, now {self.wrong_now:,}\n"
            f"(by similarity alone; any above {self.above:.3f} up to {self.up_to:.3f} judges as well)"
        )


def asked(labels: Sequence[tuple[float, bool]], present: float) -> LabelAdvice | None:
    """Return the threshold that pairs, given by similarity and whether they are the same, ask for.

    Of thresholds that judge as well the highest are taken: a record that is dropped wrongly is worse than a
    copy that stays.  None without pairs.

    >>> found = asked([(0.81, False), (0.84, False), (0.88, True), (0.86, True), (0.97, True)], 0.8)
    >>> print(found.as_text())
    these labels ask for min_similarity = 0.85: 0 of 5 pairs judged wrong, now 2
    (by similarity alone; any above 0.840 up to 0.860 judges as well)
    """
    if not labels:
        return None
    edges = [0.0, *sorted({similarity for similarity, _ in labels}), 1.0]
    tried = [(_wrong(labels, high), -high, low) for low, high in pairwise(edges) if low < high]
    wrong, minus_high, low = min(tried)
    return LabelAdvice(
        _between(low, -minus_high), low, -minus_high, wrong, _wrong(labels, present), len(labels)
    )


def _wrong(labels: Sequence[tuple[float, bool]], threshold: float) -> int:
    return sum((similarity >= threshold) != is_same for similarity, is_same in labels)


def _between(low: float, high: float) -> float:
    """Return the roundest number in the middle of an interval, of which the lower end is not taken."""
    middle = (low + high) / 2
    return next((near for digits in (2, 3) if low < (near := round(middle, digits)) <= high), high)
