"""The decision stages: from fingerprinted records to a planned verdict for each record.

The kept texts are the lexicographically first maximal independent set of the graph of matches: a text is kept
unless it matches a kept text that comes before it.  Texts come in the order of the source or, with `[match]
prefer`, best first; texts of a reference come before all others.  Large graphs are decided in parallel rounds
(Blelloch, Fineman and Shun, "Greedy Sequential Maximal Independent Set and Matching are Parallel on Average",
SPAA 2012).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.shingle_similarity import ShingleSets, similarities_at_least
from dedup_job.native.arrays import Flags, Numbers, Ragged
from dedup_job.native.numba_compile import compiled
from dedup_job.spark import candidates
from dedup_job.spark.arrow_columns import POSITION_BITS, ddl, in_batches, numbers, sets
from dedup_job.spark.candidates import PAIRS, TEXTS, Batches
from dedup_job.spark.check_and_commit_verdicts import Phase
from dedup_job.spark.stage_files import Stage, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def dropped(later: Numbers, earlier: Numbers) -> Numbers:
    """Return the texts that are dropped, in ascending order.

    In a chain 0 - 1 - 2 only text 1 is dropped: text 2 matches no text that is kept.

    Args:
        later: int64, shape (n,), number of the later text of each pair of matching texts.
        earlier: int64, shape (n,), number of the earlier text.

    >>> dropped(np.array([1, 2]), np.array([0, 1]))
    array([1])
    """
    texts, places = np.unique(np.concatenate([later, earlier]), return_inverse=True)
    later_places, earlier_places = np.split(places, 2)
    order = np.argsort(later_places, kind="stable")
    is_dropped = _dropped_texts(later_places[order], earlier_places[order], len(texts))
    found: Numbers = texts[is_dropped]
    return found


@compiled
def _dropped_texts(later: Numbers, earlier: Numbers, texts: int) -> Flags:
    """Decide all texts in one pass over the edges.

    Args:
        later: int64, shape (edges,), ascending.
        earlier: int64, shape (edges,), each less than `later`.
        texts: Number of texts.

    Returns:
        bool, shape (texts,).
    """
    # The edges are sorted by their later text, so the earlier text of an edge is always decided already.
    is_dropped = np.zeros(texts, np.bool_)
    for edge in range(len(later)):
        if not is_dropped[earlier[edge]]:
            is_dropped[later[edge]] = True
    return is_dropped


def dropped_here(edges: DataFrame) -> DataFrame:
    """Find the texts that are dropped, on the driver; see `dropped_in_rounds`."""
    table = edges.toArrow()
    found = dropped(numbers(table, "later"), numbers(table, "earlier"))
    return edges.sparkSession.createDataFrame(pa.table({"text": pa.array(found, pa.int64())}))


def dropped_in_rounds(edges: DataFrame, few: int, folder: str) -> DataFrame:
    """Find the texts that are dropped, in rounds on Spark.

    A round keeps the texts that are not the later text of any edge, drops the texts that match them, and
    removes the edges of dropped texts.

    Args:
        edges: Columns `later` and `earlier`, bigint.
        few: With at most this many edges left, the driver decides them itself.
        folder: Where checkpoints are written; all executors must reach it.

    Returns:
        One column `text`.
    """
    from pyspark.sql import functions as f

    # A checkpoint after each round: otherwise Spark's query plan doubles with every round, and a lost
    # executor would restart all rounds.
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
    found.append(dropped_here(open_))
    return reduce(lambda one, other: one.union(other), found)


# Input of a comparison.  A row is either a pair, or a text with its shingles.
COMPARED = pa.schema([("part", pa.int64()), *PAIRS, ("order", pa.int64()), ("shingles", pa.binary())])
MATCHES = pa.schema([*PAIRS, ("similarity", pa.float64())])
# Average entries of a partition: about 50 bytes of memory each.
ENTRIES_AT_ONCE = 2_000_000
# Average pairs of a partition, which also holds the shingles of their texts.
PAIRS_AT_ONCE = 100_000
# A key is crowded if it has more than a quarter of a partition's average entries, and more than 4,000.
CROWDS = 4
CROWD = 4_000
# Up to this many matches the driver decides by itself: rounds on Spark have a fixed cost.
FEW_EDGES = 20_000_000


# Added to the numbers of ranges in the last phase.
DUPLICATE_RANGES = 1 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of the decision stages.

    Attributes:
        recipe: The recipe; the verdicts depend on it.
        partitions: Least number of partitions of a stage; the verdicts do not depend on it.
        first_order: `order` from which records are of the source; those before are of references.
    """

    recipe: Recipe
    partitions: int
    first_order: int


