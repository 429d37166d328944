"""The job on one page: read, fingerprint, decide, commit.  Read this first.

A record is a duplicate when an earlier kept record has the same cleaned text, or lies within the radius and,
when texts are compared, has enough shingles in common.  The nearest keeper wins, the earliest of the nearest.
A record that is a duplicate itself stands for nothing: a chain A ~ B ~ C never drops C for A.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Protocol

import numpy as np

from dedup_job.document import UNIQUE, Action, Batch, Counts, Fingerprints, Match, Verdict
from dedup_job.fingerprint.recipe import Matching
from dedup_job.match.judge import Judgement
from dedup_job.match.keepers import Keepers
from dedup_job.match.shingle_index import prefixes
from dedup_job.match.surroundings import look_around
from dedup_job.plan import Plan

PLAN_BYTES = 6 << 20  # a document has 16 MiB at most, and so has a command that names a plan's ids


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
    held      tells which of some ids the target held before the job began
    commit    carries out a plan for these raw records, and returns the plan as it ended; the rows that tell
              of it may be written later
    observe   is told of each batch and its plan, for the report
    """

    batches: Iterable[Batch]
    engine: Engine
    matching: Matching
    keepers: Keepers
    absent: Callable[[Collection[bytes]], set[bytes]]
    commit: Callable[[Plan, Sequence[bytes]], Plan]
    observe: Callable[[Batch, Plan], None]
    held: Callable[[Sequence[bytes]], Collection[bytes]] = field(default=lambda ids: ())


def run(job: Job) -> Counts:
    """Decide every batch in turn and make each plan final before the next is decided."""
    counts = Counts()
    for batch, prints in job.engine.fingerprinted(job.batches):
        held = job.held(batch.ids)
        verdicts = decide(batch.ids, prints, job.matching, job.keepers, held)
        while gone := job.absent(relied_on(verdicts) - set(batch.ids)):
            job.keepers.forget(gone)
            verdicts = decide(batch.ids, prints, job.matching, job.keepers, held)
        plan = in_parts(planned(batch, prints, verdicts, job.matching), batch.raws, job.commit)
        job.keepers.admit(plan, prints.shingles)
        job.observe(batch, plan)
        counts += plan.counts
    return counts


def in_parts(plan: Plan, raws: Sequence[bytes], commit: Callable[[Plan, Sequence[bytes]], Plan]) -> Plan:
    """Commit a plan, in parts where it is too large to be stored; returns the whole as it ended.

    What a part's refusal of a keeper means for later parts is what it means within one.
    """
    for start, stop in plan.bounds(PLAN_BYTES):
        done = commit(plan.part(start, stop), raws[start:stop])
        if failed := {start + row: done.verdicts[row] for row in done.rows(Action.REFUSED)}:
            plan = plan.without(failed)
    return plan


def relied_on(verdicts: Iterable[Verdict]) -> set[bytes]:
    """Return the keepers that stand for something in these verdicts."""
    return {verdict.match.keeper for verdict in verdicts if verdict.match is not None}


def planned(batch: Batch, prints: Fingerprints, verdicts: Sequence[Verdict], matching: Matching) -> Plan:
    """Return the plan for a batch: its verdicts, and what the index is later rebuilt from."""
    shortened = prefixes(prints.shingles, prints.short, matching.min_similarity)
    return Plan(batch.ids, verdicts, prints.bits, prints.near, shortened, prints.digests, prints.hashes)


def decide(
    ids: Sequence[bytes],
    prints: Fingerprints,
    matching: Matching,
    keepers: Keepers,
    held: Collection[bytes] = (),
) -> list[Verdict]:
    """Return the verdict of each record, in order, against the keepers and the batch's earlier records.

    An id that the target held before is never dropped: the record is there already, or the target refuses it.
    """
    same_text = keepers.with_text(prints.digests)
    is_passed = np.array([reason != "" for reason in prints.reasons], np.bool_)
    may_be_dropped = ~is_passed & np.array([raw_id not in held for raw_id in ids], np.bool_)
    around = look_around(prints, may_be_dropped & (same_text < 0), matching, keepers)
    found = around.judged(matching.min_similarity)

    def verdict(row: int) -> Verdict:
        if is_passed[row]:
            return Verdict(Action.UNJUDGED, prints.reasons[row])
        if same_text[row] >= 0:
            return Verdict(Action.DUPLICATE, "exact", Match(keepers.id(int(same_text[row])), 0, 1.0))
        inside = found.keeper[row] - len(around.landed)
        keeper = ids[inside] if inside >= 0 else keepers.id(int(around.landed[found.keeper[row]]))
        return Verdict(Action.DUPLICATE, "exact" if found.exact[row] else "near", _match(found, row, keeper))

    is_dropped = may_be_dropped & ((same_text >= 0) | (found.keeper >= 0))
    verdicts = [UNIQUE] * len(ids)
    for row in np.flatnonzero(is_passed | is_dropped).tolist():
        verdicts[row] = verdict(row)
    return verdicts


def _match(found: Judgement, row: int, keeper: bytes) -> Match:
    distance, similarity = int(found.distance[row]), float(found.similarity[row])
    return Match(keeper, distance if distance >= 0 else None, None if isnan(similarity) else similarity)
