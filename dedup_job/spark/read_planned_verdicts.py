"""Read the verdicts that the `verdicts` stage planned, from the first one that is not committed yet."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dedup_job.errors import StateError
from dedup_job.spark.arrow_columns import column, matrix, numbers
from dedup_job.spark.check_and_commit_verdicts import Deviations, ExpectedMatch, ExpectedRows
from dedup_job.spark.spark_errors import named_errors
from dedup_job.spark.stage_files import Stage
from dedup_job.spark.work_folder import pattern_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The folder that Spark's partitionBy("range") makes: the last one, as the work folder may have any name.
RANGE = re.compile(r"/range=(\d+)/[^/]*$")


def tables(spark: SparkSession, verdicts: Stage, folder: str) -> Iterator[pa.Table]:
    """Yield the contents of the stage's files in the order of the source.

    Args:
        spark: The session.
        verdicts: The `verdicts` stage.
        folder: The work folder, for error messages.
    """
    # Read one by one on the driver: Spark promises no order for a table of many files.  Names of files in a
    # folder ascend in the order of writing.
    files = sorted((int(RANGE.search(file)[1]), file) for file in verdicts.table.inputFiles())  # type: ignore[index]
    schema = verdicts.table.drop("range").schema
    for _, file in files:
        with named_errors("verdicts", folder):
            table = spark.read.schema(schema).parquet(pattern_of(file)).toArrow()
        yield table


def first_of(tables: Iterator[pa.Table]) -> tuple[int, Iterator[pa.Table]]:
    """Return the `order` of the first row, and an iterator that still has all tables.

    The order is 0 if there are no rows.
    """
    table = next((one for one in tables if len(one)), None)
    return (0, tables) if table is None else (table.column("order")[0].as_py(), chain([table], tables))


def chunks(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of exactly `most` rows; the last table of a phase may be shorter."""
    for _, of_phase in groupby(filter(len, tables), lambda table: table.column("phase")[0].as_py()):
        yield from _chunks(of_phase, most)


def _chunks(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
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


def rows(table: pa.Table) -> ExpectedRows:
    """Convert rows of the `verdicts` stage to numpy columns and lists."""
    table = table.combine_chunks()
    return ExpectedRows(
        ids=column(table, "id").to_pylist(),
        text=_filled(table, "text", -1),
        turn=_filled(table, "turn", -1),
        best_turn=_filled(table, "best_turn", -1),
        best=column(table, "best").to_pylist(),
        is_kept=_filled(table, "is_kept", False),
        phase=numbers(table, "phase"),
        near=[
            [ExpectedMatch(**match) for match in matches or ()]
            for matches in column(table, "matches").to_pylist()
        ],
        preferences=column(table, "preference").to_pylist(),
        reasons=column(table, "reason").to_pylist(),
        partial=numbers(table, "partial"),
        bits=matrix(column(table, "bits"), np.uint64),
        has_fingerprint=numbers(table, "near"),
        keys=matrix(column(table, "keys"), np.uint32),
        digests=matrix(column(table, "digest"), np.uint64),
        hashes=matrix(column(table, "hash"), np.uint64),
    )


def _filled(table: pa.Table, name: str, value: object) -> npt.NDArray[Any]:
    """Return a column with nulls, which records without a text have, replaced by a value."""
    array: npt.NDArray[Any] = column(table, name).fill_null(value).to_numpy(zero_copy_only=False)
    return array


def so_far(
    decided: Iterable[tuple[Iterable[bytes], Collection[bytes]]], tables: Iterator[pa.Table]
) -> tuple[Deviations, Iterator[pa.Table]]:
    """Skip the planned verdicts that the ledger already holds, when a killed backfill is resumed.

    Args:
        decided: For each plan of the ledger, the ids of its records, and the ids of the records that were
            kept as keepers.
        tables: Tables of the `verdicts` stage, in order.

    Returns:
        The deviations of the committed plans, and the rows that are not committed yet.

    Raises:
        StateError: If the ledger has a record that is not in the stage, or is out of order.
    """
    deviations = Deviations()
    table, known, place = None, None, 0
    for ids, kept in decided:
        for raw_id in ids:
            while known is None or place == len(known) or known.ids[place] != raw_id:
                if known is not None and place < len(known):
                    # Not in the ledger: deleted from the source before its batch was committed.
                    deviations.note(known, place, False)
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
