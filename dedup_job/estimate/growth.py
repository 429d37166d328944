"""Growth: what keepers cost when they are many, tried out with made-up ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import numpy.typing as npt

from dedup_job.document import UNIQUE, Fingerprints
from dedup_job.match.keepers import Keepers
from dedup_job.plan import Plan
from dedup_job.ragged import Ragged

LARGEST = 400_000  # made-up keepers
A_PLAN = 5_000  # of them at once
TRIES = 3


@dataclass(frozen=True, slots=True)
class Growth:
    """What many keepers cost: seconds for a look-up when half of them are there, bytes when all are."""

    look_up: float
    nbytes: int


def grown(keepers: Keepers, prints: Fingerprints, plans: Sequence[Plan], unique: float) -> Growth:
    """Fill empty keepers with made-up ones, as many as there will be or as serve, and look up; then go on.

    prints  what is looked for
    plans   what the made-up ones are like
    unique  keepers that there will be
    """
    trial = int(min(unique, LARGEST))
    lengths = np.concatenate([np.diff(plan.prefixes.offsets) for plan in plans])
    kept = [plan.kept for plan in plans]
    bits = np.concatenate([one.bits[one.near] for one in kept])
    model = _Model(plans[0], bits, float(prints.near.mean()), lengths)
    marks = []
    for goal in (trial // 2, trial):
        while len(keepers) < goal:
            keepers.admit(model.plan(min(A_PLAN, goal - len(keepers))))
        marks.append((len(keepers), _look_up(keepers, prints), keepers.nbytes))
    (few, fast, small), (many, slow, large) = marks
    steps = max(1, many - few)
    return Growth(
        look_up=fast + max(0.0, slow - fast) / steps * (unique / 2 - few),
        nbytes=int(large + (large - small) / steps * (unique - many)),
    )


@dataclass(frozen=True, slots=True)
class _Model:
    """Makes plans up that are like one that was decided: as many near, as long prefixes, ids as long.

    Each byte of a fingerprint is that of another real one, so that they crowd in the index as real ones do.
    """

    like: Plan
    bits: npt.NDArray[np.uint64]
    near: float
    lengths: npt.NDArray[np.int64]
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def plan(self, rows: int) -> Plan:
        """Return a plan of so many unique records."""
        lengths = self.rng.choice(self.lengths, rows)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return Plan(
            ids=[self._id() for _ in range(rows)],
            verdicts=[UNIQUE] * rows,
            bits=self._bits(rows),
            near=self.rng.random(rows) < self.near,
            prefixes=Ragged(offsets, self.rng.integers(1 << 32, size=offsets[-1], dtype=np.uint32)),
            digests=self._words(rows, 2),
            hashes=np.zeros((rows, 2), np.uint64),
        )

    def _bits(self, rows: int) -> npt.NDArray[np.uint64]:
        if not len(self.bits):
            return np.zeros((rows, self.bits.shape[1]), np.uint64)
        real = self.bits.view(np.uint8)
        chosen = self.rng.integers(len(real), size=(rows, real.shape[1]))
        return real[chosen, np.arange(real.shape[1])].view(np.uint64)

    def _id(self) -> bytes:
        """Return an id of the same type and length, the document that it is in left as it was."""
        like = self.like.ids[0]
        return like[:9] + self.rng.bytes(max(0, len(like) - 10)) + like[-1:]

    def _words(self, rows: int, words: int) -> npt.NDArray[np.uint64]:
        return self.rng.integers(1 << 64, size=(rows, words), dtype=np.uint64)


def _look_up(keepers: Keepers, prints: Fingerprints) -> float:
    """Return the seconds that it takes to look for a record's text, and for its fingerprint if it is new."""
    few = prints.take(range(min(A_PLAN, len(prints))))
    first = np.unique(few.digests, axis=0, return_index=True)[1]
    bits = few.bits[np.intersect1d(first, np.flatnonzero(few.near))]
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        keepers.near(bits)
        keepers.with_text(few.digests)
        times.append((time.perf_counter() - began) / max(1, len(few)))
    return median(times)
