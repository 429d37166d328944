"""Reading: ranges of the source, each read and fingerprinted by one executor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from dedup_job.document import Batch
from dedup_job.engine.exempt import WithExempt
from dedup_job.engine.local import Capacity, LocalEngine
from dedup_job.engine.spark.columns import POSITION_BITS, records
from dedup_job.fingerprint.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Range:
    """A range of ids in the server's order.

    start    id to begin with, or None for the smallest
    before   id to end before, or None
    is_one   whether it is the record with the id `start` alone
    """

    start: bytes | None = None
    before: bytes | None = None
    is_one: bool = False


class Reading(Protocol):
    """How an executor reads the source; can be pickled."""

    def batches(self, range_: Range) -> Iterator[Batch]:
        """Yield the records of a range in order."""
        ...


@dataclass(frozen=True, slots=True)
class Fingerprinting:
    """How an executor fingerprints; `restored` are the ids of records that are copied unseen."""

    recipe: Recipe
    capacity: Capacity
    restored: frozenset[bytes]

    def engine(self) -> WithExempt:
        """Return this process's engine."""
        return WithExempt(_engine(self.recipe, self.capacity, os.getpid()), self.restored.intersection)


def ranges(splits: Sequence[bytes], last: bytes | None) -> list[Range]:
    """Return the ranges that ascending ids split a source into, up to the last id that it has."""
    starts: list[bytes | None] = [None, *splits]
    if last is None:
        return [Range(start, before) for start, before in zip(starts, [*splits, None], strict=True)]
    found = [Range(start, before) for start, before in zip(starts, [*splits, last], strict=True)]
    return [*found, Range(start=last, is_one=True)]


def read(
    all_ranges: Sequence[Range], reading: Reading, fingerprinting: Fingerprinting
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what turns the numbers of ranges into fingerprinted records."""

    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                first = number << POSITION_BITS
                batches = reading.batches(all_ranges[number])
                for read_, prints in fingerprinting.engine().fingerprinted(batches):
                    yield records(read_.ids, prints, first)
                    first += len(read_)

    return work


@lru_cache(maxsize=1)
def _engine(recipe: Recipe, capacity: Capacity, _process: int) -> LocalEngine:
    """Return an engine that lives as long as this process; its workers do not outlive it."""
    return LocalEngine(recipe, capacity).__enter__()
