"""The raw ids of keepers, by ordinal: an ObjectId takes 12 bytes here, as a Python object 63."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dedup_job.match.column import extended, with_room
from dedup_job.plan import RawIds

# The BSON document {"_id": ObjectId}: its length, the type, the name, 12 bytes of value, the end.
BEFORE, VALUE, AFTER = b"\x16\0\0\0\x07_id\0", 12, b"\0"
OBJECT_ID = len(BEFORE) + VALUE + len(AFTER)


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive ids that are all ObjectIds, or all something else."""

    first: int  # ordinal
    at: int  # place of the first among those of this kind
    object_ids: bool


class Ids:
    """Grows at the end.  Records come in `_id` order, where types are apart, so that there are few runs."""

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
        at = run.at + ordinal - run.first
        if run.object_ids:
            value: bytes = self._object_ids[at].tobytes()
            return BEFORE + value + AFTER
        return bytes(self._others[int(self._ends[at]) : int(self._ends[at + 1])])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._object_ids.nbytes + len(self._others) + self._ends.nbytes

    def reserve(self, ids: int) -> None:
        """Have room for so many ids of each kind that comes, as soon as one does."""
        self._reserved = ids

    def extend(self, ids: RawIds) -> None:
        """Add ids at the end."""
        kinds = _are_object_ids(ids)
        changes = (np.flatnonzero(np.diff(kinds)) + 1).tolist()
        for start, stop in pairwise([0, *changes, len(ids)]):
            if stop > start:
                self._extend(ids.between(start, stop), bool(kinds[start]))

    def _extend(self, ids: RawIds, object_ids: bool) -> None:
        if not self._runs or self._runs[-1].object_ids != object_ids:
            at = self._object_id_count if object_ids else self._other_count
            self._runs.append(_Run(self._count, at, object_ids))
        if object_ids:
            values = ids.joined.reshape(-1, OBJECT_ID)[:, len(BEFORE) : len(BEFORE) + VALUE]
            room = with_room(self._object_ids, self._reserved)
            self._object_ids = extended(room, self._object_id_count, values)
            self._object_id_count += len(ids)
        else:
            ends = (ids.offsets[1:] - ids.offsets[0] + len(self._others)).astype(np.uint64)
            self._ends = extended(with_room(self._ends, self._reserved + 1), self._other_count + 1, ends)
            self._others += ids.joined.tobytes()
            self._other_count += len(ids)
        self._count += len(ids)


def _are_object_ids(ids: RawIds) -> npt.NDArray[np.bool_]:
    """Return of each id whether it is an ObjectId, bool (n,)."""
    kinds: npt.NDArray[np.bool_] = np.diff(ids.offsets) == OBJECT_ID
    if kinds.all():
        heads = ids.joined.reshape(-1, OBJECT_ID)[:, : len(BEFORE)] == np.frombuffer(BEFORE, np.uint8)
        return kinds if heads.all() else np.asarray(heads.all(axis=1))
    places = np.flatnonzero(kinds)
    heads = ids.values[ids.offsets[places][:, None] + np.arange(len(BEFORE))]
    kinds[places] = (heads == np.frombuffer(BEFORE, np.uint8)).all(axis=1)
    return kinds
