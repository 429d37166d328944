"""Read and fingerprint ranges of the source on Spark executors, one task for each range."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dedup_job.fingerprint.recipe import Recipe
from dedup_job.pipeline.fingerprint_workers import Capacity, FingerprintWorkers
from dedup_job.pipeline.skip_restored_and_long_ids import skip_records
from dedup_job.preference.preference_ranks import BEST
from dedup_job.records import Batch
from dedup_job.spark.arrow_columns import POSITION_BITS, RECORDS, ddl, records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SourceRange:
    """A range of ids, in the server's order.

    Attributes:
        start: First id, included; None for the smallest.
        before: End of the range, not included; None for no end.
        is_one: Whether the range is the single id `start`.
        reference: Position of the reference collection among the settings; None for the source.
    """

    start: bytes | None = None
    before: bytes | None = None
    is_one: bool = False
    reference: int | None = None


def ranges(splits: Sequence[bytes], last: bytes | None, reference: int | None = None) -> list[SourceRange]:
    """Divide the source, or a reference, into ranges.

    Args:
        splits: Ids, ascending; each begins a range.
        last: The greatest id of the source: records that arrive behind it later are not read. None for no
            limit.
        reference: Position of the reference collection among the settings; None for the source.
    """
    starts: list[bytes | None] = [None, *splits]
    bounds = zip(starts, [*splits, last], strict=True)
    found = [SourceRange(start, before, reference=reference) for start, before in bounds]
    # `before` is not included, so the record with the greatest id gets a range of its own.
    return [*found, SourceRange(last, None, True, reference)] if last is not None else found


def read(
    spark: SparkSession,
    all_ranges: Sequence[SourceRange],
    batches: Callable[[SourceRange], Iterator[Batch]],
    recipe: Recipe,
    capacity: Capacity,
    restored: frozenset[bytes],
) -> DataFrame:
    """Read and fingerprint ranges, in one task for each.

    Args:
        spark: The session.
        all_ranges: The ranges of the source and of the references, at least one.
        batches: Yields the records of a range, in order. Spark sends it with each task, so it can be pickled.
        recipe: The recipe of the run.
        capacity: Limits of each task's engine.
        restored: Ids of restored records, which are copied without being compared.

    Returns:
        A table with the columns of `arrow_columns.RECORDS`.
    """

    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The workers of this process.
        engine = _engine(recipe, capacity, os.getpid())
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                first = number << POSITION_BITS
                range_ = all_ranges[number]
                fingerprinted = engine.fingerprint_batches(batches(range_))
                for read_, prints in skip_records(fingerprinted, restored.intersection):
                    if range_.reference is not None and prints.ranks is not None:
                        # A reference record stays where it is, so no record may be better.
                        prints = replace(prints, ranks=np.full_like(prints.ranks, BEST))
                    yield records(read_.ids, prints, first)
                    first += len(read_)

    return spark.range(0, len(all_ranges), 1, len(all_ranges)).mapInArrow(work, ddl(RECORDS))


@lru_cache(maxsize=1)
def _engine(recipe: Recipe, capacity: Capacity, _process: int) -> FingerprintWorkers:
    """Return the engine of this process, which lives as long as the process.

    Spark reuses a Python process for many tasks, and starting workers takes seconds.  The process id is an
    argument because Spark forks: a child must not use its parent's workers.
    """
    return FingerprintWorkers(recipe, capacity).__enter__()
