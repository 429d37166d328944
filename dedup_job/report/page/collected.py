"""What a page tells of a run, collected while the run is observed: counters, and samples of bounded size."""

from __future__ import annotations

from collections import Counter

import numpy as np

from dedup_job.document import Action, Batch, Counts
from dedup_job.plan import Plan
from dedup_job.report.evidence import Pair
from dedup_job.report.largest import LargestGroups
from dedup_job.report.page.reservoir import GroupReservoir, Reservoir
from dedup_job.report.page.timeline import Timeline

DRAWN = 1_000  # near duplicates, exact ones, and kept records: so many of each
DRAWN_MEMBERS, OF_ONE_GROUP = 2_000, 60
STEPS = 100  # of similarity, from 0 to 1


class Collected:
    """Counters over all records, and samples of them; `observe` is told of each batch and its plan.

    similarities  int64 (101,), near duplicates by hundredths of similarity, rounded down
    distances     near duplicates by distance; under None those that have none
    """

    def __init__(self, largest: LargestGroups[Pair]) -> None:
        """Share the counts of groups with those who count them anyway."""
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
        """Take in the verdicts of one batch."""
        self.counts += plan.counts
        is_dropped = np.array([verdict.match is not None for verdict in plan.verdicts], np.bool_)
        self.timeline.add(plan.ids, is_dropped)
        for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True):
            if verdict.match is not None:
                self._take(Pair(raw_id, verdict.reason, verdict.match))
            elif verdict.action is Action.UNIQUE:
                self.kept.add(raw_id)

    def _take(self, pair: Pair) -> None:
        match = pair.match
        is_near = pair.reason == "near"
        self.groups.add(match.keeper, pair.duplicate, match.similarity if is_near else None)
        if not is_near:
            self.exact.add(pair)
            return
        self.near.add(pair)
        self.distances[match.distance] += 1
        if match.similarity is not None:
            self.similarities[int(match.similarity * STEPS + 1e-9)] += 1
