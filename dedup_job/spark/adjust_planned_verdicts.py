"""Read the verdicts that the `verdicts` stage planned, and decide again where a planned keeper is not one."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dedup_job.errors import StateError
from dedup_job.index.key_map_search import NO_DISTANCE
from dedup_job.records import UNIQUE, Action, KeeperMatch, Plan, Verdict
from dedup_job.spark.arrow_columns import column, matrix, numbers
from dedup_job.spark.spark_errors import named_errors
from dedup_job.spark.stage_files import Stage
from dedup_job.spark.work_folder import pattern_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]

# The verdict on a record that was changed since it was fingerprinted.
CHANGED = Verdict(Action.UNCHECKED, "changed")


class Phase(IntEnum):
    """The phases of the commit; a batch has records of one phase.

    With `[match] prefer` the duplicates come last: the keeper of a duplicate may come after it in the source.
    """

    REFERENCE = 0
    MAIN = 1
    DUPLICATES = 2


class ExpectedMatch(NamedTuple):
    """A text that matches the text of a record.

    Attributes:
        text: Number of the matching text: the `order` of the first record that has it.
        id: Raw id of its best record.
        is_kept: Whether the plan is to keep that record.
        distance: Hamming distance; NO_DISTANCE if one of the texts has no fingerprint.
        similarity: Jaccard similarity; None if the recipe does not compare texts.
        turn: Turn of its best record.
    """

    text: int
    id: bytes
    is_kept: bool
    distance: int
    similarity: float | None
    turn: int


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The planned verdicts of n records, as columns.

    Attributes:
        order: int64, shape (n,), position among all records of the references and the source.
        ids: Raw ids.
        text: int64, shape (n,), number of the record's text: the `order` of the first record that has it; -1
            for a record without a text to compare.
        turn: int64, shape (n,), position when the better records come first: the `order`, or with `[match]
            prefer` the position of the record when all are sorted best first.
        best_turn: int64, shape (n,), turn of the best record of the text.
        best: Raw id of the best record of the text.
        is_kept: bool, shape (n,), whether the best record of the text is kept.
        phase: int64, shape (n,), the `Phase` of its commit.
        near: The texts that match the record's text, the nearest and earliest first.
        preferences: The preference keys; see `preference_keys`.
        reasons: As in `Fingerprints`, as are the columns that follow.
        partial: bool, shape (n,).
        bits: uint64, shape (n, words).
        has_fingerprint: bool, shape (n,).
        keys: uint32, shape (n, bands).
        digests: uint64, shape (n, 2).
        hashes: uint64, shape (n, 2).
    """

    order: Numbers
    ids: Sequence[bytes]
    text: Numbers
    turn: Numbers
    best_turn: Numbers
    best: Sequence[bytes]
    is_kept: npt.NDArray[np.bool_]
    phase: Numbers
    near: Sequence[Sequence[ExpectedMatch]]
    preferences: Sequence[bytes]
    reasons: Sequence[str]
    partial: npt.NDArray[np.bool_]
    bits: npt.NDArray[np.uint64]
    has_fingerprint: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint32]
    digests: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.ids)

    def are_unique(self, rows: Numbers | slice = slice(None)) -> npt.NDArray[np.bool_]:
        """Return which records are planned to be unique, for all rows or for some."""
        found: npt.NDArray[np.bool_] = self.is_kept[rows] & (self.best_turn[rows] == self.turn[rows])
        return found

    def take(self, rows: Numbers) -> ExpectedRows:
        """Return some of the rows.

        Args:
            rows: Row numbers, ascending and distinct.
        """
        if len(rows) == len(self):
            return self
        values: dict[str, Any] = {}
        for name in self.__slots__:
            column = getattr(self, name)
            is_array = isinstance(column, np.ndarray)
            values[name] = column[rows] if is_array else [column[row] for row in rows.tolist()]
        return replace(self, **values)


