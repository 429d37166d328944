"""Choose what decides a run; store which keepers better records replace (`[match] prefer`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

import numpy as np

from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.plan_format import Before
from dedup_job.ledger.rows_on_records import Dependant
from dedup_job.mongo.target import Target
from dedup_job.pipeline.command_context import Context
from dedup_job.pipeline.displaced_records_queue import DroppedRecord, LeavingRecord
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.pipeline.job import KeepFirst, KeptRecords
from dedup_job.pipeline.load_keepers_and_scan_source import PriorDecisions
from dedup_job.pipeline.replace_keepers import DecisionStore, KeepBest
from dedup_job.records import (
    REDECIDE,
    REPLACE,
    UNIQUE,
    Counts,
    FingerprintedBatch,
    Plan,
)


def check_rights_to_replace(context: Context) -> None:
    """Raise NotPermitted if keepers may be replaced and the user may not remove records; writes nothing."""
    if context.recipe.matching.prefer:
        context.target.check_rights()


def choose_decider(
    context: Context,
    engine: FingerprintWorkers,
    past: PriorDecisions,
    target: KeptRecords,
    store: DecisionStore,
    first_number: int,
) -> KeepFirst | KeepBest:
    """Return what decides the batches of a run: with `[match] prefer` it keeps the best record.

    Args:
        context: The open connections.
        engine: Makes the fingerprints.
        past: The earlier decisions.
        target: Where kept records are.
        store: Where decisions are stored.
        first_number: Number of the first plan of the run.
    """
    matching = context.recipe.matching
    if not matching.prefer:
        return KeepFirst(matching, past.keepers, target, past.adopted)

    def read(ids: Sequence[bytes]) -> Iterator[FingerprintedBatch]:
        return past.fingerprint(engine, context.source.records(ids))

    blank = context.recipe.unchecked("", b"")
    decider = KeepBest(matching, past.keepers, target, past.adopted, store, read, blank, first_number)
    decider.add_unsettled(past.unsettled)
    return decider


@dataclass(frozen=True, slots=True)
class LedgerDecisions:
    """The decisions of a ledger.

    Attributes:
        ledger: The ledger, with the lease.
        target: Where kept records are inserted, and replaced keepers removed.
    """

    ledger: Ledger
    target: Target

    @property
    def number(self) -> int:
        """Number of the plan that was committed last."""
        return self.ledger.number

    def dropped_for(self, keepers: Sequence[bytes], take: Callable[[Sequence[Dependant]], None]) -> None:
        """Pass on the records that were dropped for these keepers, some at a time."""
        # The rows of the last plan may not be written yet.
        self.ledger.settle()
        self.ledger.dropped_for(keepers, take)

    def redecide(self, plan: Plan, raws: Sequence[bytes], dropped: Sequence[DroppedRecord]) -> Plan:
        """Commit new decisions on dropped records; return the plan as applied."""
        numbers = np.array([record.number for record in dropped], np.uint32)
        before = Counts.of(record.verdict for record in dropped)
        never_inserted = np.zeros((len(dropped), 2), np.uint64)
        return self.ledger.commit(plan, raws, self.target, REDECIDE, Before(numbers, never_inserted, before))

    def replace(self, leaving: Sequence[LeavingRecord]) -> Plan:
        """Commit that kept records leave the target; return the plan as applied."""
        plan = Plan.join(list(self._earlier_rows(leaving)))
        numbers = np.array([record.number for record in leaving], np.uint32)
        hashes = plan.hashes if self.target.holds_copies else np.zeros_like(plan.hashes)
        before = Before(numbers, hashes, Counts(unique=len(plan)))
        return self.ledger.commit(plan, [b""] * len(plan), self.target, REPLACE, before)

    def _earlier_rows(self, leaving: Sequence[LeavingRecord]) -> Iterator[Plan]:
        """Yield the rows of earlier plans on these records, with their new verdicts, in the given order."""
        for number, records in groupby(leaving, key=attrgetter("number")):
            verdicts = {record.id: record.verdict for record in records}
            plan = self.ledger.plan_of_number(number, self.ledger.current_head).plan
            rows = {
                raw_id: row
                for row, raw_id in enumerate(plan.ids)
                if raw_id in verdicts and plan.verdicts[row] == UNIQUE
            }
            part = plan.take([rows[raw_id] for raw_id in verdicts])
            yield replace(part, verdicts=list(verdicts.values()), displaced=())

    def finish(self) -> None:
        """Store that no keeper needs to be decided again."""
        self.ledger.settle_keepers()
