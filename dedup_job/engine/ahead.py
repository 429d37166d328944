"""Reading ahead: the next batch is read by a thread while the one before is worked on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from dedup_job.document import Batch
from dedup_job.signals import FLAG


def read_ahead(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the batches in order, one of them read in advance; an error comes where its batch would have."""
    source = iter(batches)
    reader = ThreadPoolExecutor(1, "reader")
    try:
        coming = reader.submit(next, source, None)
        while (batch := FLAG.result(coming)) is not None:
            coming = reader.submit(next, source, None)
            yield batch
    finally:
        reader.shutdown(wait=False, cancel_futures=True)  # a run that stops does not wait for the server
