"""The shingle sets of keepers that may be needed again: recent ones, within a bound of bytes."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

Shingles = npt.NDArray[np.uint32]

ENTRY = 350  # bytes of an entry beside its hashes: the array's head, the dictionary's place, the number


class RecentShingles:
    """A least-recently-used cache from keeper ordinal to its sorted shingle hashes."""

    def __init__(self, nbytes: int) -> None:
        self._most = nbytes
        self._held = 0
        self._sets: OrderedDict[int, Shingles] = OrderedDict()

    def __contains__(self, ordinal: int) -> bool:
        return ordinal in self._sets

    @property
    def nbytes(self) -> int:
        """Bytes held, about."""
        return self._held

    def get(self, ordinal: int) -> Shingles | None:
        """Return a keeper's shingles if they are at hand."""
        found = self._sets.get(ordinal)
        if found is not None:
            self._sets.move_to_end(ordinal)
        return found

    def put(self, ordinal: int, shingles: Shingles) -> None:
        """Remember a keeper's shingles and forget those not used for longest."""
        if _size(shingles) > self._most:
            return
        if ordinal in self._sets:
            self._held -= _size(self._sets.pop(ordinal))
        self._sets[ordinal] = shingles
        self._held += _size(shingles)
        while self._held > self._most:
            self._held -= _size(self._sets.popitem(last=False)[1])


def _size(shingles: Shingles) -> int:
    return shingles.nbytes + ENTRY