def decided(work: Work, records: Stage, shape: Shape) -> Stage:
    """Decide all records; stages that are already complete in the work folder are reused.

    Args:
        work: The work folder.
        records: The `records` stage, with the columns of `arrow_columns.RECORDS`.
        shape: The recipe and the division of the work.

    Returns:
        The `verdicts` stage, one folder of files for each range of the source.
    """
    ranked = _in_turn(work, records.table, shape)
    texts = work.stage("texts", lambda: _texts(ranked, shape))
    pairs = work.stage("pairs", lambda: _pairs(texts, shape))
    matches = work.stage("matches", lambda: _matches(records.table, pairs, shape))
    without = work.stage("dropped", lambda: _dropped(matches, texts.table, shape, work.path("rounds")))
    parts = (ranked, texts.table, matches.table, without.table)
    return work.stage("verdicts", lambda: _verdicts(*parts, shape), by="range")


def _in_turn(work: Work, records: DataFrame, shape: Shape) -> DataFrame:
    """Return the records with column `turn`: a smaller number for the better of two records.

    Without `[match] prefer` the earlier record is the better one.
    """
    from pyspark.sql import functions as f

    if not shape.recipe.matching.prefer:
        return records.withColumn("turn", f.col("order"))

    def sorted_best_first() -> DataFrame:
        keys = _judged(records).select("order", "preference").orderBy("preference")
        # Partitions of a sorted table are in order, and so are these numbers.
        return keys.select("order", f.monotonically_increasing_id().alias("turn"))

    return records.join(work.stage("turns", sorted_best_first).table, "order", "left")


def _texts(records: DataFrame, shape: Shape) -> DataFrame:
    """Return each distinct text with its best record, numbered by the first record that has it.

    Column `again` says whether to find later texts as well as earlier ones: for a text with several records,
    and with `[match] prefer`, where a later record may be better.  References' texts need no candidates.
    """
    from pyspark.sql import functions as f

    known = ("id", "bits", "near", "keys")
    best = f.min(f.struct("turn", *known)).alias("best")
    again = f.lit(True) if shape.recipe.matching.prefer else f.count("*") > 1
    found = _judged(records).groupBy("digest").agg(f.min("order").alias("text"), best, again.alias("again"))
    asks = (f.col("text") >= shape.first_order).alias("asks")
    columns = [f.col(f"best.{name}") for name in ("turn", *known)]
    return found.select("text", *columns, "digest", "again", asks).select(TEXTS.names)


def _judged(records: DataFrame) -> DataFrame:
    """Return the records that have a text to compare: a digest of zeros marks the others."""
    from pyspark.sql import functions as f

    return records.where(f.col("digest") != f.lit(bytes(16)))


