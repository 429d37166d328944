"""Planned verdicts: read from the stage's files, and adjusted to what was really kept."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dedup_job.errors import StateError
from dedup_job.index.search import NO_DISTANCE
from dedup_job.records import UNIQUE, Action, KeeperMatch, Plan, Verdict
from dedup_job.spark.columns import column, matrix, numbers
from dedup_job.spark.session import named_errors
from dedup_job.spark.stages import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]

CHANGED = Verdict(Action.UNJUDGED, "changed")


class ExpectedMatch(NamedTuple):
    """A text that matches another.

    text        the order of the first record that has it
    id          of that record
    is_kept     whether it was expected to be kept
    similarity  None where texts are not compared
    """

    text: int
    id: bytes
    is_kept: bool
    distance: int
    similarity: float | None


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """What was expected for n records, as columns.

    order    int64 (n,), where they come among all records
    text     int64 (n,), the order of the first record with their text; -1 for one that cannot be judged
    is_kept  bool (n,), whether the text is kept with its first record
    first    ids of the first records with their texts
    near     the texts that match a record's text, the nearest and earliest first
    reasons, bits, has_fingerprint, keys, digests, hashes  as in Fingerprints
    """

    order: Numbers
    ids: Sequence[bytes]
    text: Numbers
    is_kept: npt.NDArray[np.bool_]
    first: Sequence[bytes]
    near: Sequence[Sequence[ExpectedMatch]]
    reasons: Sequence[str]
    bits: npt.NDArray[np.uint64]
    has_fingerprint: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint32]
    digests: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.ids)

    def are_unique(self, rows: Numbers | slice = slice(None)) -> npt.NDArray[np.bool_]:
        """Return which records are expected to be unique, of all or of some rows."""
        found: npt.NDArray[np.bool_] = self.is_kept[rows] & (self.text[rows] == self.order[rows])
        return found

    def take(self, rows: Numbers) -> ExpectedRows:
        """Return some of the rows, in ascending order."""
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
    """What stands for a text where that is not what was expected: by text, the id of a record, or None."""

    standing: MutableMapping[int, bytes | None] = field(default_factory=dict)

    def trial(self) -> Deviations:
        """Return the same to go on from; this one stays as it is."""
        return Deviations(ChainMap({}, self.standing))

    def keeper(self, text: int, first: bytes, is_kept: bool, order: int) -> bytes | None:
        """Return what stands for a text when the record of this order is decided."""
        if text in self.standing:
            return self.standing[text]
        return first if is_kept and text < order else None

    def note(self, rows: ExpectedRows, row: int, is_unique: bool) -> None:
        """Note how a record ended, where that was not expected."""
        if is_unique != rows.are_unique(slice(row, row + 1))[0]:
            self.standing[int(rows.text[row])] = rows.ids[row] if is_unique else None

    def learn(self, rows: ExpectedRows, plan: Plan) -> None:
        """Note how a plan for these records ended."""
        is_unique = np.zeros(len(rows), np.bool_)
        is_unique[plan.rows(Action.UNIQUE)] = True
        for row in np.flatnonzero(is_unique != rows.are_unique()).tolist():
            self.note(rows, row, bool(is_unique[row]))


class SparkDecision(NamedTuple):
    """The verdict of each record, and by id the keepers that they rely on, with the texts of these."""

    verdicts: list[Verdict]
    relied_on: dict[bytes, int]


def decide(rows: ExpectedRows, is_changed: npt.NDArray[np.bool_], deviations: Deviations) -> SparkDecision:
    """Decide records in their order, as expected where nothing has come otherwise.

    is_changed  bool (n,), whose record is another by now: it is copied
    """
    trial = deviations.trial()
    verdicts = [UNIQUE] * len(rows)
    relied_on: dict[bytes, int] = {}
    for row in np.flatnonzero(~_are_as_expected(rows, is_changed)).tolist():
        if is_changed[row]:
            verdict = CHANGED
        elif rows.text[row] < 0:
            verdict = Verdict(Action.UNJUDGED, rows.reasons[row])
        else:
            verdict = _verdict(rows, row, trial, relied_on)
        verdicts[row] = verdict
        trial.note(rows, row, verdict is UNIQUE)
    return SparkDecision(verdicts, relied_on)


def _are_as_expected(rows: ExpectedRows, is_changed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which records are unique whatever has come otherwise: the first of a text that matches none."""
    is_alone = np.array([not near for near in rows.near], np.bool_)
    found: npt.NDArray[np.bool_] = rows.are_unique() & is_alone & ~is_changed
    return found


def _verdict(rows: ExpectedRows, row: int, deviations: Deviations, relied_on: dict[bytes, int]) -> Verdict:
    order, text = int(rows.order[row]), int(rows.text[row])
    keeper = deviations.keeper(text, rows.first[row], bool(rows.is_kept[row]), order)
    if keeper is not None:
        relied_on[keeper] = text
        return Verdict(Action.DUPLICATE, "exact", KeeperMatch(keeper, 0, 1.0))
    for near in rows.near[row]:
        keeper = deviations.keeper(near.text, near.id, near.is_kept, order)
        if keeper is not None:
            relied_on[keeper] = near.text
            distance = None if near.distance == NO_DISTANCE else near.distance
            return Verdict(Action.DUPLICATE, "near", KeeperMatch(keeper, distance, near.similarity))
    return UNIQUE


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


def rows(table: pa.Table) -> ExpectedRows:
    """Return rows of the stage as columns."""
    table = table.combine_chunks()
    judged = column(table, "text")
    return ExpectedRows(
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


def _near(found: list[dict[str, object]] | None) -> list[ExpectedMatch]:
    return [
        ExpectedMatch(one["other"], one["id"], one["is_kept"], one["distance"], one["similarity"])  # type: ignore[arg-type]
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
