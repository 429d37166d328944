"""Re-read each record, check its planned verdict, and commit the verdicts in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.mongo.pages import prefetch
from dedup_job.records import Batch, Counts, Plan, digests
from dedup_job.spark.planned_verdicts import Deviations, ExpectedRows, SparkDecision, decide


@dataclass(frozen=True, slots=True)
class CommitJob:
    """Everything that `commit_verdicts` needs to commit the planned verdicts.

    Attributes:
        expected: The planned verdicts in order, in pieces that are committed together.
        records: Re-reads the records with these ids; yields the ones that still exist, in the same order.
        gone: Returns which keepers are no longer valid. Its argument maps the id of a keeper to the number of
            its text.
        commit: Commits a plan for these raw records, and returns the plan after refusals by the target.
        observe: Called with each batch and its final plan, for the report.
        deviations: The texts whose keeper is not the planned one, from batches committed before.
    """

    expected: Iterable[ExpectedRows]
    records: Callable[[Sequence[bytes]], Iterable[Batch]]
    gone: Callable[[Mapping[bytes, int]], set[bytes]]
    commit: Callable[[Plan, Sequence[bytes]], Plan]
    observe: Callable[[Batch, Plan], object]
    deviations: Deviations = field(default_factory=Deviations)


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


def commit_verdicts(job: CommitJob) -> Counts:
    """Commit the planned verdicts batch by batch, and decide again where a plan no longer holds.

    A record that was deleted since it was fingerprinted is skipped, as if it had been deleted before.  A
    record that was changed is copied without being compared.  Duplicates of a keeper that was deleted,
    changed or refused by the target are decided again.

    Returns:
        The number of records by their final verdict.
    """
    counts = Counts()
    for rows, batch, gone in prefetch(_fetched(job)):
        for row in range(len(gone)):
            job.deviations.note(gone, row, False)
        if not len(batch):
            continue
        hashes = digests(batch.raws)
        is_changed = (hashes != rows.hashes).any(axis=1)
        # Committed before the next batch is decided: its duplicates may depend on records refused here.
        plan = job.commit(planned(rows, hashes, _decided(rows, is_changed, job)), batch.raws)
        job.deviations.learn(rows, plan)
        job.observe(batch, plan)
        counts += plan.counts
    return counts


def planned(rows: ExpectedRows, hashes: npt.NDArray[np.uint64], decision: SparkDecision) -> Plan:
    """Build the plan of some records.

    Args:
        rows: The planned verdicts, with the fingerprints of the records.
        hashes: uint64, shape (n, 2), digests of the records that were re-read.
        decision: The verdicts to commit.
    """
    return Plan(rows.ids, decision.verdicts, rows.bits, rows.has_fingerprint, rows.keys, rows.digests, hashes)


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


def _decided(rows: ExpectedRows, is_changed: npt.NDArray[np.bool_], job: CommitJob) -> SparkDecision:
    """Decide the records of a batch, using only keepers that are still valid."""
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
