"""Growth: what the texts of a collection cost when they are many, tried out with made-up ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import numpy.typing as npt

from dedup_job.match.keepers import Keepers
from dedup_job.plan import Plan, RawIds, Texts

LARGEST = 400_000  # made-up texts
A_PLAN = 5_000  # of them at once
TRIES = 3


@dataclass(frozen=True, slots=True)
class Growth:
    """What many texts cost.

    look_up  seconds more that it takes to enter a text and look for it among half of them than among few
    nbytes   held when all are there
    """

    look_up: float
    nbytes: int


def grown(keepers: Keepers, plans: Sequence[Plan], texts: float) -> Growth:
    """Fill empty keepers with made-up texts, as many as there will be or as serve, and look up; then go on.

    plans  what the made-up ones are like
    texts  different texts that there will be
    """
    model = _Model.of(plans)
    trial = int(min(texts, LARGEST))
    at_once = _look_up(keepers, model)
    marks = []
    for goal in (trial // 2, trial):
        while keepers.texts < goal:
            keepers.restore(model.texts(min(A_PLAN, goal - keepers.texts)))
        marks.append((keepers.texts, keepers.nbytes, _look_up(keepers, model)))
    (few, small, fast), (many, large, slow) = marks
    steps = max(1, many - few)
    among_half = fast + max(0.0, slow - fast) / steps * (texts / 2 - few)
    return Growth(
        look_up=max(0.0, among_half - at_once),
        nbytes=int(large + (large - small) / steps * (texts - many)),
    )


@dataclass(frozen=True, slots=True)
class _Model:
    """Makes texts up that are like some that were decided: as many with a fingerprint, ids as long.

    Each byte of a fingerprint is that of another real one, so that they crowd in the index as real ones do.
    Keys of bands are random.

    raw_id  one of the ids
    bits    uint64 (n, words), the fingerprints
    fingerprinted  share of texts that have one
    bands   keys of each text
    """

    raw_id: bytes
    bits: npt.NDArray[np.uint64]
    fingerprinted: float
    bands: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> _Model:
        """Take the texts of some plans."""
        decided = [plan.texts for plan in plans]
        has_fingerprint = np.concatenate([one.has_fingerprint for one in decided])
        bits = np.concatenate([one.bits for one in decided])
        kept = np.concatenate([one.is_kept for one in decided])  # repeated ones would crowd too much
        bands = plans[0].keys.shape[1]
        share = float(has_fingerprint.mean()) if len(has_fingerprint) else 0.0
        return cls(plans[0].ids[0], bits[has_fingerprint & kept], share, bands)

    def texts(self, rows: int) -> Texts:
        """Return so many texts, all kept."""
        return Texts(
            ids=RawIds.of(self._id() for _ in range(rows)),
            bits=self._bits(rows),
            has_fingerprint=self.rng.random(rows) < self.fingerprinted,
            keys=self.rng.integers(1 << 32, size=(rows, self.bands), dtype=np.uint32),
            digests=self.rng.integers(1 << 64, size=(rows, 2), dtype=np.uint64),
            is_kept=np.ones(rows, np.bool_),
        )

    def _bits(self, rows: int) -> npt.NDArray[np.uint64]:
        if not len(self.bits):
            return np.zeros((rows, self.bits.shape[1]), np.uint64)
        real = self.bits.view(np.uint8)
        chosen = self.rng.integers(len(real), size=(rows, real.shape[1]))
        return real[chosen, np.arange(real.shape[1])].view(np.uint64)

    def _id(self) -> bytes:
        """Return an id of the same type and length, the document that it is in left as it was."""
        return self.raw_id[:9] + self.rng.bytes(max(0, len(self.raw_id) - 10)) + self.raw_id[-1:]


def _look_up(keepers: Keepers, model: _Model) -> float:
    """Return the seconds that it takes to enter a text and to look for its candidates."""
    times = []
    for _ in range(TRIES):
        texts = model.texts(A_PLAN)
        began = time.perf_counter()
        entered = keepers.enter(texts.ids, texts)
        keepers.candidates(entered.texts, texts.keys)
        times.append((time.perf_counter() - began) / len(texts))
    return median(times)
