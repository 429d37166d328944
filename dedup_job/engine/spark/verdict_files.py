"""What is expected, read from the files of its stage in the order of the records."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dedup_job.engine.spark.columns import column, matrix, numbers
from dedup_job.engine.spark.expectation import Deviations, Near, Rows
from dedup_job.engine.spark.session import named_errors
from dedup_job.engine.spark.stages import Stage
from dedup_job.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE = re.compile(r"/range=(\d+)/")


def tables(spark: SparkSession, verdicts: Stage) -> Iterator[pa.Table]:
    """Yield the files of the stage, in order: by their ranges, and in a range as they were written."""
    files = sorted((int(RANGE.search(file)[1]), file) for file in verdicts.table.inputFiles())  # type: ignore[index]
    schema = verdicts.table.drop("range").schema
    for _, file in files:
        with named_errors("verdicts"):
            table = spark.read.schema(schema).parquet(file).toArrow()
        yield table


def first_of(tables: Iterator[pa.Table]) -> tuple[int, Iterator[pa.Table]]:
    """Return the order of the first row, and the tables again; 0 where there are none."""
    table = next((one for one in tables if len(one)), None)
    return (0, tables) if table is None else (table.column("order")[0].as_py(), chain([table], tables))


def chunks(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """Yield the same rows in pieces of so many, the last one shorter."""
    left: pa.Table | None = None
    for table in tables:
        left = table if left is None else pa.concat_tables([left, table])
        start = 0
        while len(left) - start >= most:
            yield left.slice(start, most)
            start += most
        left = left.slice(start)
    if left is not None and len(left):
        yield left


def rows(table: pa.Table) -> Rows:
    """Return rows of the stage as columns."""
    table = table.combine_chunks()
    judged = column(table, "text")
    return Rows(
        order=numbers(table, "order"),
        ids=column(table, "id").to_pylist(),
        text=judged.fill_null(-1).to_numpy(zero_copy_only=False),
        is_kept=column(table, "is_kept").fill_null(False).to_numpy(zero_copy_only=False),
        first=column(table, "first").to_pylist(),
        near=[_near(found) for found in column(table, "matches").to_pylist()],
        reasons=column(table, "reason").to_pylist(),
        bits=matrix(column(table, "bits"), np.uint64),
        has_fingerprint=numbers(table, "near"),
        keys=matrix(column(table, "keys"), np.uint32),
        digests=matrix(column(table, "digest"), np.uint64),
        hashes=matrix(column(table, "hash"), np.uint64),
    )


def _near(found: list[dict[str, object]] | None) -> list[Near]:
    return [
        Near(one["other"], one["id"], one["is_kept"], one["distance"], one["similarity"])  # type: ignore[arg-type]
        for one in found or ()
    ]


def so_far(
    decided: Iterable[tuple[Iterable[bytes], Collection[bytes]]], tables: Iterator[pa.Table]
) -> tuple[Deviations, Iterator[pa.Table]]:
    """Return what has come otherwise in plans that were carried out, and the rows behind these.

    decided  of each plan the ids of its records, and those of them that were kept for their texts

    Raises StateError when something else was decided than what is expected.
    """
    deviations = Deviations()
    table, known, place = None, None, 0
    for ids, kept in decided:
        for raw_id in ids:
            while known is None or place == len(known) or known.ids[place] != raw_id:
                if known is not None and place < len(known):
                    deviations.note(known, place, False)  # it was gone already
                    place += 1
                elif (table := next(tables, None)) is None:
                    raise StateError(
                        "the ledger no longer matches what was decided on Spark; use --engine local"
                    )
                else:
                    known, place = rows(table), 0
            deviations.note(known, place, raw_id in kept)
            place += 1
    return deviations, chain([table.slice(place)] if table is not None else [], tables)
