"""The shingle sets of keepers that may be needed again: recent ones, within a bound of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from dedup_job.native.ragged import Ragged

Shingles = npt.NDArray[np.uint32]

ENTRY = 150  # bytes of an entry beside its hashes: its end among them, and its place in a dictionary
BLOCKS = 16  # that the bound has room for, at least
ROWS = 1 << 32  # more than a block has


@dataclass(frozen=True, slots=True)
class _Block:
    """Sets that came together."""

    ordinals: Sequence[int]
    sets: Ragged

    @property
    def nbytes(self) -> int:
        return self.sets.values.nbytes + ENTRY * len(self.ordinals)

    def between(self, start: int, stop: int) -> _Block:
        offsets = self.sets.offsets[start : stop + 1]
        values = self.sets.values[offsets[0] : offsets[-1]].copy()
        return _Block(self.ordinals[start:stop], Ragged(offsets - offsets[0], values))


class RecentShingles:
    """A cache from keeper ordinal to its sorted shingle hashes.

    Sets come and go in blocks, and the block not used for longest goes first: large pieces of memory, which
    the allocator gives back.
    """

    def __init__(self, nbytes: int) -> None:
        self._most = nbytes
        self._held = 0
        self._numbers = count()
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._places: dict[int, int] = {}  # by ordinal: the number of a block times ROWS, plus a row in it

    def __contains__(self, ordinal: int) -> bool:
        return ordinal in self._places

    @property
    def nbytes(self) -> int:
        """Bytes held, about."""
        return self._held

    def get(self, ordinal: int) -> Shingles | None:
        """Return a keeper's shingles if they are at hand: a view that is not to be kept."""
        place = self._places.get(ordinal)
        if place is None:
            return None
        number, row = divmod(place, ROWS)
        self._blocks.move_to_end(number)
        return self._blocks[number].sets[row]

    def put(self, ordinals: Sequence[int], sets: Ragged) -> None:
        """Remember the shingles of keepers, which share memory with nothing; forget the least recent ones."""
        self._put(_Block(ordinals, sets))

    def _put(self, block: _Block) -> None:
        rows = len(block.ordinals)
        if rows > 1 and block.nbytes > self._most // BLOCKS:
            self._put(block.between(0, rows // 2))
            self._put(block.between(rows // 2, rows))
        elif rows and block.nbytes <= self._most:
            self._enter(block)

    def _enter(self, block: _Block) -> None:
        number = next(self._numbers)
        self._blocks[number] = block
        self._places.update(zip(block.ordinals, count(number * ROWS), strict=False))
        self._held += block.nbytes
        while self._held > self._most:
            self._forget(*self._blocks.popitem(last=False))

    def _forget(self, number: int, block: _Block) -> None:
        self._held -= block.nbytes
        for row, ordinal in enumerate(block.ordinals):
            if self._places.get(ordinal) == number * ROWS + row:  # else it was put again
                del self._places[ordinal]
