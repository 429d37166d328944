"""A bounded cache of keepers' shingle sets, the most recent ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from dedup_job.index.shingle_similarity import Shingles
from dedup_job.native.arrays import Ragged

# Bytes of a cached set beside its hashes: its offset in the block, and its entry in a dictionary.
ENTRY_BYTES = 150
# The cache has room for at least this many blocks.
MIN_BLOCKS = 16
# More rows than a block has: a block's number and a row are packed into one integer.
ROWS = 1 << 32


@dataclass(frozen=True, slots=True)
class _Block:
    """Shingle sets that were cached together, and are evicted together."""

    ordinals: Sequence[int]
    sets: Ragged

    @property
    def nbytes(self) -> int:
        return self.sets.values.nbytes + ENTRY_BYTES * len(self.ordinals)

    def between(self, start: int, stop: int) -> _Block:
        offsets = self.sets.offsets[start : stop + 1]
        # A copy, not a view: a view would keep the memory of the whole block.
        values = self.sets.values[offsets[0] : offsets[-1]].copy()
        return _Block(self.ordinals[start:stop], Ragged(offsets - offsets[0], values))


class ShingleCache:
    """A cache from keeper ordinal to the keeper's sorted shingle hashes.

    Sets are cached and evicted in blocks, the least recently used block first: blocks are large pieces of
    memory, which the allocator returns to the system.
    """

    def __init__(self, nbytes: int) -> None:
        self._capacity = nbytes
        self._nbytes = 0
        self._block_numbers = count()
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        # By ordinal: a block's number times ROWS, plus the row in the block.
        self._places: dict[int, int] = {}

    def __contains__(self, ordinal: int) -> bool:
        return ordinal in self._places

    def get(self, ordinal: int) -> Shingles | None:
        """Return a keeper's shingles if they are cached.

        Returns:
            A view of the cache; a caller that kept it would keep the whole block in memory.
        """
        place = self._places.get(ordinal)
        if place is None:
            return None
        number, row = divmod(place, ROWS)
        self._blocks.move_to_end(number)
        return self._blocks[number].sets[row]

    def put(self, ordinals: Sequence[int], sets: Ragged) -> None:
        """Cache the shingles of keepers, and evict the least recently used blocks.

        Args:
            ordinals: The keepers, one for each row of `sets`.
            sets: Their shingles; the arrays must not be views of larger ones, whose memory would not be
                counted.
        """
        block, rows = _Block(ordinals, sets), len(ordinals)
        # Large blocks are halved: evicting one must not empty much of the cache.
        if rows > 1 and block.nbytes > self._capacity // MIN_BLOCKS:
            for half in (block.between(0, rows // 2), block.between(rows // 2, rows)):
                self.put(half.ordinals, half.sets)
        elif rows and block.nbytes <= self._capacity:
            self._store(block)
        elif rows:
            # Too large to be cached; an older set of this keeper is out of date.
            self._places.pop(ordinals[0], None)

    def _store(self, block: _Block) -> None:
        number = next(self._block_numbers)
        self._blocks[number] = block
        self._places.update(zip(block.ordinals, count(number * ROWS), strict=False))
        self._nbytes += block.nbytes
        while self._nbytes > self._capacity:
            oldest, evicted = self._blocks.popitem(last=False)
            self._nbytes -= evicted.nbytes
            for row, ordinal in enumerate(evicted.ordinals):
                # A keeper that was cached again is in a later block.
                if self._places.get(ordinal) == oldest * ROWS + row:
                    del self._places[ordinal]
