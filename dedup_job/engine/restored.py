"""Records that a person restored, when they come up for decision again: they are unjudged."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from dedup_job.document import Batch, Fingerprints

REASON = "restored"


class Fingerprinting(Protocol):
    """Where fingerprinting runs."""

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        """Yield each batch with its fingerprints, in order."""
        ...


@dataclass(frozen=True, slots=True)
class WithRestored:
    """An engine that passes these records, by raw id."""

    engine: Fingerprinting
    restored: Container[bytes]

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        """Yield each batch with its fingerprints, in order."""
        for batch, prints in self.engine.fingerprinted(batches):
            yield batch, self._passed(batch, prints)

    def _passed(self, batch: Batch, prints: Fingerprints) -> Fingerprints:
        if not any(raw_id in self.restored for raw_id in batch.ids):
            return prints
        words, bands = prints.bits.shape[1], prints.keys.shape[1]
        return Fingerprints.join(
            [
                Fingerprints.unjudged(REASON, words, bands, raw)
                if raw_id in self.restored
                else prints.take([row])
                for row, (raw_id, raw) in enumerate(zip(batch.ids, batch.raws, strict=True))
            ]
        )
