"""Sample the source: stretches of consecutive records, read in the way a run reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dedup_job.errors import ConfigError
from dedup_job.mongo.pages import Window
from dedup_job.mongo.source import Storage
from dedup_job.pipeline.command_context import Context, first_records
from dedup_job.records import Batch

# Records of a sample, if the caller gives no number.
LEAST, MOST = 5_000, 50_000
# Records per square root of the collection's size: such a sample holds dozens of pairs if a third are copies.
RECORDS_PER_ROOT = 6
MOST_BYTES = 64 << 20
STRETCHES = 50
# Random ids per stretch.  Every 20th id begins a stretch, which spreads the stretches evenly.
DRAWN_PER_STRETCH = 20
# Pages on which the read speed is measured.
PAGES = 5


@dataclass(frozen=True, slots=True)
class CollectionSample:
    """Records of the collection, in `_id` order.

    Attributes:
        count: Estimated number of records in the whole collection.
        batch: The records.
        stretch: The number of each record's stretch.
        pages: Ids outside of the stretches, where pages can be read that are not cached yet.
    """

    count: int
    batch: Batch
    stretch: Sequence[int]
    pages: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.batch)

    def cut(self, length: int) -> Iterator[Batch]:
        """Yield the records in batches of this length."""
        ids, raws = self.batch.ids, self.batch.raws
        for first in range(0, len(self), length):
            yield Batch(ids[first : first + length], raws[first : first + length])


def sample_size(storage: Storage) -> int:
    """Return the number of records to sample: more of a larger collection, within a bounded size in bytes."""
    wanted = min(MOST, max(LEAST, RECORDS_PER_ROOT * storage.records**0.5))
    record_bytes = storage.nbytes / storage.records if storage.records else 0.0
    return max(STRETCHES, int(min(wanted, MOST_BYTES / max(1.0, record_bytes))))


def read_sample(context: Context, wanted: int, count: int) -> CollectionSample:
    """Read a sample; if the collection has less than twice as many records, read all of them.

    Args:
        context: The open connections.
        wanted: Records to read.
        count: Estimated number of records in the whole collection, whatever the filter.

    Raises:
        ConfigError: If the source has no records.
    """
    tried = min(count, min(STRETCHES, wanted) * DRAWN_PER_STRETCH)
    drawn = context.source.draw_ids(tried) if tried else []
    if tried and context.settings.source.condition:
        # Ids are drawn from all records; the share of them that the filter matches scales the count.
        count = round(count * len(drawn) / tried)
    if not drawn:
        batches = []
    elif count <= 2 * wanted:
        batches = list(first_records(context.source.batches(Window()), 4 * wanted))
        count = sum(map(len, batches))
    else:
        step = max(1, len(drawn) // min(STRETCHES, wanted))
        starts = drawn[step // 2 :: step]
        batches = [context.source.stretch(start, -(-wanted // len(starts))) for start in starts]
    rows: dict[bytes, tuple[int, bytes]] = {}
    for number, batch in enumerate(batches):
        for raw_id, raw in zip(batch.ids, batch.raws, strict=True):
            # Stretches may overlap. A record belongs to the first.
            rows.setdefault(raw_id, (number, raw))
    if not rows:
        matching = "that match [source] filter" if context.settings.source.condition else "to sample"
        raise ConfigError(f"{context.source_name} has no records {matching}")
    return CollectionSample(
        count=count,
        batch=Batch(list(rows), [raw for _, raw in rows.values()]),
        stretch=[number if count > len(rows) else 0 for number, _ in rows.values()],
        pages=drawn[:: max(1, len(drawn) // PAGES)],
    )
