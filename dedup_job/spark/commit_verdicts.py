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
class Carrying:
    """What it works with.

    expected    rows of records, in order: those that are committed together
    records     yields those of some ids that exist, in their order
    gone        tells which of some keepers stand no more, their ids given with the numbers of their texts
    commit      carries out a plan for these raw records, and returns the plan as it ended
    observe     is told of each batch and its plan, for the report
    deviations  what has come otherwise before
    """

    expected: Iterable[ExpectedRows]
    records: Callable[[Sequence[bytes]], Iterable[Batch]]
    gone: Callable[[Mapping[bytes, int]], set[bytes]]
    commit: Callable[[Plan, Sequence[bytes]], Plan]
    observe: Callable[[Batch, Plan], object]
    deviations: Deviations = field(default_factory=Deviations)


class Fetched(NamedTuple):
    """Records that are there, with what was expected for them, and for those before them that are gone."""

    rows: ExpectedRows
    batch: Batch
    gone: ExpectedRows


def carry_out(job: Carrying) -> Counts:
    """Make the plan of each batch final before the next is decided.

    A record that is gone is left out, as if it had gone before it was read; one that is another by now is
    copied.  What they were to stand for is decided again, and so is what the target refused a keeper.
    """
    counts = Counts()
    for rows, batch, gone in prefetch(_fetched(job)):
        for row in range(len(gone)):
            job.deviations.note(gone, row, False)
        if not len(batch):
            continue
        hashes = digests(batch.raws)
        is_changed = (hashes != rows.hashes).any(axis=1)
        plan = job.commit(planned(rows, hashes, _decided(rows, is_changed, job)), batch.raws)
        job.deviations.learn(rows, plan)
        job.observe(batch, plan)
        counts += plan.counts
    return counts


def planned(rows: ExpectedRows, hashes: npt.NDArray[np.uint64], decision: SparkDecision) -> Plan:
    """Return the plan for records that have these hashes now."""
    return Plan(rows.ids, decision.verdicts, rows.bits, rows.has_fingerprint, rows.keys, rows.digests, hashes)


def _fetched(job: Carrying) -> Iterator[Fetched]:
    """Yield the records as they are now, in their order."""
    for rows in job.expected:
        places = {raw_id: row for row, raw_id in enumerate(rows.ids)}
        done = 0
        for batch in job.records(rows.ids):
            here = np.array([places[raw_id] for raw_id in batch.ids])
            gone = np.setdiff1d(np.arange(done, here[-1]), here)
            yield Fetched(rows.take(here), batch, rows.take(gone))
            done = int(here[-1]) + 1
        if done < len(rows):
            yield Fetched(rows.take(np.arange(0)), Batch((), ()), rows.take(np.arange(done, len(rows))))


def _decided(rows: ExpectedRows, is_changed: npt.NDArray[np.bool_], job: Carrying) -> SparkDecision:
    """Decide records, again without those of their keepers that stand no more."""
    own = set(rows.ids)
    while True:
        decision = decide(rows, is_changed, job.deviations)
        before = {keeper: text for keeper, text in decision.relied_on.items() if keeper not in own}
        gone = job.gone(before)
        if not gone:
            return decision
        for keeper in gone:
            job.deviations.standing[decision.relied_on[keeper]] = None
