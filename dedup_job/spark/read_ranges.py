"""Read and fingerprint ranges of the source, one executor each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from dedup_job.fingerprint.recipe import Recipe
from dedup_job.pipeline.local_engine import Capacity, LocalEngine
from dedup_job.pipeline.skip_records import skip_records
from dedup_job.records import Batch, FingerprintedBatch
from dedup_job.spark.columns import POSITION_BITS, records


@dataclass(frozen=True, slots=True)
class SourceRange:
    """A range of ids in the server's order.

    start    id to begin with, or None for the smallest
    before   id to end before, or None
    is_one   whether it is the record with the id `start` alone
    """

    start: bytes | None = None
    before: bytes | None = None
    is_one: bool = False


class SourceReader(Protocol):
    """How an executor reads the source; can be pickled."""

    def batches(self, range_: SourceRange) -> Iterator[Batch]:
        """Yield the records of a range in order."""
        ...


@dataclass(frozen=True, slots=True)
class ExecutorFingerprinting:
    """How an executor fingerprints; `restored` are the ids of records that are copied unseen."""

    recipe: Recipe
    capacity: Capacity
    restored: frozenset[bytes]

    def fingerprint(self, batches: Iterable[Batch]) -> Iterator[FingerprintedBatch]:
        """Yield batches with their fingerprints, made by this process's engine."""
        engine = _engine(self.recipe, self.capacity, os.getpid())
        return skip_records(engine.fingerprinted(batches), self.restored.intersection)


def ranges(splits: Sequence[bytes], last: bytes | None) -> list[SourceRange]:
    """Return the ranges that ascending ids split a source into, up to the last id that it has."""
    starts: list[bytes | None] = [None, *splits]
    if last is None:
        return [SourceRange(start, before) for start, before in zip(starts, [*splits, None], strict=True)]
    found = [SourceRange(start, before) for start, before in zip(starts, [*splits, last], strict=True)]
    return [*found, SourceRange(start=last, is_one=True)]


def read(
    all_ranges: Sequence[SourceRange], reading: SourceReader, fingerprinting: ExecutorFingerprinting
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what turns the numbers of ranges into fingerprinted records."""

    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                first = number << POSITION_BITS
                batches = reading.batches(all_ranges[number])
                for read_, prints in fingerprinting.fingerprint(batches):
                    yield records(read_.ids, prints, first)
                    first += len(read_)

    return work


@lru_cache(maxsize=1)
def _engine(recipe: Recipe, capacity: Capacity, _process: int) -> LocalEngine:
    """Return an engine that lives as long as this process; its workers do not outlive it."""
    return LocalEngine(recipe, capacity).__enter__()
