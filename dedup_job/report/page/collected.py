"""Counters and bounded samples for the page, collected while a run is observed."""

from __future__ import annotations

from collections import Counter

import numpy as np

from dedup_job.document import Action, Batch, Counts
from dedup_job.plan import Plan
from dedup_job.report.evidence import Pair
from dedup_job.report.largest import LargestGroups
from dedup_job.report.page.reservoir import GroupReservoir, Reservoir
from dedup_job.report.page.timeline import Timeline

DRAWN = 1_000  # size of each sample: near duplicates, exact duplicates, kept records
DRAWN_MEMBERS, OF_ONE_GROUP = 2_000, 60  # members in the sample of groups, in all and of one group
STEPS = 100  # of similarity, from 0 to 1


class Collected:
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

    def __init__(self, largest: LargestGroups[Pair]) -> None:
        """Use groups that somebody else counts already."""
        self.largest = largest
        self.counts = Counts()
        self.similarities = np.zeros(STEPS + 1, np.int64)
        self.distances: Counter[int | None] = Counter()
        self.timeline = Timeline()
        self.near: Reservoir[Pair] = Reservoir(DRAWN)
        self.exact: Reservoir[Pair] = Reservoir(DRAWN)
        self.kept: Reservoir[bytes] = Reservoir(DRAWN)
        self.groups = GroupReservoir(DRAWN_MEMBERS, OF_ONE_GROUP)

    def observe(self, _: Batch, plan: Plan) -> None:
        """Count and sample the verdicts of one batch."""
        self.counts += plan.counts
        is_dropped = np.array([verdict.match is not None for verdict in plan.verdicts], np.bool_)
        self.timeline.add(plan.ids, is_dropped)
        for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True):
            if verdict.match is not None:
                self._add_pair(Pair(raw_id, verdict.reason, verdict.match))
            elif verdict.action is Action.UNIQUE:
                self.kept.add(raw_id)

    def _add_pair(self, pair: Pair) -> None:
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
