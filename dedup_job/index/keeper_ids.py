"""Keepers' raw ids by ordinal: 12 bytes for an ObjectId instead of a Python object's 63."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dedup_job.native.arrays import Flags, append_rows, ensure_capacity
from dedup_job.records import RawIds

# The BSON document {"_id": ObjectId}: its length, the type, the name; 12 bytes of value; the end.
BEFORE, VALUE, AFTER = b"\x16\0\0\0\x07_id\0", 12, b"\0"
OBJECT_ID = len(BEFORE) + VALUE + len(AFTER)


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive ids that are all ObjectIds, or all of other types.

    Attributes:
        first: Ordinal of the first id.
        place: Index of the first id among all ObjectIds, or among all other ids.
        has_object_ids: Whether the ids are ObjectIds.
    """

    first: int
    place: int
    has_object_ids: bool


class KeeperIds:
    """A compact sequence of raw ids that grows at the end.

    ObjectIds and other ids are stored apart, and a list of runs says which ids are where.  Records come in
    `_id` order, which keeps ids of one type together; so there are few runs.
    """

    def __init__(self) -> None:
        self._count = self._reserved = 0
        self._runs: list[_Run] = []
        self._object_ids = np.empty((0, VALUE), np.uint8)
        self._object_id_count = 0
        self._others = bytearray()
        self._ends = np.zeros(1, np.uint64)
        self._other_count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, ordinal: int) -> bytes:
        if not 0 <= ordinal < self._count:
            raise IndexError(ordinal)
        run = self._runs[bisect_right(self._runs, ordinal, key=lambda run: run.first) - 1]
        place = run.place + ordinal - run.first
        if run.has_object_ids:
            value: bytes = self._object_ids[place].tobytes()
            return BEFORE + value + AFTER
        return bytes(self._others[int(self._ends[place]) : int(self._ends[place + 1])])

    def reserve(self, ids: int) -> None:
        """Make room for this many ids of each kind, when the first id of that kind comes."""
        self._reserved = ids

    def extend(self, ids: RawIds) -> None:
        """Append ids."""
        are_object_ids = _are_object_ids(ids)
        changes = (np.flatnonzero(np.diff(are_object_ids)) + 1).tolist()
        for start, stop in pairwise([0, *changes, len(ids)]):
            if stop > start:
                self._extend(ids.between(start, stop), bool(are_object_ids[start]))

    def _extend(self, ids: RawIds, are_object_ids: bool) -> None:
        """Append ids of one kind."""
        if not self._runs or self._runs[-1].has_object_ids != are_object_ids:
            place = self._object_id_count if are_object_ids else self._other_count
            self._runs.append(_Run(self._count, place, are_object_ids))
        if are_object_ids:
            values = ids.joined.reshape(-1, OBJECT_ID)[:, len(BEFORE) : len(BEFORE) + VALUE]
            room = ensure_capacity(self._object_ids, self._reserved)
            self._object_ids = append_rows(room, self._object_id_count, values)
            self._object_id_count += len(ids)
        else:
            ends = (ids.offsets[1:] - ids.offsets[0] + len(self._others)).astype(np.uint64)
            self._ends = append_rows(
                ensure_capacity(self._ends, self._reserved + 1), self._other_count + 1, ends
            )
            self._others += ids.joined.tobytes()
            self._other_count += len(ids)
        self._count += len(ids)


def _are_object_ids(ids: RawIds) -> Flags:
    """Return for each id whether it is an ObjectId, bool (n,)."""
    result: Flags = np.diff(ids.offsets) == OBJECT_ID
    # The usual case: all ids have the length of an ObjectId, so that they form a table.
    if result.all():
        heads = ids.joined.reshape(-1, OBJECT_ID)[:, : len(BEFORE)] == np.frombuffer(BEFORE, np.uint8)
        return result if heads.all() else np.asarray(heads.all(axis=1))
    rows = np.flatnonzero(result)
    heads = ids.values[ids.offsets[rows][:, None] + np.arange(len(BEFORE))]
    result[rows] = (heads == np.frombuffer(BEFORE, np.uint8)).all(axis=1)
    return result
