"""The ids that the ledger has decided, as sorted 128-bit hashes: 16 bytes for each."""

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
class Decided:
    """A set of ids, built once; false answers are as likely as two ids with one 128-bit hash."""

    _sorted: Hashes = field(default_factory=_none)

    @classmethod
    def of(cls, chunks: Iterable[Sequence[bytes]]) -> Decided:
        """Take the ids of many plans."""
        hashes = np.concatenate([_none(), *map(digests, chunks)])
        return cls(hashes[np.argsort(hashes[:, 0], kind="stable")])

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
        return [
            raw_id
            for row, raw_id in enumerate(ids)
            if wanted[row, 1] not in self._sorted[first[row] : last[row], 1]
        ]