def _pairs(texts: Stage, shape: Shape) -> DataFrame:
    """Return the candidates of each text."""
    # An upper bound of the entries: a 64-bit word has four segments, with two keys each.
    words = shape.recipe.bits // 64
    rows = texts.manifest.rows * (8 * words + shape.recipe.matching.bands)
    parts = max(shape.partitions, -(-rows // ENTRIES_AT_ONCE))
    crowd = max(CROWD, rows // parts // CROWDS)
    return candidates.found(texts.table, shape.recipe.matching, candidates.Cut(words, parts, crowd))


def _matches(records: DataFrame, pairs: Stage, shape: Shape) -> DataFrame:
    """Return the pairs with at least the least similarity of the recipe.

    If the recipe does not compare texts (`min_similarity` 0), all pairs match, with a null similarity.

    Pairs are grouped by their texts, and each group gets the shingles of a text once, even if the text is in
    many of its pairs: when texts are made from a form, the same few texts are in nearly all pairs.
    """
    from pyspark.sql import functions as f

    least, group_words = shape.recipe.matching.min_similarity, shape.recipe.group_words
    if not least:
        return pairs.table.withColumn("similarity", f.lit(None).cast("double"))
    parts = max(shape.partitions, -(-pairs.manifest.rows // PAIRS_AT_ONCE))
    grouped = pairs.table.withColumn("part", f.pmod(f.hash("text"), f.lit(parts)))
    wanted = grouped.select("part", f.col("text").alias("order"))
    wanted = wanted.union(grouped.select("part", "other")).distinct()
    shingles = wanted.join(records.select("order", "shingles"), "order")
    # Pairs and shingles travel in one table, since mapInArrow takes only one; nulls distinguish their rows.
    both = shingles.unionByName(grouped, allowMissingColumns=True)

    def compared(batches: Batches) -> Batches:
        rows = [batch.cast(COMPARED) for batch in filter(len, batches)]
        yield from in_batches(similar(rows, least, group_words))

    return both.select(COMPARED.names).repartitionById(parts, "part").mapInArrow(compared, ddl(MATCHES))


def similar(batches: list[pa.RecordBatch], least: float, group_words: int = 0) -> pa.Table:
    """Compare pairs of texts, and return the pairs that are similar enough.

    Args:
        batches: Rows with the columns of `COMPARED`, in any order. A row is either a pair, or an `order` with
            the shingles of that text, which may be repeated.
        least: Least similarity.
        group_words: 32-bit words of the group before the shingles of a text.

    Returns:
        The matching pairs, with the columns of `MATCHES`.
    """
    table = pa.Table.from_batches(batches, schema=COMPARED)
    is_set = table.column("shingles").is_valid()
    pairs, with_sets = table.filter(pc.invert(is_set)), table.filter(is_set)
    pieces = [sets(chunk) for chunk in with_sets.column("shingles").chunks]
    known = Ragged.join(pieces) if pieces else Ragged.empty(0)
    orders, rows = np.unique(numbers(with_sets, "order"), return_index=True)
    ones, others = (rows[np.searchsorted(orders, numbers(pairs, name))] for name in ("text", "other"))
    as_sets = ShingleSets(known.offsets, known.values, group_words)
    found = similarities_at_least(as_sets, ones, as_sets, others, least)
    columns = [*(pairs.column(name) for name in PAIRS.names), pa.array(found)]
    return pa.table(columns, schema=MATCHES).filter(pa.array(found >= least))


def _dropped(matches: Stage, texts: DataFrame, shape: Shape, folder: str) -> DataFrame:
    """Return the texts whose best record is dropped, by their turns."""
    from pyspark.sql import functions as f

    pairs = matches.table.select("text", "other")
    if shape.recipe.matching.prefer:
        turns = texts.select("text", "turn")
        pairs = pairs.join(turns, "text").select("other", f.col("turn").alias("worse"))
        pairs = pairs.join(turns.withColumnRenamed("text", "other"), "other")
        pairs = pairs.select(f.col("worse").alias("text"), f.col("turn").alias("other"))
    # A text that occurs again can also match later texts; only earlier texts decide its first record.
    edges = pairs.where("other < text").select(f.col("text").alias("later"), f.col("other").alias("earlier"))
    is_few = matches.manifest.rows <= FEW_EDGES
    found = dropped_here(edges) if is_few else dropped_in_rounds(edges, FEW_EDGES, folder)
    return found.withColumnRenamed("text", "turn")


def _verdicts(
    records: DataFrame, texts: DataFrame, matches: DataFrame, without: DataFrame, shape: Shape
) -> DataFrame:
    """Return each record with its text, whether the text is kept, and the texts that match it.

    Args:
        records: The fingerprinted records, with their turns.
        texts: The distinct texts.
        matches: Pairs of texts that match.
        without: The texts that are dropped, by their turns.
        shape: Gives the least number of partitions.
    """
    from pyspark.sql import functions as f

    is_kept = f.col("is_dropped").isNull().alias("is_kept")
    marks = without.withColumn("is_dropped", f.lit(True))
    known = (
        texts.select("text", "id", "digest", "turn")
        .join(marks, "turn", "left")
        .select("text", f.col("id").alias("best"), f.col("turn").alias("best_turn"), "digest", is_kept)
    )
    keeper = ("is_kept", f.col("best").alias("id"), f.col("best_turn").alias("turn"))
    others = known.select(f.col("text").alias("other"), *keeper)
    # The fields of `ExpectedMatch`, sorted by in this order: the nearest candidate wins, then the earliest.
    near = f.array_sort(f.collect_list(f.struct("distance", "other", "similarity", "is_kept", "id", "turn")))
    around = matches.join(others, "other").groupBy("text").agg(near.alias("matches"))
    known = known.join(around, "text", "left")
    judged = _judged(records.drop("shingles")).join(known, "digest")
    unchecked = records.drop("shingles").where(f.col("digest") == f.lit(bytes(16)))
    expected = judged.unionByName(unchecked, allowMissingColumns=True)
    is_duplicate = ~(f.col("is_kept") & (f.col("turn") == f.col("best_turn")))
    phase = f.when(f.col("order") < shape.first_order, int(Phase.REFERENCE))
    if shape.recipe.matching.prefer:
        phase = phase.when(is_duplicate, int(Phase.DUPLICATES))
    expected = expected.withColumn("phase", phase.otherwise(int(Phase.MAIN)).cast("bigint"))
    after = f.when(f.col("phase") == int(Phase.DUPLICATES), DUPLICATE_RANGES).otherwise(0)
    expected = expected.withColumn("range", (f.shiftright("order", POSITION_BITS) + after).cast("int"))
    return expected.repartitionById(shape.partitions, "range").sortWithinPartitions("range", "order")
