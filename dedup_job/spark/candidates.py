"""The candidate stage: for each distinct text, the texts that share a key with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dedup_job.fingerprint.recipe import Matching
from dedup_job.spark import key_join
from dedup_job.spark.columns import column, ddl, in_batches, matrix, numbers, whole
from dedup_job.spark.key_join import CrowdedKeys, KeyEntries

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
    ]
)
FOUND = pa.schema([("text", pa.int64()), ("other", pa.int64()), ("by", pa.int64()), ("distance", pa.int64())])
PAIRS = pa.schema([("text", pa.int64()), ("other", pa.int64()), ("distance", pa.int64())])
KEYS = pa.schema([("key", pa.int64())])
KEYS_AT_ONCE = 1_000  # crowded ones in a partition, with the texts that they are remembered with
EACH = 16  # one text in so many is looked at to tell which keys are crowded

Batches = Iterator[pa.RecordBatch]

log = logging.getLogger("dedup_job")


@dataclass(frozen=True, slots=True)
class Cut:
    """How the work is cut up; what is found does not depend on it.

    words   64-bit words of a fingerprint
    parts   partitions of entries
    crowd   texts from which on those of one key are spread over several partitions, about so many to each
    """

    words: int
    parts: int
    crowd: int

    @property
    def schema(self) -> pa.Schema:
        """Of entries."""
        words = [(f"bits{word}", pa.int64()) for word in range(self.words)]
        flags = [(name, pa.bool_()) for name in ("has_fingerprint", "again", "asks")]
        return pa.schema([("place", pa.int64()), ("text", pa.int64()), *words, *flags])

    def rows(self, entries: KeyEntries) -> Batches:
        """Yield entries as rows."""
        words = [np.ascontiguousarray(word).view(np.int64) for word in entries.bits.T]
        columns = [entries.place, entries.text, *words, entries.has_fingerprint, entries.again, entries.asks]
        return in_batches(pa.table(columns, schema=self.schema))

    def entries(self, batches: Batches) -> KeyEntries:
        """Return all rows of a partition as entries."""
        table = whole(batches, self.schema)
        words = [numbers(table, f"bits{word}").view(np.uint64) for word in range(self.words)]
        known = {name: numbers(table, name) for name in ("place", "text", "has_fingerprint", "again", "asks")}
        return KeyEntries(bits=np.stack(words, axis=1), **known)


def found(texts: DataFrame, matching: Matching, cut: Cut) -> DataFrame:
    """Return for each text the candidates that its keys find, as `PAIRS`."""
    crowded = _crowded(texts, matching, cut.crowd)

    def with_keys(batches: Batches) -> Batches:
        for own in _entries(batches, matching):
            yield from cut.rows(key_join.spread(own, crowded))

    def by_key(batches: Batches) -> Batches:
        yield from in_batches(pa.table(list(key_join.pairs(cut.entries(batches), matching)), schema=FOUND))

    def by_text(batches: Batches) -> Batches:
        table = whole(batches, FOUND)
        met = key_join.first_found(key_join.FoundPairs(*(numbers(table, name) for name in FOUND.names)))
        yield from in_batches(pa.table([met.text, met.other, met.distance], schema=PAIRS))

    entries = texts.mapInArrow(with_keys, ddl(cut.schema))
    if len(crowded.keys):
        log.info(
            "crowded keys", extra={"fields": {"keys": len(crowded.keys), "parts": int(crowded.parts.sum())}}
        )
        entries = entries.union(_listed(texts, matching, cut, crowded))
    by_part = entries.repartition(cut.parts, "place").mapInArrow(by_key, ddl(FOUND))
    return by_part.repartition(cut.parts, "text").mapInArrow(by_text, ddl(PAIRS))


def _crowded(texts: DataFrame, matching: Matching, crowd: int) -> CrowdedKeys:
    """Return the keys that so many texts have, by some of the texts, and how many parts each is cut into."""
    from pyspark.sql import functions as f

    def keys(batches: Batches) -> Batches:
        for own in _entries(batches, matching):
            yield from in_batches(pa.table([own.place], schema=KEYS))

    some = texts.where(f.pmod("text", f.lit(EACH)) == 0).mapInArrow(keys, ddl(KEYS))
    counted = some.groupBy("key").count().where(f.col("count") * EACH > crowd).orderBy("key").toArrow()
    parts = -(-numbers(counted, "count") * EACH // crowd)
    return CrowdedKeys(numbers(counted, "key"), parts)


def _listed(texts: DataFrame, matching: Matching, cut: Cut, crowded: CrowdedKeys) -> DataFrame:
    """Return the texts that crowded keys are remembered with, once for each part of a key."""

    def first(batches: Batches) -> Batches:
        listed: list[KeyEntries] = []
        for own in _entries(batches, matching):
            some = own.take(np.isin(own.place, crowded.keys))
            listed = [key_join.first_listed(KeyEntries.join([*listed, some]))]
        for own in listed:
            yield from cut.rows(own)

    def in_every_part(batches: Batches) -> Batches:
        listed = key_join.first_listed(cut.entries(batches))
        yield from cut.rows(key_join.in_every_part(listed, crowded))

    of_each = texts.mapInArrow(first, ddl(cut.schema))
    few = -(-len(crowded.keys) // KEYS_AT_ONCE)
    return of_each.repartition(few, "place").mapInArrow(in_every_part, ddl(cut.schema))


def _entries(batches: Batches, matching: Matching) -> Iterator[KeyEntries]:
    """Yield the entries of texts under all their keys."""
    for batch in filter(len, batches):
        table = pa.Table.from_batches([batch.cast(TEXTS)])
        texts = key_join.DistinctTexts(
            text=numbers(table, "text"),
            bits=matrix(column(table, "bits"), np.uint64),
            has_fingerprint=numbers(table, "near"),
            keys=matrix(column(table, "keys"), np.uint32),
            again=numbers(table, "again"),
        )
        yield key_join.entries(texts, matching)
