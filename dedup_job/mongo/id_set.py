"""A set of ids, as sorted 128-bit digests: 16 bytes for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dedup_job.document import digests

Hashes = npt.NDArray[np.uint64]


def _none() -> Hashes:
    return np.empty((0, 2), np.uint64)


@dataclass(frozen=True, slots=True)
class IdSet:
    """A set of ids, built once; false answers are as likely as two ids with one 128-bit digest."""

    _sorted: Hashes = field(default_factory=_none)

    @classmethod
    def of(cls, chunks: Iterable[Iterable[bytes]]) -> IdSet:
        """Take the ids of many plans."""
        hashes = np.concatenate([_none(), *map(digests, chunks)])
        return cls(hashes[np.argsort(hashes[:, 0])])

    def __len__(self) -> int:
        return len(self._sorted)

    def among(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return those of the ids that are in the set."""
        return set(ids).difference(self.missing(ids)) if len(self) else set()

    def missing(self, ids: Sequence[bytes]) -> list[bytes]:
        """Return those of the ids that are not in the set, in their order."""
        wanted = digests(ids)
        column = self._sorted[:, 0]
        first = np.searchsorted(column, wanted[:, 0], "left")
        last = np.searchsorted(column, wanted[:, 0], "right")
        is_there = np.zeros(len(wanted), np.bool_)
        for place in range(int((last - first).max(initial=0))):  # hashes that begin alike are hardly ever two
            inside = np.flatnonzero(first + place < last)
            is_there[inside] |= self._sorted[first[inside] + place, 1] == wanted[inside, 1]
        return [raw_id for raw_id, there in zip(ids, is_there.tolist(), strict=True) if not there]
