"""How often two fingerprints meet in a map: of random ones, and of such as there are."""

from __future__ import annotations

from functools import cache, cached_property
from math import comb
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.simhash import hamming
from dedup_job.match.cut import SKETCH_BITS, WORD_BITS, Cut

SAMPLE = 400  # fingerprints, of which all pairs are looked at


class Met(NamedTuple):
    """How likely two fingerprints meet: as entries of a bucket, and as candidates, their sketches near."""

    entered: float
    passed: float


class Likeness(Protocol):
    """What is known of two fingerprints that are no neighbours."""

    def met(self, cut: Cut, flips: int, limit: int) -> Met:
        """Return how likely keys differ in `flips` bits, and sketches then in `limit` bits at most."""
        ...


def share_within(bits: int, radius: int) -> float:
    """Return how likely two random numbers of so many bits differ in at most `radius` of them.

    >>> share_within(4, 0), share_within(4, 1), share_within(4, 9)
    (0.0625, 0.3125, 1.0)
    """
    return sum(comb(bits, differing) for differing in range(radius + 1)) / (1 << bits)


class Random:
    """All bits are as likely 0 as 1, whatever the others are."""

    @staticmethod
    @cache
    def met(cut: Cut, flips: int, limit: int) -> Met:
        """See Likeness."""
        entered = comb(cut.width, flips) / (1 << cut.width)
        return Met(entered, entered * share_within(SKETCH_BITS, limit))


RANDOM = Random()


class Sample:
    """All pairs of some of the fingerprints, uint64 (n, words), taken evenly; neighbours are left out.

    Those are looked for, so every layout meets them.
    """

    def __init__(self, fingerprints: npt.NDArray[np.uint64], radius: int) -> None:
        self._fingerprints, self._radius = fingerprints, radius

    @cached_property
    def _differences(self) -> npt.NDArray[np.uint64]:
        """Made when they are asked for, which is not at small sizes."""
        count = len(self._fingerprints)
        rows = self._fingerprints[np.linspace(0, count - 1, min(SAMPLE, count)).astype(np.intp)]
        left, right = np.triu_indices(len(rows), 1)
        differences = rows[left] ^ rows[right]
        apart: npt.NDArray[np.uint64] = differences[hamming(rows[left], rows[right]) > self._radius]
        return apart

    def met(self, cut: Cut, flips: int, limit: int) -> Met:
        """See Likeness."""
        pairs = len(self._differences)
        if not pairs:
            return RANDOM.met(cut, flips, limit)
        entered = self._differences[np.bitwise_count(_bits(self._differences, cut.first, cut.width)) == flips]
        sketches = np.bitwise_count(_bits(entered, cut.first + cut.width, SKETCH_BITS))
        return Met(len(entered) / pairs, int((sketches <= limit).sum()) / pairs)


def _bits(rows: npt.NDArray[np.uint64], first: int, width: int) -> npt.NDArray[np.uint64]:
    """Return `width` bits of each row from bit `first` on, cyclic: uint64 (n,).

    >>> rows = np.array([[0x8000_0000_0000_0000, 0b101]], np.uint64)
    >>> _bits(rows, 63, 4).tolist(), _bits(rows, 127, 2).tolist()
    ([11], [0])
    """
    words = rows.shape[1]
    word, shift = divmod(first % (words * WORD_BITS), WORD_BITS)
    bits = rows[:, word] >> np.uint64(shift)
    if shift + width > WORD_BITS:
        bits = bits | rows[:, (word + 1) % words] << np.uint64(WORD_BITS - shift)
    kept: npt.NDArray[np.uint64] = bits & np.uint64((1 << width) - 1)
    return kept
