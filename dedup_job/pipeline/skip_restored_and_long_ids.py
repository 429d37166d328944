"""Records that are never compared: restored by a person, or with an `_id` that is too long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from dedup_job.errors import ConfigError
from dedup_job.mongo.ids import LONGEST_JUDGED
from dedup_job.records import Batch, FingerprintedBatch, Fingerprints

RESTORED, LONG_ID = "restored", "long_id"
# Bytes of an `_id`: a command has 16 MiB at most, and may name a row, which holds the id, twice.
LONGEST = 7 << 20


def skip_records(
    batches: Iterable[FingerprintedBatch],
    restored: Callable[[Sequence[bytes]], Collection[bytes]] = lambda ids: (),
) -> Iterator[FingerprintedBatch]:
    """Yield each batch with its fingerprints, where records that are never compared have a reason instead.

    Args:
        batches: Batches and their fingerprints.
        restored: Returns which of some ids a person has restored.

    Raises:
        ConfigError: If an id is too long for the ledger.
    """
    for batch, prints in batches:
        yield batch, _without_skipped(batch, prints, restored(batch.ids))


def _without_skipped(batch: Batch, prints: Fingerprints, restored: Collection[bytes]) -> Fingerprints:
    # Most batches have no such record.
    if not restored and max(map(len, batch.ids), default=0) <= LONGEST_JUDGED:
        return prints
    reasons = [_reason_to_skip(raw_id, raw_id in restored) for raw_id in batch.ids]
    words, bands = prints.bits.shape[1], prints.keys.shape[1]
    rules = 0 if prints.ranks is None else prints.ranks.shape[1]
    return Fingerprints.join(
        [
            Fingerprints.unchecked(reason, words, bands, rules, raw) if reason else prints.take([row])
            for row, (reason, raw) in enumerate(zip(reasons, batch.raws, strict=True))
        ]
    )


def _reason_to_skip(raw_id: bytes, is_restored: bool) -> str:
    if len(raw_id) > LONGEST:
        raise ConfigError(
            f"[source] filter: a record has an _id of {len(raw_id):,} bytes, and the ledger can store at "
            f"most {LONGEST:,}; exclude the record by the filter, or remove it from the collection"
        )
    if len(raw_id) > LONGEST_JUDGED:
        return LONG_ID
    return RESTORED if is_restored else ""
