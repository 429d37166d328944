"""The version of each kept record that was judged, by id: the digests of the record and of its text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dedup_job.index.digest_index import DigestIndex
from dedup_job.native.arrays import ensure_capacity
from dedup_job.records import Action, Plan, digests


class VersionDigests:
    """The judged versions of the kept records of plans; about 50 bytes for each."""

    def __init__(self) -> None:
        self._ids = DigestIndex()
        # By number of the id: the digest of the record, then the digest of its text.
        self._versions = np.empty((0, 4), np.uint64)

    def add(self, plan: Plan) -> None:
        """Add the unique records of a plan."""
        rows = plan.rows(Action.UNIQUE)
        if not rows:
            return
        numbers, _ = self._ids.number(digests(plan.ids[row] for row in rows))
        self._versions = ensure_capacity(self._versions, len(self._ids))
        self._versions[numbers] = np.hstack([plan.hashes[rows], plan.digests[rows]])

    def find(self, ids: Sequence[bytes]) -> dict[bytes, tuple[bytes, bytes]]:
        """Return the digests of record and text of each of these ids that was added."""
        numbers = self._ids.find(digests(ids)).tolist()
        return {
            raw_id: _split(self._versions[number])
            for raw_id, number in zip(ids, numbers, strict=True)
            if number >= 0
        }


def _split(version: npt.NDArray[np.uint64]) -> tuple[bytes, bytes]:
    return version[:2].tobytes(), version[2:].tobytes()
