"""The texts that were entered, as columns in their order: what an index is made from again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dedup_job.document import Fingerprints
from dedup_job.match.column import extended
from dedup_job.plan import RawIds, Texts


class EnteredTexts:
    """Grows at the end."""

    def __init__(self, words: int, bands: int) -> None:
        """Make empty columns for fingerprints of so many words, and so many keys of bands."""
        self._count = 0
        self._bits = np.empty((0, words), np.uint64)
        self._near = np.empty(0, np.bool_)
        self._keys = np.empty((0, bands), np.uint32)
        self._digests = np.empty((0, 2), np.uint64)

    def __len__(self) -> int:
        return self._count

    def extend(self, prints: Fingerprints | Texts, rows: npt.NDArray[np.intp]) -> None:
        """Add some of the rows."""
        self._bits = extended(self._bits, self._count, prints.bits[rows])
        self._near = extended(self._near, self._count, prints.has_fingerprint[rows])
        self._keys = extended(self._keys, self._count, prints.keys[rows])
        self._digests = extended(self._digests, self._count, prints.digests[rows])
        self._count += len(rows)

    def texts(self, ids: RawIds, is_kept: npt.NDArray[np.bool_]) -> Texts:
        """Return all of them.

        ids      of the records that stand for them
        is_kept  bool (n,), for which of them one does
        """
        last = self._count
        return Texts(
            ids, self._bits[:last], self._near[:last], self._keys[:last], self._digests[:last], is_kept
        )
