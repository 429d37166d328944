"""Re-read each record, check its planned verdict, and commit the verdicts in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.mongo.pages import prefetch
from dedup_job.pipeline.job import Observe
from dedup_job.preference.preference_ranks import ranks_in
from dedup_job.records import UNIQUE, Batch, Counts, Plan, digests
from dedup_job.spark.adjust_planned_verdicts import Deviations, ExpectedRows, Phase, SparkDecision, decide


@dataclass(frozen=True, slots=True)
class CommitJob:
    """Everything that `commit_verdicts` needs to commit the planned verdicts.

    Attributes:
        expected: The planned verdicts in order, in pieces that are committed together.
        records: Re-reads the records with these ids; yields the ones that still exist, in the same order.
        gone: Returns which keepers are no longer valid. Its argument maps the id of a keeper to the number of
            its text.
        commit: Commits a plan of one phase for these raw records, and returns the plan after refusals by the
            target.
        observe: Called with each final plan, for the report.
        deviations: The texts whose keeper is not the planned one, from batches committed before.
        rules: Number of rules in `[match] prefer`.
    """

    expected: Iterable[ExpectedRows]
    records: Callable[[Sequence[bytes]], Iterable[Batch]]
    gone: Callable[[Mapping[bytes, int]], set[bytes]]
    commit: Callable[[Plan, Sequence[bytes], Phase], Plan]
    observe: Observe
    deviations: Deviations = field(default_factory=Deviations)
    rules: int = 0


class Committed(NamedTuple):
    """The result of `commit_verdicts`.

    Attributes:
        counts: The records of the source by their final verdict.
        left: Number of records that are undecided still.
    """

    counts: Counts
    left: int


class Fetched(NamedTuple):
    """A batch of records that were re-read.

    Attributes:
        rows: The planned verdicts of the records in `batch`.
        batch: The current records; empty if all records of a piece were deleted.
        gone: The planned verdicts of records that were deleted since, and come before the end of the batch.
    """

    rows: ExpectedRows
    batch: Batch
    gone: ExpectedRows


def commit_verdicts(job: CommitJob) -> Committed:
    """Commit the planned verdicts batch by batch, and decide again where a plan no longer holds.

    A record that was deleted since it was fingerprinted is skipped, as if it had been deleted before.  A
    record that was changed is copied without being compared.  Duplicates of a keeper that was deleted,
    changed or refused by the target are decided again.

    With `[match] prefer`, such a duplicate is left undecided if no other keeper matches it: worse records
    that match it may be kept already, and only a local run replaces keepers.
    """
    counts, left = Counts(), 0
    for rows, batch, gone in prefetch(_fetched(job)):
        for row in range(len(gone)):
            job.deviations.note(gone, row, False)
        if not len(batch):
            continue
        phase, hashes = Phase(int(rows.phase[0])), digests(batch.raws)
        is_changed = (hashes != rows.hashes).any(axis=1)
        decision = _decided(rows, is_changed, phase, job)
        plan = planned(rows, hashes, decision, job.rules)
        if phase is not Phase.MAIN:
            is_decided = ~is_changed
            if phase is Phase.DUPLICATES:
                is_decided = np.array([verdict is not UNIQUE for verdict in decision.verdicts], np.bool_)
                left += int((~is_decided).sum())
            here = np.flatnonzero(is_decided).tolist()
            for row in np.flatnonzero(~is_decided).tolist():
                job.deviations.note(rows, row, False)
            if not here:
                continue
            rows, plan, is_changed = rows.take(np.array(here)), plan.take(here), is_changed[here]
            batch = Batch([batch.ids[row] for row in here], [batch.raws[row] for row in here])
        # Committed before the next batch is decided: its duplicates may depend on records refused here.
        plan = job.commit(plan, batch.raws, phase)
        job.deviations.learn(rows, plan)
        if phase is not Phase.REFERENCE:
            job.observe(plan)
            counts += replace(plan.counts, partial=int((rows.partial & ~is_changed).sum()))
    return Committed(counts, left)


def planned(
    rows: ExpectedRows, hashes: npt.NDArray[np.uint64], decision: SparkDecision, rules: int = 0
) -> Plan:
    """Build the plan of some records.

    Args:
        rows: The planned verdicts, with the fingerprints of the records.
        hashes: uint64, shape (n, 2), digests of the records that were re-read.
        decision: The verdicts to commit.
        rules: Number of rules in `[match] prefer`.
    """
    ranks = ranks_in(rows.preferences, rules) if rules else None
    prints = (rows.bits, rows.has_fingerprint, rows.keys, rows.digests, hashes, ranks)
    return Plan(rows.ids, decision.verdicts, *prints)


def _fetched(job: CommitJob) -> Iterator[Fetched]:
    """Re-read the records of the planned verdicts, in order."""
    for rows in job.expected:
        places = {raw_id: row for row, raw_id in enumerate(rows.ids)}
        done = 0
        for batch in job.records(rows.ids):
            # Rows between the records that came back belong to deleted records.
            here = np.array([places[raw_id] for raw_id in batch.ids])
            gone = np.setdiff1d(np.arange(done, here[-1]), here)
            yield Fetched(rows.take(here), batch, rows.take(gone))
            done = int(here[-1]) + 1
        if done < len(rows):
            yield Fetched(rows.take(np.arange(0)), Batch((), ()), rows.take(np.arange(done, len(rows))))


def _decided(
    rows: ExpectedRows, is_changed: npt.NDArray[np.bool_], phase: Phase, job: CommitJob
) -> SparkDecision:
    """Decide the records of a batch, using only keepers that are still valid."""
    if phase is Phase.REFERENCE:
        # All of them are kept, even copies of each other and records without a text.
        return SparkDecision([UNIQUE] * len(rows), {})
    own = set(rows.ids)
    # Without an invalid keeper, a record may match another keeper, which has to be checked as well.
    while True:
        decision = decide(rows, is_changed, job.deviations)
        # Keepers of this batch are not in the target yet; the commit itself handles their refusal.
        before = {keeper: text for keeper, text in decision.relied_on.items() if keeper not in own}
        gone = job.gone(before)
        if not gone:
            return decision
        for keeper in gone:
            job.deviations.standing[decision.relied_on[keeper]] = None
