"""A plan: one batch's verdicts, written down before they are carried out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dedup_job.document import COPIED, UNIQUE, Action, Counts, Match, Verdict

# What kind of run made a plan.
BACKFILL = "backfill"
NIGHTLY = "run"
RECONCILE = "reconcile"
APPLY = "apply"  # its records were decided before, by plans from which they are taken out
RENEW = "renew"  # decides nothing: its records are as they were, but for what is not in their text
ADOPT = "adopt"  # its records are the target's own, all kept; none of them is decided for the source


@dataclass(frozen=True, slots=True)
class RawIds:
    """Raw ids end to end: id i is `values[offsets[i]:offsets[i + 1]]`.

    offsets  int64 (n + 1,)
    values   uint8
    """

    offsets: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, ids: Iterable[bytes]) -> RawIds:
        """Put ids end to end."""
        ids = list(ids)
        offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        return cls(offsets, np.frombuffer(b"".join(ids), np.uint8))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        return self.values[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        whole, ends = self.values.tobytes(), self.offsets.tolist()
        return (whole[start:end] for start, end in pairwise(ends))

    @property
    def joined(self) -> npt.NDArray[np.uint8]:
        """The bytes of these ids alone."""
        return self.values[self.offsets[0] : self.offsets[-1]]

    def between(self, start: int, stop: int) -> RawIds:
        """Return the ids from `start` on, `stop` not included."""
        return RawIds(self.offsets[start : stop + 1], self.values)

    def not_before(self, first: bytes) -> RawIds:
        """Return the ids whose bytes do not sort before these."""
        size = len(first)
        if len(self) and (np.diff(self.offsets) == size).all():
            fixed = self.joined.view(f"S{size}")  # padded with zeros, as bytes of one length sort
            return self.take(np.flatnonzero(fixed >= np.array(first, f"S{size}")))
        return RawIds.of(raw_id for raw_id in self if raw_id >= first)

    def take(self, rows: npt.NDArray[np.intp]) -> RawIds:
        """Return some of the ids."""
        lengths = np.diff(self.offsets)
        if len(self) and (lengths == lengths[0]).all():
            values = self.joined.reshape(len(self), -1).take(rows, axis=0)
            return RawIds(np.arange(len(rows) + 1) * lengths[0], values.ravel())
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[rows])])
        starts = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths[rows])
        return RawIds(offsets, self.values[starts + np.arange(offsets[-1])])


@dataclass(frozen=True, slots=True)
class Texts:
    """The records of a plan that could be judged, as columns in the order of decision; n rows, as in Plan.

    is_kept  bool (n,), those that are unique
    """

    ids: RawIds
    bits: npt.NDArray[np.uint64]
    has_fingerprint: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint32]
    digests: npt.NDArray[np.uint64]
    is_kept: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: npt.NDArray[np.intp]) -> Texts:
        """Return these of them."""
        columns = {
            name: getattr(self, name)[rows]
            for name in ("bits", "has_fingerprint", "keys", "digests", "is_kept")
        }
        return replace(self, ids=self.ids.take(rows), **columns)


@dataclass(frozen=True, slots=True)
class Plan:
    """The verdicts of one batch, and what is needed to finish it and to rebuild the index from it.

    ids       raw BSON `{"_id": value}` of each record, in the order of decision
    verdicts  one for each record
    bits      uint64 (n, bits / 64), the fingerprints
    has_fingerprint  bool (n,)
    keys      uint32 (n, bands), the keys of their bands; zeros where there are none
    digests   uint64 (n, 2), of the cleaned texts; zeros where there is none to judge
    hashes    uint64 (n, 2), of the raw records
    """

    ids: Sequence[bytes]
    verdicts: Sequence[Verdict]
    bits: npt.NDArray[np.uint64]
    has_fingerprint: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint32]
    digests: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def counts(self) -> Counts:
        """How many records have which verdict."""
        return Counts.of(self.verdicts)

    def bounds(self, nbytes: int) -> list[tuple[int, int]]:
        """Return where to cut it so that no part has more bytes of ids and keepers, or a single record."""
        ends = [0]
        size = 0
        for row, (raw_id, verdict) in enumerate(zip(self.ids, self.verdicts, strict=True)):
            own = len(raw_id) + (len(verdict.match.keeper) if verdict.match is not None else 0)
            if row > ends[-1] and size + own > nbytes:
                ends.append(row)
                size = 0
            size += own
        return list(pairwise([*ends, len(self)]))

    def part(self, start: int, stop: int) -> Plan:
        """Return some of its records, in their order."""
        if (start, stop) == (0, len(self)):
            return self
        return replace(self, **{one.name: getattr(self, one.name)[start:stop] for one in fields(self)})

    def take(self, rows: Sequence[int]) -> Plan:
        """Return these of its records."""
        columns = {
            name: getattr(self, name)[rows]
            for name in ("bits", "has_fingerprint", "keys", "digests", "hashes")
        }
        ids, verdicts = [self.ids[row] for row in rows], [self.verdicts[row] for row in rows]
        return replace(self, ids=ids, verdicts=verdicts, **columns)

    def rows(self, *actions: Action) -> list[int]:
        """Rows whose verdict has one of these actions."""
        return [row for row, verdict in enumerate(self.verdicts) if verdict.action in actions]

    @property
    def texts(self) -> Texts:
        """The records that could be judged."""
        rows = np.flatnonzero(self.digests.any(axis=1))
        is_kept = np.array([verdict.action is Action.UNIQUE for verdict in self.verdicts], np.bool_)
        ids = RawIds.of(self.ids[row] for row in rows.tolist())
        return Texts(
            ids,
            self.bits[rows],
            self.has_fingerprint[rows],
            self.keys[rows],
            self.digests[rows],
            is_kept[rows],
        )

    def without(self, failed: Mapping[int, Verdict], gone: Iterable[bytes] = ()) -> Plan:
        """Give these rows another verdict and promote what was dropped because of them.

        gone  keepers from before this plan that stand for nothing any more; it is the same with theirs

        A keeper that is not in the target cannot stand for what follows it: of its duplicates there the first
        of each distinct text becomes unique, further copies of that text its exact duplicates.  (Two
        different texts near the lost keeper need not be near each other: neither is dropped for the other.)

        >>> a = Match(b"a", 2, 0.9)
        >>> verdicts = [UNIQUE, Verdict(Action.DUPLICATE, "near", a), Verdict(Action.DUPLICATE, "near", a)]
        >>> column = np.zeros((3, 2), np.uint64)
        >>> near, keys = np.ones(3, bool), np.ones((3, 8), np.uint32)
        >>> plan = Plan([b"a", b"b", b"c"], verdicts, column, near, keys, column, column)
        >>> [v.action.name for v in plan.without({0: Verdict(Action.REFUSED, "validator")}).verdicts]
        ['REFUSED', 'UNIQUE', 'DUPLICATE']
        """
        promotions = Promotions(self)
        promotions.lose(failed, gone)
        return replace(self, verdicts=promotions.verdicts)


class Promotions:
    """Finds, round after round, which duplicates take the place of kept records that are lost.

    `Plan.without` is one round.  A round costs as much as it promotes, however many records a plan has: a
    target may refuse thousands of copies of one text, each in a round of its own.
    """

    def __init__(self, plan: Plan) -> None:
        self._ids, self._verdicts = plan.ids, list(plan.verdicts)
        # The rows that are dropped for a keeper, by text: for a row of the plan, or an id from before it.
        self._waiting: dict[int | bytes, dict[bytes, deque[int]]] = {}
        self._promoted: set[int] = set()
        kept: dict[bytes, int] = {}
        for row, (raw_id, verdict) in enumerate(zip(plan.ids, plan.verdicts, strict=True)):
            if verdict.action in COPIED:
                kept[raw_id] = row
            elif verdict.match is not None:
                # A keeper that comes later in the plan is not this one: the target had another of its id.
                keeper = kept.get(verdict.match.keeper, verdict.match.keeper)
                text = plan.digests[row].tobytes()
                self._waiting.setdefault(keeper, {}).setdefault(text, deque()).append(row)

    def lose(self, failed: Mapping[int, Verdict], gone: Iterable[bytes] = ()) -> list[int]:
        """Give these rows another verdict; returns the rows that are promoted because of them, in order.

        gone  keepers from before the plan that are lost, too
        """
        orphans: dict[bytes, deque[int]] = {}
        lost: list[int | bytes] = [*gone, *failed]
        for keeper in lost:
            for text, rows in self._waiting.pop(keeper, {}).items():
                others = orphans.get(text)
                orphans[text] = rows if others is None else deque(sorted((*others, *rows)))
        for row, verdict in failed.items():
            self._verdicts[row] = verdict
        self._promoted.difference_update(failed)
        promoted = (self._promote(text, rows) for text, rows in orphans.items())
        return sorted(row for row in promoted if row is not None)

    def _promote(self, text: bytes, rows: deque[int]) -> int | None:
        """Keep the first of these rows, which have one text; the others wait behind it."""
        while rows and self._verdicts[rows[0]].action is not Action.DUPLICATE:
            rows.popleft()  # it failed itself
        if not rows:
            return None
        first = rows.popleft()
        self._verdicts[first] = UNIQUE
        self._promoted.add(first)
        if rows:
            self._waiting[first] = {text: rows}
        return first

    def waiting(self, rows: Iterable[int]) -> list[int]:
        """Return the rows that may be promoted should these promoted ones be lost."""
        return [other for row in rows for others in self._waiting.get(row, {}).values() for other in others]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts after all that was lost."""
        verdicts = list(self._verdicts)
        for first in self._promoted:
            copy = Verdict(Action.DUPLICATE, "exact", Match(self._ids[first], 0, 1.0))
            for row in self.waiting([first]):
                if verdicts[row].action is Action.DUPLICATE:
                    verdicts[row] = copy
        return verdicts
