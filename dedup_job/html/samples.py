"""Counters and bounded samples collected while a run is observed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Generic, TypeVar

import numpy as np
import xxhash

from dedup_job.html.timeline import Timeline
from dedup_job.records import Action, Batch, Counts, Plan
from dedup_job.report.report_samples import DuplicatePair, LargestGroups

T = TypeVar("T")
# Number of hash values.
WHOLE = 1 << 64


class Reservoir(Generic[T]):
    """A uniform sample of items (Vitter's algorithm R); the same items give the same sample.

    Attributes:
        seen: Number of items so far.
    """

    def __init__(self, most: int) -> None:
        """Draw at most `most` items."""
        self._most = most
        self._random = Random(0)
        self._drawn: list[T] = []
        self.seen = 0

    def add(self, item: T) -> None:
        """Add an item to those that the sample is drawn from."""
        self.seen += 1
        if len(self._drawn) < self._most:
            self._drawn.append(item)
        elif (place := int(self._random.random() * self.seen)) < self._most:
            self._drawn[place] = item

    @property
    def drawn(self) -> Sequence[T]:
        """The sample, in no particular order."""
        return self._drawn


@dataclass(slots=True)
class DrawnGroup:
    """A group of the sample.

    Attributes:
        keeper: The keeper's raw id.
        size: Number of its duplicates.
        near: Number of these that are not exact.
        members: The first near ones in the order of decision, each with its similarity to the keeper.
    """

    keeper: bytes
    size: int = 0
    near: int = 0
    members: list[tuple[bytes, float]] = field(default_factory=list)


class GroupReservoir:
    """A uniform sample of whole groups: those whose keepers have the smallest hashes.

    A group is in the sample from its first duplicate on, or not at all, so its size is its true size.
    This is bottom-k sampling: Cohen and Kaplan, "Summarizing data using bottom-k sketches", 2007.
    """

    def __init__(self, most: int, of_one: int) -> None:
        """Limit the members of all groups together to about `most`, and of each group to `of_one`."""
        self._most, self._of_one = most, of_one
        # Keepers with smaller hashes are in the sample.
        self._limit = WHOLE
        self._groups: dict[bytes, DrawnGroup] = {}
        # Negated, because `heapq` has the smallest item first, and the greatest hash is removed first.
        self._hashes: list[tuple[int, bytes]] = []
        # Keepers and members.
        self._stored = 0

    def add(self, keeper: bytes, duplicate: bytes, similarity: float | None) -> None:
        """Add a duplicate.

        Args:
            keeper: The keeper's raw id.
            duplicate: The duplicate's raw id.
            similarity: None for an exact duplicate, and if texts are not compared.
        """
        group = self._groups.get(keeper)
        if group is None:
            keeper_hash = xxhash.xxh3_64_intdigest(keeper)
            if keeper_hash >= self._limit:
                return
            group = self._groups[keeper] = DrawnGroup(keeper)
            heappush(self._hashes, (-keeper_hash, keeper))
            self._stored += 1
        group.size += 1
        if similarity is not None:
            group.near += 1
            if len(group.members) < self._of_one:
                group.members.append((duplicate, similarity))
                self._stored += 1
        while self._stored > self._most and len(self._groups) > 1:
            self._remove_group()

    def _remove_group(self) -> None:
        """Remove the group with the greatest hash; no later group with a hash this great gets in."""
        negated, keeper = heappop(self._hashes)
        self._limit = -negated
        self._stored -= 1 + len(self._groups.pop(keeper).members)

    @property
    def drawn(self) -> Sequence[DrawnGroup]:
        """The groups of the sample."""
        return list(self._groups.values())

    @property
    def share(self) -> float:
        """About the share of all groups that is in the sample; exactly 1 if all are."""
        return self._limit / WHOLE


# Size of each sample: near duplicates, exact duplicates, kept records.
SAMPLE_SIZE = 1_000
# Members in the sample of groups: in total, and of one group.
SAMPLED_MEMBERS, MEMBERS_OF_ONE_GROUP = 2_000, 60
# Steps of similarity from 0 to 1.
STEPS = 100


class PageSamples:
    """Counters over all records, and samples of them; call `observe` with each batch and its plan.

    Attributes:
        largest: The largest groups.
        counts: The verdicts.
        similarities: Near duplicates by hundredths of similarity, rounded down; int64, shape (101,).
        distances: Near duplicates by distance; None is the key of those without a distance.
        timeline: Records and drops by time and by order.
        near: A sample of near duplicates.
        exact: A sample of exact duplicates.
        kept: A sample of kept records, as raw ids.
        groups: A sample of groups.
    """

    def __init__(self, largest: LargestGroups[DuplicatePair]) -> None:
        """Use groups that somebody else counts already."""
        self.largest = largest
        self.counts = Counts()
        self.similarities = np.zeros(STEPS + 1, np.int64)
        self.distances: Counter[int | None] = Counter()
        self.timeline = Timeline()
        self.near: Reservoir[DuplicatePair] = Reservoir(SAMPLE_SIZE)
        self.exact: Reservoir[DuplicatePair] = Reservoir(SAMPLE_SIZE)
        self.kept: Reservoir[bytes] = Reservoir(SAMPLE_SIZE)
        self.groups = GroupReservoir(SAMPLED_MEMBERS, MEMBERS_OF_ONE_GROUP)

    def observe(self, _: Batch, plan: Plan) -> None:
        """Count and sample the verdicts of one batch."""
        self.counts += plan.counts
        is_dropped = np.array([verdict.match is not None for verdict in plan.verdicts], np.bool_)
        self.timeline.add(plan.ids, is_dropped)
        for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True):
            if verdict.match is not None:
                self._add_pair(DuplicatePair(raw_id, verdict.reason, verdict.match))
            elif verdict.action is Action.UNIQUE:
                self.kept.add(raw_id)

    def _add_pair(self, pair: DuplicatePair) -> None:
        """Count and sample a duplicate."""
        match = pair.match
        is_near = pair.reason == "near"
        self.groups.add(match.keeper, pair.duplicate, match.similarity if is_near else None)
        if not is_near:
            self.exact.add(pair)
            return
        self.near.add(pair)
        self.distances[match.distance] += 1
        if match.similarity is not None:
            # The small term: 0.29 * 100 is 28.999999999999996.
            self.similarities[int(match.similarity * STEPS + 1e-9)] += 1
