"""The decision stages: from fingerprints to a planned verdict for each record."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dedup_job.native.compiled import compiled
from dedup_job.spark.columns import numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.similarity import ShingleSets, similarities_at_least
from dedup_job.native.arrays import Ragged
from dedup_job.spark import candidates
from dedup_job.spark.candidates import PAIRS, TEXTS, Batches
from dedup_job.spark.columns import POSITION_BITS, RECORDS, ddl, in_batches, sets
from dedup_job.spark.stages import Stage, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Numbers = npt.NDArray[np.int64]


class Edges(NamedTuple):
    """Matches of two texts, the later and the earlier one, both int64 (n,)."""

    later: Numbers
    earlier: Numbers


def dropped(edges: Edges) -> Numbers:
    """Return the texts that are dropped, ascending.

    Of a chain 0 - 1 - 2 only the middle one is:

    >>> dropped(Edges(np.array([1, 2]), np.array([0, 1])))
    array([1])
    """
    texts, places = np.unique(np.concatenate(edges), return_inverse=True)
    later, earlier = places[: len(edges.later)], places[len(edges.later) :]
    order = np.argsort(later, kind="stable")
    is_dropped = _dropped_texts(later[order], earlier[order], len(texts))
    found: Numbers = texts[is_dropped]
    return found


@compiled
def _dropped_texts(later: Numbers, earlier: Numbers, texts: int) -> npt.NDArray[np.bool_]:
    """Go over the edges in the order of their later texts; all edges of earlier texts come before."""
    is_dropped = np.zeros(texts, np.bool_)
    for edge in range(len(later)):
        if not is_dropped[earlier[edge]]:
            is_dropped[later[edge]] = True
    return is_dropped


def dropped_in_rounds(edges: DataFrame, few: int, folder: str) -> DataFrame:
    """Return the texts that are dropped, as a column `text`.

    edges   columns `later` and `earlier`, bigint
    few     so many edges the driver settles by itself
    folder  that all executors reach: what a round leaves has to outlive them
    """
    from pyspark.sql import functions as f

    edges.sparkSession.sparkContext.setCheckpointDir(folder)
    found: list[DataFrame] = []
    open_ = edges.checkpoint()
    while open_.count() > few:
        settled = open_.select(f.col("earlier").alias("text")).distinct()
        settled = settled.join(open_.select(f.col("later").alias("text")).distinct(), "text", "left_anti")
        kept = settled.withColumnRenamed("text", "earlier")
        fallen = open_.join(kept, "earlier", "left_semi").select(f.col("later").alias("text")).distinct()
        fallen = fallen.checkpoint()
        found.append(fallen)
        for name in ("later", "earlier"):
            open_ = open_.join(fallen.withColumnRenamed("text", name), name, "left_anti")
        open_ = open_.checkpoint()
    table = open_.select("later", "earlier").toArrow()
    last = dropped(Edges(numbers(table, "later"), numbers(table, "earlier")))
    found.append(edges.sparkSession.createDataFrame(pa.table({"text": pa.array(last, pa.int64())})))
    return reduce(lambda one, other: one.union(other), found)


COMPARED = pa.schema([("part", pa.int64()), *PAIRS, ("order", pa.int64()), ("shingles", pa.binary())])
MATCHES = pa.schema([*PAIRS, ("similarity", pa.float64())])
ENTRIES_AT_ONCE = 2_000_000  # of a partition, about: 50 bytes of memory each
PAIRS_AT_ONCE = 100_000  # of a partition, about, with the shingles of their texts
CROWDS = 4  # a key is crowded that has more than one in so many of a partition's entries,
CROWD = 4_000  # and at least so many
FEW_EDGES = 20_000_000  # matches that the driver settles by itself, rather than Spark in rounds


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides how the work is cut up, and the verdicts.

    words       64-bit words of a fingerprint
    partitions  that a stage has at least
    """

    matching: Matching
    words: int
    partitions: int


def decided(work: Work, records: Stage, shape: Shape) -> Stage:
    """Return what is expected for each record; each stage is made where it is not whole."""
    texts = work.stage("texts", lambda: _texts(records.table))
    pairs = work.stage("pairs", lambda: _pairs(texts, shape))
    matches = work.stage("matches", lambda: _matches(records.table, pairs, shape))
    without = work.stage("dropped", lambda: _dropped(matches, shape, work.path("rounds")))
    parts = (records.table, texts.table, matches.table, without.table)
    return work.stage("verdicts", lambda: _verdicts(*parts, shape), by="range")


def _texts(records: DataFrame) -> DataFrame:
    """Return each different text with the first record that has it."""
    from pyspark.sql import functions as f

    known = ("id", "bits", "near", "keys")
    first = f.min(f.struct("order", *known)).alias("first")
    found = _judged(records).groupBy("digest").agg(first, (f.count("*") > 1).alias("again"))
    columns = [f.col("first.order").alias("text"), *(f.col(f"first.{name}") for name in known)]
    return found.select(*columns, "digest", "again").select(TEXTS.names)


