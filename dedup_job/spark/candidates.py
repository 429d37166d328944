"""The candidate stage: join distinct texts on their keys, to find the candidates of each text.

Entries with the same key are processed by the same task.  A crowded key, one of the few that very many texts
have, is divided among several tasks, so that no task waits for a single key.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dedup_job.fingerprint.recipe import Matching
from dedup_job.spark import partition_search
from dedup_job.spark.arrow_columns import column, ddl, in_batches, matrix, numbers, whole
from dedup_job.spark.partition_search import CrowdedKeys, KeyEntries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TEXTS = pa.schema(
    [
        ("text", pa.int64()),
        ("id", pa.binary()),
        ("digest", pa.binary()),
        ("bits", pa.binary()),
        ("near", pa.bool_()),
        ("keys", pa.binary()),
        ("again", pa.bool_()),
        ("asks", pa.bool_()),
        ("turn", pa.int64()),
    ]
)
# Columns of `partition_search.FoundPairs`.
FOUND = pa.schema([("text", pa.int64()), ("other", pa.int64()), ("by", pa.int64()), ("distance", pa.int64())])
PAIRS = pa.schema([("text", pa.int64()), ("other", pa.int64()), ("distance", pa.int64())])
KEYS = pa.schema([("key", pa.int64())])
# Crowded keys in one partition; each has at most `candidate_index.LISTED` listed texts.
KEYS_AT_ONCE = 1_000
# Crowded keys are counted in a sample of one text in 16.  Which keys are crowded affects the division of work
# only, so an estimate is good enough.
EACH = 16

Batches = Iterator[pa.RecordBatch]

log = logging.getLogger("dedup_job")


@dataclass(frozen=True, slots=True)
class Cut:
    """How the work is divided among tasks; the candidates do not depend on it.

    Attributes:
        words: 64-bit words in a fingerprint.
        parts: Number of partitions of the entries.
        crowd: A key with more texts than this is crowded: its texts are divided among several parts, with
            about this number in each.
    """

    words: int
    parts: int
    crowd: int

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a row for each of `KeyEntries`; one column for each word of a fingerprint."""
        words = [(f"bits{word}", pa.int64()) for word in range(self.words)]
        flags = [(name, pa.bool_()) for name in ("has_fingerprint", "again", "asks")]
        return pa.schema([("place", pa.int64()), ("text", pa.int64()), *words, *flags])

    def rows(self, entries: KeyEntries) -> Batches:
        """Convert entries to Arrow rows with this schema."""
        # Spark has no unsigned integers: the same 64 bits are sent as int64.
        words = [np.ascontiguousarray(word).view(np.int64) for word in entries.bits.T]
        columns = [entries.place, entries.text, *words, entries.has_fingerprint, entries.again, entries.asks]
        return in_batches(pa.table(columns, schema=self.schema))

    def entries(self, batches: Batches) -> KeyEntries:
        """Convert all rows of a partition back to entries."""
        table = whole(batches, self.schema)
        words = [numbers(table, f"bits{word}").view(np.uint64) for word in range(self.words)]
        known = {name: numbers(table, name) for name in ("place", "text", "has_fingerprint", "again", "asks")}
        return KeyEntries(bits=np.stack(words, axis=1), **known)


