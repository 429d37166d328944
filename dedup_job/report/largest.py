"""The largest groups: the keepers of the most duplicates, with some of these duplicates."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Generic, TypeVar

T = TypeVar("T")
LARGEST_COUNT = 1_000_000  # keepers that are counted at once
MEMBERS = 12  # duplicates remembered of a large group


class LargestGroups(Generic[T]):
    """Counts the duplicates of each keeper, and remembers some duplicates of the leading keepers.

    Memory is bounded, so with more keepers than are counted at once the sizes are lower bounds.
    """

    def __init__(self, most: int) -> None:
        """Report at most `most` groups."""
        self._most = most
        self._sizes: Counter[bytes] = Counter()
        self._members: defaultdict[bytes, list[T]] = defaultdict(list)
        self._min_size = 1  # smaller groups are not among the largest

    def add(self, keeper: bytes, duplicate: T) -> None:
        """Count a duplicate."""
        self._sizes[keeper] += 1
        if len(self._sizes) > LARGEST_COUNT:
            # Halving keeps this rare: the sort takes long.
            self._sizes = Counter(dict(self._sizes.most_common(LARGEST_COUNT // 2)))
        if self._most and self._sizes[keeper] >= self._min_size and len(self._members[keeper]) < MEMBERS:
            self._members[keeper].append(duplicate)
            # Four times as many as needed, so that a group that grows late still has members.
            if len(self._members) > 4 * self._most:
                self._drop_small_groups()

    def sizes(self) -> list[tuple[bytes, int]]:
        """Return the largest groups: each keeper, and its number of duplicates."""
        return self._sizes.most_common(self._most)

    def members(self, keeper: bytes) -> list[T]:
        """Return some duplicates of one of the largest groups."""
        return self._members.get(keeper, [])

    def _drop_small_groups(self) -> None:
        leading = dict(self.sizes())
        self._min_size = min(leading.values())
        for keeper in self._members.keys() - leading.keys():
            del self._members[keeper]