def _judged(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return records.where(f.col("digest") != f.lit(bytes(16)))


def _pairs(texts: Stage, shape: Shape) -> DataFrame:
    """Return for each text the candidates that its keys find."""
    rows = texts.manifest.rows * (8 * shape.words + shape.matching.bands)
    parts = max(shape.partitions, -(-rows // ENTRIES_AT_ONCE))
    crowd = max(CROWD, rows // parts // CROWDS)
    return candidates.found(texts.table, shape.matching, candidates.Cut(shape.words, parts, crowd))


def _matches(records: DataFrame, pairs: Stage, shape: Shape) -> DataFrame:
    """Return the pairs that are similar enough; with texts not compared all are, and have no similarity.

    Pairs are grouped by their texts, and each group gets the shingles that it needs once, however many of
    its pairs a text is in: of a form, the same few texts are in nearly all.
    """
    from pyspark.sql import functions as f

    least = shape.matching.min_similarity
    if not least:
        return pairs.table.withColumn("similarity", f.lit(None).cast("double"))
    parts = max(shape.partitions, -(-pairs.manifest.rows // PAIRS_AT_ONCE))
    grouped = pairs.table.withColumn("part", f.pmod(f.hash("text"), f.lit(parts)))
    wanted = grouped.select("part", f.col("text").alias("order"))
    wanted = wanted.union(grouped.select("part", "other")).distinct()
    shingles = wanted.join(records.select("order", "shingles"), "order")
    both = shingles.unionByName(grouped, allowMissingColumns=True)

    def compared(batches: Batches) -> Batches:
        yield from in_batches(similar([batch.cast(COMPARED) for batch in filter(len, batches)], least))

    return both.select(COMPARED.names).repartitionById(parts, "part").mapInArrow(compared, ddl(MATCHES))


def similar(batches: list[pa.RecordBatch], least: float) -> pa.Table:
    """Return those of some pairs that are similar enough; with them come the shingles of their texts.

    A row is a pair, or the shingles of the text with an `order`, which may come more than once; in any order.
    """
    table = pa.Table.from_batches(batches, schema=COMPARED)
    is_set = table.column("shingles").is_valid()
    pairs, with_sets = table.filter(pc.invert(is_set)), table.filter(is_set)
    pieces = [sets(chunk) for chunk in with_sets.column("shingles").chunks]
    known = Ragged.join(pieces) if pieces else Ragged.empty(0)
    orders, rows = np.unique(numbers(with_sets, "order"), return_index=True)
    ones, others = (rows[np.searchsorted(orders, numbers(pairs, name))] for name in ("text", "other"))
    as_sets = ShingleSets(known.offsets, known.values)
    found = similarities_at_least(as_sets, ones, as_sets, others, least)
    columns = [*(pairs.column(name) for name in PAIRS.names), pa.array(found)]
    return pa.table(columns, schema=MATCHES).filter(pa.array(found >= least))


def _dropped(matches: Stage, shape: Shape, folder: str) -> DataFrame:
    """Return the texts that are dropped when they first come."""
    edges = matches.table.where("other < text").select("text", "other")
    if matches.manifest.rows > FEW_EDGES:
        edges = edges.select(edges.text.alias("later"), edges.other.alias("earlier"))
        return dropped_in_rounds(edges, FEW_EDGES, folder)
    table = edges.toArrow()
    found = dropped(Edges(numbers(table, "text"), numbers(table, "other")))
    return edges.sparkSession.createDataFrame(pa.table({"text": pa.array(found, pa.int64())}))


def _verdicts(
    records: DataFrame, texts: DataFrame, matches: DataFrame, without: DataFrame, shape: Shape
) -> DataFrame:
    """Return each record with its text, whether that is kept, and what matches it."""
    from pyspark.sql import functions as f

    is_kept = f.col("is_dropped").isNull().alias("is_kept")
    marks = without.withColumn("is_dropped", f.lit(True))
    known = (
        texts.select("text", "id", "digest")
        .join(marks, "text", "left")
        .select("text", "id", "digest", is_kept)
    )
    others = known.select(f.col("text").alias("other"), "id", "is_kept")
    near = f.array_sort(f.collect_list(f.struct("distance", "other", "similarity", "is_kept", "id")))
    around = matches.join(others, "other").groupBy("text").agg(near.alias("matches"))
    known = known.join(around, "text", "left")
    judged = _judged(records.drop("shingles"))
    judged = judged.join(known.withColumnRenamed("id", "first"), "digest")
    unjudged = records.drop("shingles").where(f.col("digest") == f.lit(bytes(16)))
    expected = judged.unionByName(unjudged, allowMissingColumns=True)
    expected = expected.withColumn("range", f.shiftright("order", POSITION_BITS).cast("int"))
    return expected.repartitionById(shape.partitions, "range").sortWithinPartitions("range", "order")


def read_into(ranges: int, read: Callable[[Batches], Batches], spark: Any) -> DataFrame:
    """Return the records of so many ranges, each read by a task of its own."""
    table: DataFrame = spark.range(0, ranges, 1, max(1, ranges)).mapInArrow(read, ddl(RECORDS))
    return table
