"""Reading ahead: what comes next is read by a thread while the one before is worked on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from dedup_job.signals import FLAG
from dedup_job.threads import Threads

T = TypeVar("T")


def read_ahead(batches: Iterable[T]) -> Iterator[T]:
    """Yield the batches in order, one of them read in advance; an error comes where its batch would have."""
    source = iter(batches)
    reader = Threads(1)
    try:
        coming = reader.submit(next, source, None)
        while (batch := FLAG.result(coming)) is not None:
            coming = reader.submit(next, source, None)
            yield batch
    finally:
        reader.stop()  # a run that stops does not wait for the server
