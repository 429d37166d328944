"""Counters and bounded samples collected while a run is observed."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dedup_job.html_page.page_data import CollectionStretch
from dedup_job.mongo.ids import HEAD, OBJECT_ID
from dedup_job.records import Action, Counts, Plan, digest
from dedup_job.report.sampled_pairs_and_groups import (
    DuplicatePair,
    LargestGroups,
    Reservoir,
    duplicate_pairs,
)

# Number of hash values.
WHOLE = 1 << 64


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
            keeper_hash = int.from_bytes(digest(keeper)[:8])
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

# Records that the timeline counts together, and stretches that its chart shows.
PIECE, STRETCHES = 100, 60
# Bytes of a raw id with an ObjectId: its first four are seconds, big-endian.
TIME = slice(9, 13)


def to_hundredth(similarity: float) -> int:
    """Return a similarity in hundredths, rounded down."""
    # 0.29 * 100 is 28.999999999999996.
    return int(similarity * STEPS + 1e-9)


class Timeline:
    """Counts drops along the order of decision, by the time in the records' ids where they have one.

    Memory: 24 bytes for a hundred records.
    """

    def __init__(self) -> None:
        # For each piece: its records, its drops, the time of its first id in seconds since 1970.
        self._records, self._dropped, self._times = array("q"), array("q"), array("q")
        self._last_time = -1

    def add(self, ids: Sequence[bytes], is_dropped: npt.NDArray[np.bool_]) -> None:
        """Count the records of one batch.

        Args:
            ids: Raw ids, in the order of decision.
            is_dropped: bool, shape (n,).
        """
        for start in range(0, len(ids), PIECE):
            piece = is_dropped[start : start + PIECE]
            self._records.append(len(piece))
            self._dropped.append(int(piece.sum()))
            self._times.append(_time_of(ids[start]))
        self._last_time = _time_of(ids[-1])

    def stretches(self) -> list[CollectionStretch]:
        """Return at most 60 stretches with about as many records each.

        They begin and end at a time if the ids have times that ascend, as in a backfill, otherwise at a
        position in the order of decision.
        """
        pieces = len(self._records)
        edges = np.unique(np.linspace(0, pieces, min(STRETCHES, pieces) + 1).astype(np.int64))
        positions = np.concatenate([[0], np.cumsum(self._records)]).astype(np.int64)
        drops = np.concatenate([[0], np.cumsum(self._dropped)]).astype(np.int64)
        # A stretch ends where the next one starts; the last stretch ends with its last record.
        times = np.array([*self._times, self._last_time], np.int64)[edges]
        is_timed = len(times) > 2 and times[0] > 0 and bool((np.diff(times) > 0).all())
        return [
            CollectionStretch(
                datetime.fromtimestamp(times[at], UTC) if is_timed else int(positions[start]),
                datetime.fromtimestamp(times[at + 1], UTC) if is_timed else int(positions[end]),
                int(positions[end] - positions[start]),
                int(drops[end] - drops[start]),
            )
            for at, (start, end) in enumerate(pairwise(edges.tolist()))
        ]


def _time_of(raw_id: bytes) -> int:
    """Return the time in an ObjectId, in seconds since 1970; -1 for another id."""
    return int.from_bytes(raw_id[TIME]) if raw_id[HEAD] == OBJECT_ID else -1


class PageSamples:
    """Counters over all records, and samples of them; call `observe` with each plan.

    Attributes:
        largest: The largest groups.
        counts: The verdicts.
        similarities: Near duplicates by hundredths of similarity, rounded down; int64, shape (101,).
        distances: Near duplicates by distance; None is the key of those without a distance.
        timeline: Drops along the collection.
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

    def observe(self, plan: Plan) -> None:
        """Count and sample the verdicts of one batch."""
        self.counts += plan.counts
        is_dropped = np.array([verdict.match is not None for verdict in plan.verdicts], np.bool_)
        self.timeline.add(plan.ids, is_dropped)
        for row in plan.rows(Action.UNIQUE):
            self.kept.add(plan.ids[row])
        for pair in duplicate_pairs(plan):
            self._add_pair(pair)

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
            self.similarities[to_hundredth(match.similarity)] += 1
