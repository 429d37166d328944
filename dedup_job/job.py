"""The job on one page: read, fingerprint, decide, commit.  Read this first.

A record is a duplicate when an earlier kept record has the same cleaned text, or lies within the radius and,
when texts are compared, has enough shingles in common.  The nearest keeper wins, the earliest of the nearest.
A record that is a duplicate itself stands for nothing: a chain A ~ B ~ C never drops C for A.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dedup_job.document import UNIQUE, Action, Batch, Counts, Fingerprints, Match, Verdict
from dedup_job.fingerprint.recipe import Matching
from dedup_job.match.index import Candidates, pairs_within
from dedup_job.match.keepers import Keepers
from dedup_job.match.shingle_index import BatchOwners, least_shared, prefixes
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
    absent    tells which of some keepers are not in the target any more
    commit    carries out a plan for these raw records, and returns the plan as it ended
    observe   is told of each batch and its plan, for the report
    """

    batches: Iterable[Batch]
    engine: Engine
    matching: Matching
    keepers: Keepers
    absent: Callable[[Collection[bytes]], set[bytes]]
    commit: Callable[[Plan, Sequence[bytes]], Plan]
    observe: Callable[[Batch, Plan], None]


def run(job: Job) -> Counts:
    """Decide every batch in turn and make each plan final before the next is decided."""
    counts = Counts()
    for batch, prints in job.engine.fingerprinted(job.batches):
        verdicts = decide(batch.ids, prints, job.matching, job.keepers)
        while gone := job.absent(relied_on(verdicts) - set(batch.ids)):
            job.keepers.forget(gone)
            verdicts = decide(batch.ids, prints, job.matching, job.keepers)
        plan = job.commit(planned(batch, prints, verdicts, job.matching), batch.raws)
        job.keepers.admit(plan, prints.shingles)
        job.observe(batch, plan)
        counts += plan.counts
    return counts


def relied_on(verdicts: Iterable[Verdict]) -> set[bytes]:
    """Return the keepers that stand for something in these verdicts."""
    return {verdict.match.keeper for verdict in verdicts if verdict.match is not None}


def planned(batch: Batch, prints: Fingerprints, verdicts: Sequence[Verdict], matching: Matching) -> Plan:
    """Return the plan for a batch: its verdicts, and what the index is later rebuilt from."""
    shortened = prefixes(prints.shingles, prints.short, matching.min_jaccard)
    return Plan(batch.ids, verdicts, prints.bits, prints.near, shortened, prints.digests, prints.hashes)


def decide(ids: Sequence[bytes], prints: Fingerprints, matching: Matching, keepers: Keepers) -> list[Verdict]:
    """Return the verdict of each record, in order, against the keepers and the batch's earlier records."""
    verdicts: list[Verdict] = []
    same_text = keepers.with_text(prints.digests)
    near = _Near(ids, prints, matching, keepers, same_text)
    kept_with: dict[bytes, int] = {}
    for row, reason in enumerate(prints.reasons):
        if reason:
            verdict = Verdict(Action.PASSED, reason)
        elif same_text[row] >= 0:
            verdict = _exact(keepers.id(same_text[row]))
        elif (kept := kept_with.get(prints.digests[row].tobytes())) is not None:
            verdict = _exact(ids[kept])
        elif (match := near.match(row, verdicts)) is not None:
            verdict = Verdict(Action.DUPLICATE, "near", match)
        else:
            verdict = UNIQUE
            kept_with[prints.digests[row].tobytes()] = row
        verdicts.append(verdict)
    return verdicts


def _exact(keeper: bytes) -> Verdict:
    return Verdict(Action.DUPLICATE, "exact", Match(keeper, 0, 1.0))


class _Near:
    """The near candidates of one batch: found at once, fetched at once, confirmed one record at a time."""

    def __init__(
        self,
        ids: Sequence[bytes],
        prints: Fingerprints,
        matching: Matching,
        keepers: Keepers,
        same_text: Sequence[int],
    ) -> None:
        is_new = np.array(same_text, np.int64) < 0
        self._ids, self._prints, self._matching, self._keepers = ids, prints, matching, keepers
        self._near = _by_fingerprint(prints, np.flatnonzero(prints.near & is_new), matching, keepers)
        shortened = prefixes(prints.shingles, prints.short & is_new, matching.min_jaccard)
        owners = keepers.owners(shortened)
        self._short = BatchOwners(shortened, owners)
        landed = {other for row in self._near.values() for _, is_inside, other in row if not is_inside}
        landed.update(*owners)
        self._shingles = keepers.shingles(sorted(landed)) if matching.min_jaccard else {}

    def match(self, row: int, verdicts: Sequence[Verdict]) -> Match | None:
        """Return the nearest confirmed keeper of a record; `verdicts` are those of the earlier records."""
        match = self._nearest(row, verdicts) or self._most_similar(row)
        if match is None:
            self._short.keep(row)
        return match

    def _nearest(self, row: int, verdicts: Sequence[Verdict]) -> Match | None:
        for distance, is_inside, other in self._near.get(row, ()):
            if verdicts[other] is not UNIQUE if is_inside else self._keepers.is_gone(other):
                continue
            if not self._matching.min_jaccard:
                return Match(self._keeper(is_inside, other), distance, None)
            similarity = self._similarity(row, is_inside, other)
            if similarity >= self._matching.min_jaccard:
                return Match(self._keeper(is_inside, other), distance, similarity)
        return None

    def _most_similar(self, row: int) -> Match | None:
        """Return the most similar text that shares shingles with a short one, the earliest of equals."""
        count = len(self._prints.shingles[row])
        landed, inside = self._short.sharing(row, least_shared(count, self._matching.min_jaccard))
        others = [(False, ordinal) for ordinal in landed if not self._keepers.is_gone(ordinal)]
        others += [(True, other) for other in inside]
        compared = [(self._similarity(row, *other), other) for other in others]
        similarity, best = max(compared, key=lambda pair: pair[0], default=(0.0, (False, 0)))
        if not compared or similarity < self._matching.min_jaccard:
            return None
        return Match(self._keeper(*best), None, similarity)

    def _keeper(self, is_inside: bool, other: int) -> bytes:
        return self._ids[other] if is_inside else self._keepers.id(other)

    def _similarity(self, row: int, is_inside: bool, other: int) -> float:
        """Return how alike two texts are; a keeper that is gone is like nothing."""
        shingles = self._prints.shingles[other] if is_inside else self._shingles.get(other)
        return 0.0 if shingles is None else jaccard(self._prints.shingles[row], shingles)


# Distance; whether it is in the batch; its row there, or its ordinal.  The nearest, earliest sorts first.
_Candidate = tuple[int, bool, int]


def _by_fingerprint(
    prints: Fingerprints, rows: npt.NDArray[np.intp], matching: Matching, keepers: Keepers
) -> dict[int, list[_Candidate]]:
    """Return for each row what lies within the radius, nearest and earliest first."""
    landed, inside = keepers.near(prints.bits[rows]), pairs_within(prints.bits[rows], matching.radius)
    numbers = rows.tolist()
    return {
        row: sorted(
            [(distance, False, ordinal) for ordinal, distance in _of(landed, place)]
            + [(distance, True, numbers[other]) for other, distance in _of(inside, place)]
        )
        for place, row in enumerate(numbers)
    }


def _of(candidates: Candidates, place: int) -> Iterator[tuple[int, int]]:
    start, stop = candidates.offsets[place], candidates.offsets[place + 1]
    positions, distances = candidates.positions[start:stop], candidates.distances[start:stop]
    return zip(positions.tolist(), distances.tolist(), strict=True)
