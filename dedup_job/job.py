"""The job on one page: read, fingerprint, decide, commit.  Read this first.

A record is a duplicate when an earlier kept record has the same cleaned text, or lies within the radius and,
when texts are compared, has enough shingles in common.  The nearest keeper wins, the earliest of the nearest.
A record that is a duplicate itself stands for nothing: a chain A ~ B ~ C never drops C for A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dedup_job.document import UNIQUE, Action, Batch, Counts, Fingerprints, Match, Verdict
from dedup_job.fingerprint.recipe import Matching
from dedup_job.match.index import Candidates, pairs_within
from dedup_job.match.keepers import Keepers
from dedup_job.match.similarity import jaccard
from dedup_job.plan import Plan


class Engine(Protocol):
    """Where fingerprinting runs."""

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        """Yield each batch with its fingerprints, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """What a run works with; a dry run is handed a `commit` that writes nothing.

    batches   what to decide, in order
    keepers   everything that was kept before
    commit    carries out a plan for these raw records, and returns the plan as it ended
    observe   is told of each batch and its plan, for the report
    """

    batches: Iterable[Batch]
    engine: Engine
    matching: Matching
    keepers: Keepers
    commit: Callable[[Plan, Sequence[bytes]], Plan]
    observe: Callable[[Batch, Plan], None]


def run(job: Job) -> Counts:
    """Decide every batch in turn and make each plan final before the next is decided."""
    counts = Counts()
    for batch, prints in job.engine.fingerprinted(job.batches):
        verdicts = decide(batch.ids, prints, job.matching, job.keepers)
        plan = job.commit(Plan.of(batch, prints, verdicts), batch.raws)
        job.keepers.admit(plan, prints.shingles)
        job.observe(batch, plan)
        counts += plan.counts
    return counts


def decide(ids: Sequence[bytes], prints: Fingerprints, matching: Matching, keepers: Keepers) -> list[Verdict]:
    """Return the verdict of each record, in order, against the keepers and the batch's earlier records."""
    verdicts: list[Verdict] = []
    same_text = keepers.with_text(prints.digests)
    near = _Near(ids, prints, matching, keepers, same_text)
    first_with: dict[bytes, int] = {}
    for row, reason in enumerate(prints.reasons):
        if reason:
            verdict = Verdict(Action.PASSED, reason)
        elif same_text[row] >= 0:
            verdict = _exact(keepers.id(same_text[row]))
        elif (first := first_with.setdefault(prints.digests[row].tobytes(), row)) != row:
            verdict = _exact(ids[first]) if verdicts[first] is UNIQUE else verdicts[first]
        else:
            match = near.match(row, verdicts)
            verdict = Verdict(Action.DUPLICATE, "near", match) if match else UNIQUE
        verdicts.append(verdict)
    return verdicts


def _exact(keeper: bytes) -> Verdict:
    return Verdict(Action.DUPLICATE, "exact", Match(keeper, 0, 1.0))


class _Near:
    """The near candidates of one batch, found and fetched at once, confirmed one record at a time."""

    def __init__(
        self,
        ids: Sequence[bytes],
        prints: Fingerprints,
        matching: Matching,
        keepers: Keepers,
        same_text: Sequence[int],
    ) -> None:
        rows = np.flatnonzero(prints.near & (np.array(same_text, np.int64) < 0))
        self._place = {row: place for place, row in enumerate(rows.tolist())}
        self._rows = rows
        self._ids, self._prints, self._matching, self._keepers = ids, prints, matching, keepers
        self._landed = keepers.near(prints.bits[rows])
        self._inside = pairs_within(prints.bits[rows], matching.radius)
        self._shingles = keepers.shingles(self._landed.positions.tolist()) if matching.min_jaccard else {}

    def match(self, row: int, verdicts: Sequence[Verdict]) -> Match | None:
        """Return the nearest confirmed keeper of a record; `verdicts` are those of the earlier records."""
        if row not in self._place:
            return None
        place = self._place[row]
        landed = [(distance, 0, ordinal) for ordinal, distance in _of(self._landed, place)]
        inside = [(distance, 1, int(self._rows[other])) for other, distance in _of(self._inside, place)]
        for distance, is_inside, other in sorted(landed + inside):
            if is_inside and verdicts[other] is not UNIQUE:
                continue
            similarity = self._similarity(row, other, bool(is_inside))
            if similarity is None or similarity >= self._matching.min_jaccard:
                keeper = self._ids[other] if is_inside else self._keepers.id(other)
                return Match(keeper, distance, similarity)
        return None

    def _similarity(self, row: int, other: int, is_inside: bool) -> float | None:
        """Return how alike two texts are; None where texts are not compared, 0 for a lost keeper."""
        if not self._matching.min_jaccard:
            return None
        shingles = self._prints.shingles[other] if is_inside else self._shingles.get(other)
        return 0.0 if shingles is None else jaccard(self._prints.shingles[row], shingles)


def _of(candidates: Candidates, place: int) -> Iterator[tuple[int, int]]:
    start, stop = candidates.offsets[place], candidates.offsets[place + 1]
    positions, distances = candidates.positions[start:stop], candidates.distances[start:stop]
    return zip(positions.tolist(), distances.tolist(), strict=True)
