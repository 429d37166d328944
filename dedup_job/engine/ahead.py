"""Reading ahead: what comes next is read by a thread while what came before is worked on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(things: Iterable[T]) -> Iterator[T]:
    """Yield things in order, one of them read in advance; an error comes where its thing would have."""
    source = iter(things)
    reader = ThreadPoolExecutor(1, "reader")
    try:
        coming = reader.submit(next, source, None)
        while (thing := coming.result()) is not None:
            coming = reader.submit(next, source, None)
            yield thing
    finally:
        reader.shutdown(wait=False, cancel_futures=True)  # a run that stops does not wait for the server
