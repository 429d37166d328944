"""Carrying out what was foreseen: read each record again, check it, and commit the verdicts in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dedup_job.document import Batch, Counts, digests
from dedup_job.engine.spark.foresight import Decision, Deviations, Rows, decide
from dedup_job.plan import Plan


@dataclass(frozen=True, slots=True)
class Carrying:
    """What it works with.

    foreseen    rows of records, in order: those that are committed together
    records     yields those of some ids that exist, in their order
    absent      tells which of some keepers are not in the target any more
    commit      carries out a plan for these raw records, and returns the plan as it ended
    observe     is told of each batch and its plan, for the report
    deviations  what has come otherwise before
    """

    foreseen: Iterable[Rows]
    records: Callable[[Sequence[bytes]], Iterable[Batch]]
    absent: Callable[[Collection[bytes]], set[bytes]]
    commit: Callable[[Plan, Sequence[bytes]], Plan]
    observe: Callable[[Batch, Plan], None]
    deviations: Deviations = field(default_factory=Deviations)


def carry_out(job: Carrying) -> Counts:
    """Make the plan of each batch final before the next is decided.

    A record that is gone is left out, as if it had gone before it was read; one that is another by now is
    copied.  What they were to stand for is decided again, and so is what the target refused a keeper.
    """
    counts = Counts()
    for rows in job.foreseen:
        for here, batch in _present(rows, job):
            raw_hashes = digests(batch.raws)
            is_changed = (raw_hashes != here.hashes).any(axis=1)
            plan = planned(here, raw_hashes, _decided(here, is_changed, job))
            plan = job.commit(plan, batch.raws)
            job.deviations.learn(here, plan)
            job.observe(batch, plan)
            counts += plan.counts
    return counts


def planned(rows: Rows, hashes: npt.NDArray[np.uint64], decision: Decision) -> Plan:
    """Return the plan for records that have these hashes now."""
    return Plan(rows.ids, decision.verdicts, rows.bits, rows.has_print, rows.keys, rows.digests, hashes)


def _present(rows: Rows, job: Carrying) -> Iterator[tuple[Rows, Batch]]:
    """Yield batches of the records that are there, with their rows; note those that are gone."""
    places = {raw_id: row for row, raw_id in enumerate(rows.ids)}
    done = 0
    for batch in job.records(rows.ids):
        here = np.array([places[raw_id] for raw_id in batch.ids])
        _lose(rows, np.setdiff1d(np.arange(done, here[-1]), here), job)
        done = here[-1] + 1
        yield rows.take(here), batch
    _lose(rows, np.arange(done, len(rows)), job)


def _lose(rows: Rows, gone: npt.NDArray[np.intp], job: Carrying) -> None:
    for row in gone.tolist():
        job.deviations.note(rows, row, False)


def _decided(rows: Rows, is_changed: npt.NDArray[np.bool_], job: Carrying) -> Decision:
    """Decide records, again without those of their keepers that somebody took out of the target."""
    own = set(rows.ids)
    while True:
        decision = decide(rows, is_changed, job.deviations)
        gone = job.absent(decision.relied_on.keys() - own)
        if not gone:
            return decision
        for keeper in gone:
            job.deviations.standing[decision.relied_on[keeper]] = None
