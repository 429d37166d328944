"""Expectation: the verdicts of records from what was decided before they are carried out; pure.

What was expected holds as long as all that was to be kept is in the target.  What comes otherwise is noted by
text: then what relied on it is decided again, by the same rule and the same matches.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.document import UNIQUE, Action, Match, Verdict
from dedup_job.match.found import NO_DISTANCE
from dedup_job.plan import Plan

Numbers = npt.NDArray[np.int64]

CHANGED = Verdict(Action.UNJUDGED, "changed")


class Near(NamedTuple):
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
class Rows:
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
    near: Sequence[Sequence[Near]]
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

    def take(self, rows: Numbers) -> Rows:
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

    def note(self, rows: Rows, row: int, is_unique: bool) -> None:
        """Note how a record ended, where that was not expected."""
        if is_unique != rows.are_unique(slice(row, row + 1))[0]:
            self.standing[int(rows.text[row])] = rows.ids[row] if is_unique else None

    def learn(self, rows: Rows, plan: Plan) -> None:
        """Note how a plan for these records ended."""
        is_unique = np.zeros(len(rows), np.bool_)
        is_unique[plan.rows(Action.UNIQUE)] = True
        for row in np.flatnonzero(is_unique != rows.are_unique()).tolist():
            self.note(rows, row, bool(is_unique[row]))


class SparkDecision(NamedTuple):
    """The verdict of each record, and by id the keepers that they rely on, with the texts of these."""

    verdicts: list[Verdict]
    relied_on: dict[bytes, int]


def decide(rows: Rows, is_changed: npt.NDArray[np.bool_], deviations: Deviations) -> SparkDecision:
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


def _are_as_expected(rows: Rows, is_changed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which records are unique whatever has come otherwise: the first of a text that matches none."""
    is_alone = np.array([not near for near in rows.near], np.bool_)
    found: npt.NDArray[np.bool_] = rows.are_unique() & is_alone & ~is_changed
    return found


def _verdict(rows: Rows, row: int, deviations: Deviations, relied_on: dict[bytes, int]) -> Verdict:
    order, text = int(rows.order[row]), int(rows.text[row])
    keeper = deviations.keeper(text, rows.first[row], bool(rows.is_kept[row]), order)
    if keeper is not None:
        relied_on[keeper] = text
        return Verdict(Action.DUPLICATE, "exact", Match(keeper, 0, 1.0))
    for near in rows.near[row]:
        keeper = deviations.keeper(near.text, near.id, near.is_kept, order)
        if keeper is not None:
            relied_on[keeper] = near.text
            distance = None if near.distance == NO_DISTANCE else near.distance
            return Verdict(Action.DUPLICATE, "near", Match(keeper, distance, near.similarity))
    return UNIQUE
