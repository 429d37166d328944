"""Re-read each record, check its planned verdict or decide it again, and commit the verdicts in order."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.index.key_map_search import NO_DISTANCE
from dedup_job.mongo.pages import prefetch
from dedup_job.native.arrays import Flags, Numbers
from dedup_job.pipeline.job import Observe
from dedup_job.preference.preference_ranks import ranks_in
from dedup_job.records import UNIQUE, Action, Batch, Counts, KeeperMatch, Plan, Verdict, digests

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
        other: Number of the matching text: the `order` of the first record that has it.
        id: Raw id of its best record.
        is_kept: Whether the plan is to keep that record.
        distance: Hamming distance; NO_DISTANCE if one of the texts has no fingerprint.
        similarity: Jaccard similarity; None if the recipe does not compare texts.
        turn: Turn of its best record.
    """

    other: int
    id: bytes
    is_kept: bool
    distance: int
    similarity: float | None
    turn: int


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The planned verdicts of n records, as columns.

    Attributes:
        ids: Raw ids.
        text: int64, shape (n,), number of the record's text: the `order` of the first record that has it; -1
            for a record without a text to compare.
        turn: int64, shape (n,), position when the better records come first: their `order`, or with `[match]
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

    ids: Sequence[bytes]
    text: Numbers
    turn: Numbers
    best_turn: Numbers
    best: Sequence[bytes]
    is_kept: Flags
    phase: Numbers
    near: Sequence[Sequence[ExpectedMatch]]
    preferences: Sequence[bytes]
    reasons: Sequence[str]
    partial: Flags
    bits: npt.NDArray[np.uint64]
    has_fingerprint: Flags
    keys: npt.NDArray[np.uint32]
    digests: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.ids)

    def are_unique(self, rows: Numbers | slice = slice(None)) -> Flags:
        """Return which records are planned to be unique, for all rows or for some."""
        found: Flags = self.is_kept[rows] & (self.best_turn[rows] == self.turn[rows])
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

    def keeper(self, near: ExpectedMatch, turn: int) -> bytes | None:
        """Return the keeper of a text at the time when a record is decided, or None.

        Args:
            near: The text.
            turn: Turn of the record to decide. The best record of a text is no keeper for better records.
        """
        if near.other in self.standing:
            return self.standing[near.other]
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


def decide(
    rows: ExpectedRows, is_changed: Flags, deviations: Deviations
) -> tuple[list[Verdict], dict[bytes, int]]:
    """Decide records in order: as planned, or by their matches if a keeper is not the planned one.

    Args:
        rows: The planned verdicts.
        is_changed: bool, shape (n,), whether the record was changed since it was fingerprinted; such a record
            is copied without being compared.
        deviations: Outcomes before these records; stays unchanged.

    Returns:
        The verdict on each record, and the keepers of the duplicates: by raw id, the number of the text.
    """
    # Layered on the original, not copied: a batch is decided again for each round of lost keepers.
    trial = Deviations(ChainMap({}, deviations.standing))
    verdicts = [UNIQUE] * len(rows)
    relied_on: dict[bytes, int] = {}
    # No deviation can change the verdict on the first record of a text without any match: these are most.
    is_alone = np.array([not near for near in rows.near], np.bool_)
    is_certain = rows.are_unique() & is_alone & ~is_changed
    for row in np.flatnonzero(~is_certain).tolist():
        if is_changed[row]:
            verdict = CHANGED
        elif rows.text[row] < 0:
            verdict = Verdict(Action.UNCHECKED, rows.reasons[row])
        else:
            verdict = _verdict(rows, row, trial, relied_on)
        verdicts[row] = verdict
        # A unique record of the last phase is not committed: nothing may rely on it.
        trial.note(rows, row, verdict is UNIQUE and rows.phase[row] != Phase.DUPLICATES)
    return verdicts, relied_on


def _verdict(rows: ExpectedRows, row: int, deviations: Deviations, relied_on: dict[bytes, int]) -> Verdict:
    turn, text = int(rows.turn[row]), int(rows.text[row])
    own = ExpectedMatch(text, rows.best[row], bool(rows.is_kept[row]), 0, 1.0, int(rows.best_turn[row]))
    for near in (own, *rows.near[row]):
        keeper = deviations.keeper(near, turn)
        if keeper is not None:
            relied_on[keeper] = near.other
            distance = None if near.distance == NO_DISTANCE else near.distance
            match = KeeperMatch(keeper, distance, near.similarity)
            return Verdict(Action.DUPLICATE, "exact" if near is own else "near", match)
    return UNIQUE


def commit_verdicts(
    expected: Iterable[ExpectedRows],
    records: Callable[[Sequence[bytes]], Iterable[Batch]],
    find_gone: Callable[[Mapping[bytes, int]], set[bytes]],
    commit: Callable[[Plan, Sequence[bytes], Phase], Plan],
    observe: Observe,
    deviations: Deviations,
    rules: int = 0,
) -> tuple[Counts, int]:
    """Commit the planned verdicts batch by batch, and decide again where a plan no longer holds.

    A record that was deleted since it was fingerprinted is skipped, as if it had been deleted before.  A
    record that was changed is copied without being compared.  Duplicates of a keeper that was deleted,
    changed or refused by the target are decided again.

    With `[match] prefer`, such a duplicate is left undecided if no other keeper matches it: worse records
    that match it may be kept already, and only a local run replaces keepers.

    Args:
        expected: The planned verdicts in order, in pieces that are committed together.
        records: Re-reads the records with these ids; yields the ones that still exist, in the same order.
        find_gone: Returns which keepers are no longer valid. Its argument maps the id of a keeper to the
            number of its text.
        commit: Commits a plan of one phase for these raw records, and returns the plan after refusals by the
            target.
        observe: Called with each final plan, for the report.
        deviations: The texts whose keeper is not the planned one, from batches committed before; changed.
        rules: Number of rules in `[match] prefer`.

    Returns:
        The records of the source by their final verdict, and the number of records that are undecided still.
    """
    counts, left = Counts(), 0
    for rows, batch, gone in prefetch(_fetched(expected, records)):
        for row in range(len(gone)):
            deviations.note(gone, row, False)
        if not len(batch):
            continue
        phase, hashes, raws = Phase(int(rows.phase[0])), digests(batch.raws), batch.raws
        is_changed = (hashes != rows.hashes).any(axis=1)
        verdicts = _decided(rows, is_changed, phase, deviations, find_gone)
        ranks = ranks_in(rows.preferences, rules) if rules else None
        prints = (rows.bits, rows.has_fingerprint, rows.keys, rows.digests, hashes, ranks)
        plan = Plan(rows.ids, verdicts, *prints)
        is_left = _are_left(verdicts, is_changed, phase)
        if is_left.any():
            if phase is Phase.DUPLICATES:
                left += int(is_left.sum())
            for row in np.flatnonzero(is_left).tolist():
                deviations.note(rows, row, False)
            here = np.flatnonzero(~is_left)
            rows, plan, is_changed = rows.take(here), plan.take(here.tolist()), is_changed[here]
            raws = [raws[row] for row in here.tolist()]
            if not len(plan):
                continue
        # Committed before the next batch is decided: its duplicates may depend on records refused here.
        plan = commit(plan, raws, phase)
        deviations.learn(rows, plan)
        if phase is not Phase.REFERENCE:
            observe(plan)
            counts += replace(plan.counts, partial=int((rows.partial & ~is_changed).sum()))
    return counts, left


def _fetched(
    expected: Iterable[ExpectedRows], records: Callable[[Sequence[bytes]], Iterable[Batch]]
) -> Iterator[tuple[ExpectedRows, Batch, ExpectedRows]]:
    """Re-read the records of the planned verdicts, in order.

    Yields:
        The planned verdicts of a batch, the batch, and the planned verdicts of records that were deleted
        since, and come before the end of the batch. Behind the last record of a piece the batch is empty.
    """
    for rows in expected:
        places = {raw_id: row for row, raw_id in enumerate(rows.ids)}
        done = 0
        for batch in records(rows.ids):
            # Rows between the records that came back belong to deleted records.
            here = np.array([places[raw_id] for raw_id in batch.ids])
            gone = np.setdiff1d(np.arange(done, here[-1]), here)
            yield rows.take(here), batch, rows.take(gone)
            done = int(here[-1]) + 1
        if done < len(rows):
            yield rows.take(np.arange(0)), Batch((), ()), rows.take(np.arange(done, len(rows)))


def _decided(
    rows: ExpectedRows,
    is_changed: Flags,
    phase: Phase,
    deviations: Deviations,
    find_gone: Callable[[Mapping[bytes, int]], set[bytes]],
) -> list[Verdict]:
    """Decide the records of a batch, using only keepers that are still valid."""
    if phase is Phase.REFERENCE:
        # All of them are kept, even copies of each other and records without a text.
        return [UNIQUE] * len(rows)
    own = set(rows.ids)
    # Without an invalid keeper, a record may match another keeper, which has to be checked as well.
    while True:
        verdicts, relied_on = decide(rows, is_changed, deviations)
        # Keepers of this batch are not in the target yet; the commit itself handles their refusal.
        before = {keeper: text for keeper, text in relied_on.items() if keeper not in own}
        gone = find_gone(before)
        if not gone:
            return verdicts
        for keeper in gone:
            deviations.standing[relied_on[keeper]] = None


def _are_left(verdicts: Sequence[Verdict], is_changed: Flags, phase: Phase) -> Flags:
    """Return which records are not committed: changed ones of a reference, duplicates without a keeper."""
    if phase is Phase.REFERENCE:
        return is_changed
    is_last = phase is Phase.DUPLICATES
    return np.array([is_last and verdict is UNIQUE for verdict in verdicts], np.bool_)
