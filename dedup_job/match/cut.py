"""How a key is cut out of a fingerprint, and how long the sketch behind it is."""

from __future__ import annotations

from dataclasses import dataclass

WORD_BITS = 64
SKETCH_BITS = 32


@dataclass(frozen=True, slots=True)
class Cut:
    """One map: its key is `width` bits from bit `first` on, probed with at most `flips` of them flipped."""

    first: int
    width: int
    flips: int

    def overlaps(self, first: int, last: int) -> bool:
        """Return whether the key has bits from `first` to `last` in it, `last` not included."""
        return self.first < last and first < self.first + self.width
