"""A key map: the texts that have a key, in the order in which they came."""

from __future__ import annotations

from dataclasses import dataclass

from dedup_job.match.entries import LEAST_WIDTH, MOST_WIDTH, Flags, Keys, enter, roughly_sorted
from dedup_job.match.found import Found
from dedup_job.match.search import Limits, Prints, Queries, search
from dedup_job.match.settling import laid_out, no_entries

FULL = 0.95  # of the places taken: then all entries are laid out anew


@dataclass(frozen=True, slots=True)
class Rule:
    """What keys find: the first `found` of the near enough texts, a key being remembered with `listed` texts.

    distance  bits by which the fingerprints may differ
    load      entries of a bucket at most, on the average
    segment   which segment of the fingerprints the keys are made of, with the next one: then a key finds
              those too that differ in one bit of the next one; None for keys that find only their own
    """

    distance: int
    listed: int
    found: int
    load: int
    segment: int | None = None


class KeyMap:
    """Finds texts by one of their keys, and forgets none."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._count = 0
        self._taken = 0
        self._entries = no_entries(LEAST_WIDTH)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(column.nbytes for column in self._entries)

    @property
    def buckets(self) -> int:
        """Buckets that keys are shared out to."""
        return len(self._entries.directory) - 1

    def add(self, keys: Keys, has_key: Flags) -> None:
        """Enter n texts by their keys, uint32 (n,), at the next numbers; one without a key takes one too."""
        keys, numbers = roughly_sorted(keys, has_key, self._count)
        self._count += len(has_key)
        done = 0
        if not self._is_full(len(keys)):
            done, added = enter(keys, numbers, self._rule.listed, self._entries)
            self._taken += added
        if done < len(keys):
            self._entries, self._taken = laid_out(
                self._entries, self._width, keys[done:], numbers[done:], self._rule.listed
            )

    def _is_full(self, coming: int) -> bool:
        """Return whether so many entries more would leave few places free, or need many more buckets."""
        is_crowded = self._width > int(self.buckets).bit_length()
        return is_crowded or self._taken + coming > FULL * len(self._entries.tags)

    @property
    def _width(self) -> int:
        """How many bits are to choose a bucket."""
        buckets = self._count // self._rule.load
        return min(max(buckets.bit_length(), LEAST_WIDTH), MOST_WIDTH)

    def search(self, keys: Keys, queries: Queries, prints: Prints, found: Found) -> None:
        """Note for each query what its key finds among the other texts.

        keys    uint32 (n,), those of the queries
        prints  of all texts
        """
        rule = self._rule
        segment = -1 if rule.segment is None else rule.segment
        limits = Limits(rule.distance, rule.found, segment)
        search(keys, queries, limits, prints, self._entries, found)
