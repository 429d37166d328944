"""Samples that are drawn while records go by, each of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Generic, TypeVar

import xxhash

T = TypeVar("T")
WHOLE = 1 << 64


class Reservoir(Generic[T]):
    """Some of what goes by, each as likely as any other (Vitter's algorithm R); the same at every run."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._random = Random(0)
        self._drawn: list[T] = []
        self.seen = 0

    def add(self, one: T) -> None:
        """See one more."""
        self.seen += 1
        if len(self._drawn) < self._most:
            self._drawn.append(one)
        elif (place := int(self._random.random() * self.seen)) < self._most:
            self._drawn[place] = one

    @property
    def drawn(self) -> Sequence[T]:
        """What was drawn, in no particular order."""
        return self._drawn


@dataclass(slots=True)
class DrawnGroup:
    """A keeper that was drawn, and what it stands for.

    size     its duplicates
    near     those of them that are not exact
    members  the first of the near ones, in the order of decision, each with its similarity to the keeper
    """

    keeper: bytes
    size: int = 0
    near: int = 0
    members: list[tuple[bytes, float]] = field(default_factory=list)


class GroupReservoir:
    """Whole groups, each as likely as any other: those whose keepers have the smallest hashes.

    A group is in the sample from its first duplicate on or not at all, so its size is its true size (bottom-k
    sampling: Cohen and Kaplan, "Summarizing data using bottom-k sketches", 2007).
    """

    def __init__(self, most: int, of_one: int) -> None:
        """Hold `most` members in all, about, and `of_one` group at most so many."""
        self._most, self._of_one = most, of_one
        self._limit = WHOLE  # a keeper is drawn when its hash is below
        self._groups: dict[bytes, DrawnGroup] = {}
        self._marks: list[tuple[int, bytes]] = []  # greatest hash first
        self._held = 0

    def add(self, keeper: bytes, duplicate: bytes, similarity: float | None) -> None:
        """See a duplicate; `similarity` is None for an exact one, and where texts are not compared."""
        group = self._groups.get(keeper)
        if group is None:
            mark = xxhash.xxh3_64_intdigest(keeper)
            if mark >= self._limit:
                return
            group = self._groups[keeper] = DrawnGroup(keeper)
            heappush(self._marks, (-mark, keeper))
            self._held += 1
        group.size += 1
        if similarity is not None:
            group.near += 1
            if len(group.members) < self._of_one:
                group.members.append((duplicate, similarity))
                self._held += 1
        while self._held > self._most and len(self._groups) > 1:
            self._leave_one_out()

    def _leave_one_out(self) -> None:
        mark, keeper = heappop(self._marks)
        self._limit = -mark
        self._held -= 1 + len(self._groups.pop(keeper).members)

    @property
    def drawn(self) -> Sequence[DrawnGroup]:
        """The groups that were drawn."""
        return list(self._groups.values())

    @property
    def share(self) -> float:
        """The share of all groups that was drawn, about; exactly 1 where it is all of them."""
        return self._limit / WHOLE
