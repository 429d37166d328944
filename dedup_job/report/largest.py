"""The largest groups: the keepers that stand for the most duplicates, with some of these."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Generic, TypeVar

T = TypeVar("T")
LARGEST_COUNT = 1_000_000  # keepers that are counted at once
MEMBERS = 12  # duplicates of a large group that are remembered


class LargestGroups(Generic[T]):
    """Counts the duplicates of each keeper, and remembers some duplicates of the keepers that lead."""

    def __init__(self, most: int) -> None:
        """Tell of so many groups."""
        self._most = most
        self._sizes: Counter[bytes] = Counter()
        self._members: defaultdict[bytes, list[T]] = defaultdict(list)
        self._bar = 1  # a smaller group is none of the largest

    def add(self, keeper: bytes, duplicate: T) -> None:
        """Count a duplicate."""
        self._sizes[keeper] += 1
        if len(self._sizes) > LARGEST_COUNT:
            self._sizes = Counter(dict(self._sizes.most_common(LARGEST_COUNT // 2)))
        if self._most and self._sizes[keeper] >= self._bar and len(self._members[keeper]) < MEMBERS:
            self._members[keeper].append(duplicate)
            if len(self._members) > 4 * self._most:
                self._thin_out()

    def sizes(self) -> list[tuple[bytes, int]]:
        """Return the largest groups: the keeper, and how many duplicates it stands for."""
        return self._sizes.most_common(self._most)

    def members(self, keeper: bytes) -> list[T]:
        """Return some duplicates of one of the largest groups."""
        return self._members.get(keeper, [])

    def _thin_out(self) -> None:
        leading = dict(self.sizes())
        self._bar = min(leading.values())
        for keeper in self._members.keys() - leading.keys():
            del self._members[keeper]
