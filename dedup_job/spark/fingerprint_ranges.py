"""Read and fingerprint ranges of the source and of references on Spark executors, one task for each range."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dedup_job.config import Settings
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.mongo.mark_field import MarkField
from dedup_job.mongo.pages import MAX_KEY, BatchSize, Window
from dedup_job.mongo.read_rate_limit import Pace
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.source import Members, Source
from dedup_job.pipeline.command_context import connect_to, make_reference, read_rates, retry_policy
from dedup_job.pipeline.fingerprint_workers import Capacity, FingerprintWorkers
from dedup_job.pipeline.skip_restored_and_long_ids import skip_records
from dedup_job.preference.preference_ranks import BEST
from dedup_job.records import Batch
from dedup_job.spark.arrow_columns import POSITION_BITS, RECORDS, ddl, records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_A_RANGE = 100_000
# Random ids per range.  Every 20th id begins a range, which makes the ranges about equal.
DRAWN_A_RANGE = 20


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


def ranges(source: Source, least: int, reference: int | None = None) -> list[SourceRange]:
    """Divide a collection into about equal ranges; records that arrive behind its last id are in none.

    Args:
        source: Reads the collection.
        least: Least number of ranges, if there are enough records.
        reference: Position of the reference collection among the settings; None for the source.
    """
    count = max(least, -(-source.estimated_count() // RECORDS_A_RANGE))
    drawn = source.draw_ids(DRAWN_A_RANGE * count)
    splits = [drawn[len(drawn) * place // count] for place in range(1, count)] if drawn else []
    last = source.last()
    bounds = [None, *dict.fromkeys(splits), None if last == MAX_KEY else last]
    found = [SourceRange(start, before, reference=reference) for start, before in pairwise(bounds)]
    # `before` is not included, so the record with the greatest id gets a range of its own.
    return [*found, SourceRange(bounds[-1], None, True, reference)] if bounds[-1] is not None else found


@dataclass(frozen=True, slots=True)
class SourceReading:
    """Reads ranges of the source and of references on an executor, with a share of the rate limit.

    Attributes:
        settings: The settings of the backfill.
        uri: Connection string of the source.
        reference_uris: Connection string of each reference.
        share: Number of tasks that read at the same time.
        members: The members from which records are read.
    """

    settings: Settings
    uri: str
    reference_uris: Sequence[str]
    share: int
    members: Members

    def batches(self, range_: SourceRange) -> Iterator[Batch]:
        """Yield the records of a range, in order; reference records as the job sees them."""
        settings, limits = self.settings.source, self.settings.limits
        retry, pace = retry_policy(self.settings), Pace(read_rates(self.settings, self.share))
        size = BatchSize(limits.batch_records, limits.batch_mb << 20)
        if range_.reference is None:
            with connect_to(self.settings, self.uri, "source") as client:
                found = client[settings.database][settings.collection]
                collection = RetryingCollection(found, "the source", retry)
                read = MarkField(self.settings.mark.field).without
                source = Source(collection, settings.condition, size, pace, read, self.members)
                yield from _read_range(source, range_)
            return
        named = self.settings.reference[range_.reference]
        name = f"reference {named.full_name}"
        with connect_to(self.settings, self.reference_uris[range_.reference], name) as client:
            found = client[named.database][named.collection]
            records = Source(RetryingCollection(found, f"the {name}", retry), {}, size, pace)
            reference = make_reference(self.settings, range_.reference, records)
            yield from map(reference.views, _read_range(records, range_))


def _read_range(source: Source, range_: SourceRange) -> Iterator[Batch]:
    if not range_.is_one:
        yield from source.batches(Window(start=range_.start, before=range_.before))
    elif range_.start is not None and (batch := source.stretch(range_.start, 1)).ids == [range_.start]:
        yield batch


def read(
    spark: SparkSession,
    all_ranges: Sequence[SourceRange],
    reading: SourceReading,
    recipe: Recipe,
    restored: frozenset[bytes],
) -> DataFrame:
    """Read and fingerprint ranges, in one task for each.

    Args:
        spark: The session.
        all_ranges: The ranges of the source and of the references, at least one.
        reading: Reads a range. Spark sends it with each task, so it can be pickled.
        recipe: The recipe of the run.
        restored: Ids of restored records, which are copied without being compared.

    Returns:
        A table with the columns of `arrow_columns.RECORDS`.
    """
    limits = reading.settings.limits
    capacity = Capacity(1, limits.in_flight_mb << 20, limits.record_seconds)

    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The workers of this process.
        engine = _engine(recipe, capacity, os.getpid())
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                first = number << POSITION_BITS
                range_ = all_ranges[number]
                fingerprinted = engine.fingerprint_batches(reading.batches(range_))
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
