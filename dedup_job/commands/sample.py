"""The sample: stretches of the collection, read as a run reads.

They begin at ids drawn at random and spread evenly.  Records drawn one by one would be read at another speed,
and copies that were stored beside each other would not show; the first records alone are the oldest ones,
which need not be like the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dedup_job.commands.context import Context, first_records
from dedup_job.document import Batch
from dedup_job.errors import ConfigError
from dedup_job.mongo.source import Storage
from dedup_job.mongo.window import Window

LEAST, MOST = 5_000, 50_000  # records, where nobody says how many
ROOTS = 6  # a sample of so many square roots of a collection meets dozens of pairs, if a third are copies
MOST_BYTES = 64 << 20
STRETCHES = 50
DRAWN_FOR_ONE = 20  # of about so many ids drawn, one begins a stretch: that spreads them evenly
PAGES = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """Records of the collection, in `_id` order.

    count    records of the whole collection, about
    storage  what it takes
    batch    the records
    stretch  the number of the stretch that each of them comes from
    pages    some ids apart from the stretches: what is there was not read yet
    """

    count: int
    storage: Storage
    batch: Batch
    stretch: Sequence[int]
    pages: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.batch)

    def cut(self, length: int) -> Iterator[Batch]:
        """Yield the records in batches of so many."""
        ids, raws = self.batch.ids, self.batch.raws
        for first in range(0, len(self), length):
            yield Batch(ids[first : first + length], raws[first : first + length])


def enough(storage: Storage) -> int:
    """Return how many records to sample: more of a larger collection, and a bounded number of bytes."""
    wanted = min(MOST, max(LEAST, ROOTS * storage.records**0.5))
    size = storage.nbytes / storage.records if storage.records else 0.0
    return max(STRETCHES, int(min(wanted, MOST_BYTES / max(1.0, size))))


def take(context: Context, asked: int | None) -> Sample:
    """Take so many records in stretches, or all where they are not twice as many; ConfigError for nothing."""
    storage = context.source.storage()
    wanted = asked or enough(storage)
    tried = min(storage.records, min(STRETCHES, wanted) * DRAWN_FOR_ONE)
    drawn = context.source.drawn(tried) if tried else []
    count = storage.records
    if tried and context.settings.source.condition:
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
    # Stretches may run into one another; a record belongs to the first.
    rows = {
        raw_id: (number, raw)
        for number, batch in reversed(list(enumerate(batches)))
        for raw_id, raw in zip(batch.ids, batch.raws, strict=True)
    }
    order = list(dict.fromkeys(raw_id for batch in batches for raw_id in batch.ids))
    if not order:
        raise ConfigError(f"{context.source_name}: found no records to estimate from; see [source] filter")
    return Sample(
        count=count,
        storage=storage,
        batch=Batch(order, [rows[raw_id][1] for raw_id in order]),
        stretch=[rows[raw_id][0] if count > len(order) else 0 for raw_id in order],
        pages=drawn[:: max(1, len(drawn) // PAGES)],
    )
