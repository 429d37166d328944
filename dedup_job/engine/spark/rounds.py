"""Rounds: the independent set where the matches are too many for one machine."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from dedup_job.engine.spark.columns import numbers
from dedup_job.engine.spark.independent import Edges, dropped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
