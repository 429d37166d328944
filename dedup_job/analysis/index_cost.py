"""Measure the time and memory of the index for many texts, with made-up texts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import numpy.typing as npt

from dedup_job.index.keepers import Keepers
from dedup_job.records import Plan, PlanTexts, RawIds

# Made-up texts at most; what more of them cost is extrapolated.
LARGEST = 400_000
# Made-up texts added at once.
BATCH = 5_000
# Times that a lookup is measured; the median counts.
TRIES = 3


@dataclass(frozen=True, slots=True)
class IndexCost:
    """The cost of many texts.

    Attributes:
        look_up: Additional seconds to add a text and find its candidates when half of all texts are in the
            index, compared with a nearly empty index.
        nbytes: Bytes in memory when all texts are in the index.
    """

    look_up: float
    nbytes: int


def measure_index_cost(keepers: Keepers, plans: Sequence[Plan], texts: float) -> IndexCost:
    """Measure an index of up to 400,000 made-up texts, and extrapolate to a given number.

    Args:
        keepers: Empty; receives the made-up texts.
        plans: Plans whose texts the made-up ones resemble.
        texts: Distinct texts that the collection has.
    """
    model = TextModel.of(plans)
    trial = int(min(texts, LARGEST))
    when_empty = _measure_lookup(keepers, model)
    measured = []
    for goal in (trial // 2, trial):
        while keepers.texts < goal:
            keepers.load_plan(model.texts(min(BATCH, goal - keepers.texts)))
        measured.append((keepers.texts, keepers.nbytes, _measure_lookup(keepers, model)))
    # A straight line through two points.
    (few, small, fast), (many, large, slow) = measured
    steps = max(1, many - few)
    when_half_full = fast + max(0.0, slow - fast) / steps * (texts / 2 - few)
    return IndexCost(
        look_up=max(0.0, when_half_full - when_empty),
        nbytes=int(large + (large - small) / steps * (texts - many)),
    )


@dataclass(frozen=True, slots=True)
class TextModel:
    """Makes up texts that resemble decided ones: the same share has a fingerprint, ids are as long.

    Each byte of a fingerprint is taken from a random real fingerprint, so that made-up fingerprints are as
    unevenly distributed in the index as real ones.  Band keys are random.

    Attributes:
        raw_id: One of the real ids.
        bits: uint64, shape (n, words), the real fingerprints.
        fingerprinted: Share of texts that have a fingerprint.
        bands: Band keys of each text.
        rng: Random numbers; seeded, so that a forecast can be repeated.
    """

    raw_id: bytes
    bits: npt.NDArray[np.uint64]
    fingerprinted: float
    bands: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> TextModel:
        """Model the texts of some plans."""
        decided = [plan.texts for plan in plans]
        has_fingerprint = np.concatenate([texts.has_fingerprint for texts in decided])
        bits = np.concatenate([texts.bits for texts in decided])
        # Only kept ones: duplicates would repeat the same bytes too often.
        kept = np.concatenate([texts.is_kept for texts in decided])
        bands = plans[0].keys.shape[1]
        share = float(has_fingerprint.mean()) if len(has_fingerprint) else 0.0
        return cls(plans[0].ids[0], bits[has_fingerprint & kept], share, bands)

    def texts(self, rows: int) -> PlanTexts:
        """Make up `rows` texts, all kept."""
        return PlanTexts(
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
        """Make up an id of the same type and length."""
        # Only bytes of the value change; length, type and name before it and the end of the document stay.
        return self.raw_id[:9] + self.rng.bytes(max(0, len(self.raw_id) - 10)) + self.raw_id[-1:]


def _measure_lookup(keepers: Keepers, model: TextModel) -> float:
    """Return the seconds it takes to add a text and to find its candidates."""
    times = []
    for _ in range(TRIES):
        texts = model.texts(BATCH)
        start = time.perf_counter()
        entered = keepers.add_texts(texts.ids, texts)
        keepers.candidates(entered.texts, texts.keys)
        times.append((time.perf_counter() - start) / len(texts))
    return median(times)