@dataclass(frozen=True, slots=True)
class Deviations:
    """The texts whose keeper is not the planned one.

    Attributes:
        standing: By number of the text, the raw id of its keeper; None if the text has no keeper.
    """

    standing: MutableMapping[int, bytes | None] = field(default_factory=dict)

    def trial(self) -> Deviations:
        """Return a copy that can be changed; the original stays unchanged."""
        # Layered on the original, not copied: a batch is decided again for each round of lost keepers.
        return Deviations(ChainMap({}, self.standing))

    def keeper(self, near: ExpectedMatch, turn: int) -> bytes | None:
        """Return the keeper of a text at the time when a record is decided, or None.

        Args:
            near: The text.
            turn: Turn of the record to decide. The best record of a text is no keeper for better records.
        """
        if near.text in self.standing:
            return self.standing[near.text]
        return near.id if near.is_kept and near.turn < turn else None

    def note(self, rows: ExpectedRows, row: int, is_unique: bool) -> None:
        """Note the outcome of a record, if it is not the planned one."""
        if is_unique == rows.are_unique(slice(row, row + 1))[0]:
            return
        text = int(rows.text[row])
        # Reference records are all kept; the first record with a text is its keeper.
        if is_unique and rows.phase[row] == Phase.REFERENCE and self.standing.get(text, b"") is not None:
            return
        self.standing[text] = rows.ids[row] if is_unique else None

    def learn(self, rows: ExpectedRows, plan: Plan) -> None:
        """Note the outcomes of a committed plan for these records."""
        is_unique = np.zeros(len(rows), np.bool_)
        is_unique[plan.rows(Action.UNIQUE)] = True
        for row in np.flatnonzero(is_unique != rows.are_unique()).tolist():
            self.note(rows, row, bool(is_unique[row]))


class SparkDecision(NamedTuple):
    """The verdicts of a batch.

    Attributes:
        verdicts: One for each record.
        relied_on: The keepers of its duplicates: raw id and number of the text.
    """

    verdicts: list[Verdict]
    relied_on: dict[bytes, int]


def decide(rows: ExpectedRows, is_changed: npt.NDArray[np.bool_], deviations: Deviations) -> SparkDecision:
    """Decide records in order: as planned, or by their matches if a keeper is not the planned one.

    Args:
        rows: The planned verdicts.
        is_changed: bool, shape (n,), whether the record was changed since it was fingerprinted; such a record
            is copied without being compared.
        deviations: Outcomes before these records; stays unchanged.
    """
    trial = deviations.trial()
    verdicts = [UNIQUE] * len(rows)
    relied_on: dict[bytes, int] = {}
    for row in np.flatnonzero(~_are_as_expected(rows, is_changed)).tolist():
        if is_changed[row]:
            verdict = CHANGED
        elif rows.text[row] < 0:
            verdict = Verdict(Action.UNCHECKED, rows.reasons[row])
        else:
            verdict = _verdict(rows, row, trial, relied_on)
        verdicts[row] = verdict
        # A unique record of the last phase is not committed: nothing may rely on it.
        trial.note(rows, row, verdict is UNIQUE and rows.phase[row] != Phase.DUPLICATES)
    return SparkDecision(verdicts, relied_on)


def _are_as_expected(rows: ExpectedRows, is_changed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which records are unique for certain: the first of a text without any match.

    No deviation can change their verdict, so most records need no further work.
    """
    is_alone = np.array([not near for near in rows.near], np.bool_)
    found: npt.NDArray[np.bool_] = rows.are_unique() & is_alone & ~is_changed
    return found


def _verdict(rows: ExpectedRows, row: int, deviations: Deviations, relied_on: dict[bytes, int]) -> Verdict:
    turn, text = int(rows.turn[row]), int(rows.text[row])
    own = ExpectedMatch(text, rows.best[row], bool(rows.is_kept[row]), 0, 1.0, int(rows.best_turn[row]))
    keeper = deviations.keeper(own, turn)
    if keeper is not None:
        relied_on[keeper] = text
        return Verdict(Action.DUPLICATE, "exact", KeeperMatch(keeper, 0, 1.0))
    for near in rows.near[row]:
        keeper = deviations.keeper(near, turn)
        if keeper is not None:
            relied_on[keeper] = near.text
            distance = None if near.distance == NO_DISTANCE else near.distance
            return Verdict(Action.DUPLICATE, "near", KeeperMatch(keeper, distance, near.similarity))
    return UNIQUE


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
        order=numbers(table, "order"),
        ids=column(table, "id").to_pylist(),
        text=_filled(table, "text", -1),
        turn=_filled(table, "turn", -1),
        best_turn=_filled(table, "best_turn", -1),
        best=column(table, "best").to_pylist(),
        is_kept=_filled(table, "is_kept", False),
        phase=numbers(table, "phase"),
        near=[_near(found) for found in column(table, "matches").to_pylist()],
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


def _near(found: list[dict[str, Any]] | None) -> list[ExpectedMatch]:
    return [
        ExpectedMatch(
            one["other"], one["id"], one["is_kept"], one["distance"], one["similarity"], one["turn"]
        )
        for one in found or ()
    ]


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
