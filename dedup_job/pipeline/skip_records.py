"""Records that are never compared: restored by a person, or with an _id that is too long."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dedup_job.errors import ConfigError
from dedup_job.mongo.ids import LONGEST_JUDGED
from dedup_job.pipeline.job import Engine
from dedup_job.records import Batch, Fingerprints

RESTORED, LONG_ID = "restored", "long_id"
LONGEST = 7 << 20  # a command may name a row twice, which holds the id, and has 16 MiB at most


@dataclass(frozen=True, slots=True)
class SkippingEngine:
    """An engine that leaves such records unjudged; `restored` tells which of some ids were restored."""

    engine: Engine
    restored: Callable[[Sequence[bytes]], Container[bytes]] = lambda ids: ()

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        """Yield each batch with its fingerprints, in order.

        Raises ConfigError for an id that is too long for the ledger.
        """
        for batch, prints in self.engine.fingerprinted(batches):
            yield batch, self._without_exempt(batch, prints)

    def _without_exempt(self, batch: Batch, prints: Fingerprints) -> Fingerprints:
        restored = self.restored(batch.ids)
        reasons = [_reason(raw_id, raw_id in restored) for raw_id in batch.ids]
        if not any(reasons):
            return prints
        words, bands = prints.bits.shape[1], prints.keys.shape[1]
        return Fingerprints.join(
            [
                Fingerprints.unjudged(reason, words, bands, raw) if reason else prints.take([row])
                for row, (reason, raw) in enumerate(zip(reasons, batch.raws, strict=True))
            ]
        )


def _reason(raw_id: bytes, is_restored: bool) -> str:
    if len(raw_id) > LONGEST:
        raise ConfigError(
            f"[source] filter: a record has an _id of {len(raw_id):,} bytes, and the ledger can hold "
            f"none of more than {LONGEST:,}; leave it out by the filter, or take it out of the collection"
        )
    if len(raw_id) > LONGEST_JUDGED:
        return LONG_ID
    return RESTORED if is_restored else ""