def found(texts: DataFrame, matching: Matching, cut: Cut) -> DataFrame:
    """Find the candidates of each text.

    Args:
        texts: One row for each distinct text, with the columns of `TEXTS`.
        matching: The limits on keys and distances, from the recipe.
        cut: How the work is divided among tasks.

    Returns:
        One row for each pair of a text and its candidate, with the columns of `PAIRS`.
    """
    crowded = _crowded(texts, matching, cut.crowd)

    def with_keys(batches: Batches) -> Batches:
        for own in _entries(batches, matching):
            yield from cut.rows(partition_search.spread(own, crowded))

    def by_key(batches: Batches) -> Batches:
        yield from in_batches(
            pa.table(list(partition_search.pairs(cut.entries(batches), matching)), schema=FOUND)
        )

    def by_text(batches: Batches) -> Batches:
        table = whole(batches, FOUND)
        met = partition_search.first_found(
            partition_search.FoundPairs(*(numbers(table, name) for name in FOUND.names))
        )
        yield from in_batches(pa.table([met.text, met.other, met.distance], schema=PAIRS))

    # The nested functions run on executors, in Python: PySpark pickles them with the values they use.
    entries = texts.mapInArrow(with_keys, ddl(cut.schema))
    if len(crowded.keys):
        log.info(
            "crowded keys", extra={"fields": {"keys": len(crowded.keys), "parts": int(crowded.parts.sum())}}
        )
        entries = entries.union(_listed(texts, matching, cut, crowded))
    # Two shuffles: the limit per key needs all texts of a key, the limit per query all hits of a text.
    by_part = entries.repartition(cut.parts, "place").mapInArrow(by_key, ddl(FOUND))
    return by_part.repartition(cut.parts, "text").mapInArrow(by_text, ddl(PAIRS))


def _crowded(texts: DataFrame, matching: Matching, crowd: int) -> CrowdedKeys:
    """Estimate, from a sample of the texts, which keys are crowded and the number of parts for each.

    Args:
        texts: One row for each distinct text.
        matching: From the recipe.
        crowd: The largest number of texts of a key that is not crowded.
    """
    from pyspark.sql import functions as f

    def keys(batches: Batches) -> Batches:
        for own in _entries(batches, matching):
            yield from in_batches(pa.table([own.place], schema=KEYS))

    some = texts.where(f.pmod("text", f.lit(EACH)) == 0).mapInArrow(keys, ddl(KEYS))
    counted = some.groupBy("key").count().where(f.col("count") * EACH > crowd).orderBy("key").toArrow()
    # Division rounded up.
    parts = -(-numbers(counted, "count") * EACH // crowd)
    return CrowdedKeys(numbers(counted, "key"), parts)


def _listed(texts: DataFrame, matching: Matching, cut: Cut, crowded: CrowdedKeys) -> DataFrame:
    """Return the listed texts of the crowded keys, one copy for each part of a key.

    The index stores the first `candidate_index.LISTED` texts of a key, and only these can be found.  Each
    part of a crowded key gets all of them, so that its queries find the same texts as in a single part.
    """

    def first(batches: Batches) -> Batches:
        listed: list[KeyEntries] = []
        # Reduced after each batch, so that memory is bounded by the listed texts, not by the partition.
        for own in _entries(batches, matching):
            some = own.take(np.isin(own.place, crowded.keys))
            listed = [partition_search.first_listed(KeyEntries.join([*listed, some]))]
        for own in listed:
            yield from cut.rows(own)

    def in_every_part(batches: Batches) -> Batches:
        listed = partition_search.first_listed(cut.entries(batches))
        yield from cut.rows(partition_search.in_every_part(listed, crowded))

    of_each = texts.mapInArrow(first, ddl(cut.schema))
    few = -(-len(crowded.keys) // KEYS_AT_ONCE)
    return of_each.repartition(few, "place").mapInArrow(in_every_part, ddl(cut.schema))


def _entries(batches: Batches, matching: Matching) -> Iterator[KeyEntries]:
    """Yield the entries of the texts in each batch, one entry for each key of a text."""
    for batch in filter(len, batches):
        # Spark's Arrow batches can differ in nullability, and by configuration in offset width.
        table = pa.Table.from_batches([batch.cast(TEXTS)])
        texts = partition_search.DistinctTexts(
            text=numbers(table, "text"),
            bits=matrix(column(table, "bits"), np.uint64),
            has_fingerprint=numbers(table, "near"),
            keys=matrix(column(table, "keys"), np.uint32),
            again=numbers(table, "again"),
            asks=numbers(table, "asks"),
        )
        yield partition_search.entries(texts, matching)
