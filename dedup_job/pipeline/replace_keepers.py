"""Keep the better of two matching records, in whatever order they come: `[match] prefer`.

A new record is dropped if a better kept record matches it.  Otherwise it is kept, and worse keepers that
match it are decided again at the end of the run, the best first; so are the records that were dropped for
them, if they are dropped.  A record that is kept again may displace worse keepers in turn.  Every decision
only affects worse records, so this ends, and the kept records are those that keep-first keeps of all decided
records when they are sorted best first.

Records leave the target last, when everything that was dropped for them has another keeper or is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.digest_index import DigestIndex
from dedup_job.index.keepers import BatchTexts, KeeperRef, Keepers
from dedup_job.ledger.rows_on_records import Dependant
from dedup_job.mongo.ids import IdSet
from dedup_job.native.arrays import Numbers
from dedup_job.pipeline.displaced_records_queue import (
    DroppedRecord,
    KeptRecord,
    LeavingRecord,
    RedecisionQueue,
)
from dedup_job.pipeline.job import (
    PLAN_BYTES,
    AdoptedIds,
    Commit,
    Decision,
    KeptRecords,
    Observe,
    add_keepers,
    decide,
    decide_by_present_keepers,
    find_adopted,
    make_plan,
    plan_without_texts,
)
from dedup_job.preference.preference_ranks import BEST, pack_rank, unpack_ranks
from dedup_job.records import (
    UNIQUE,
    VANISHED,
    Action,
    Batch,
    Counts,
    FingerprintedBatch,
    Fingerprints,
    Plan,
    RawIds,
    Verdict,
    digests,
)
from dedup_job.report.run_summary import ReplacementCounts

# Records that are decided again together, at most.
PAGE = 2_000

log = logging.getLogger("dedup_job")


class DecisionStore(Protocol):
    """Where decisions are stored: the ledger or, in a dry run, memory."""

    @property
    def number(self) -> int:
        """Number of the plan that was committed last."""
        ...

    def dropped_for(self, keepers: Sequence[bytes], take: Callable[[Sequence[Dependant]], None]) -> None:
        """Pass on the records that were dropped for these keepers, some at a time."""
        ...

    def redecide(self, plan: Plan, raws: Sequence[bytes], dropped: Sequence[DroppedRecord]) -> Plan:
        """Commit new decisions on dropped records; return the plan as applied."""
        ...

    def replace(self, leaving: Sequence[LeavingRecord]) -> Plan:
        """Commit that kept records leave the target; return the plan as applied."""
        ...

    def finish(self) -> None:
        """Store that no keeper needs to be decided again."""
        ...


@dataclass(slots=True)
class KeepBest:
    """Decides the batches of a run so that the better of two matching records is kept.

    Attributes:
        matching: What counts as a duplicate, and which record is better.
        keepers: All records kept so far, but for those in the queue.
        target: Where kept records are.
        adopted: Ids that the target had before the job first ran.
        store: Where decisions are stored.
        read: Yields records of the source, with their fingerprints, by id.
        blank: The fingerprints of a record that vanished.
        first_number: Number of the first plan of this run.
    """

    matching: Matching
    keepers: Keepers
    target: KeptRecords
    adopted: IdSet
    store: DecisionStore
    read: Callable[[Sequence[bytes]], Iterator[FingerprintedBatch]]
    blank: Fingerprints
    first_number: int
    _queue: RedecisionQueue = field(default_factory=RedecisionQueue)
    _counts: ReplacementCounts = field(default_factory=ReplacementCounts)
    # Records of earlier runs that this run has decided again, by the digest of their ids.
    _older: DigestIndex = field(default_factory=DigestIndex)

    def add_unsettled(self, records: Sequence[KeptRecord]) -> None:
        """Add keepers that an interrupted run has left to be decided again."""
        self._queue.add_kept(records)
        for record in records:
            self.keepers.release(KeeperRef(record.text, record.id))

    def decide_batches(
        self, batches: Iterable[FingerprintedBatch], commit: Commit, observe: Observe
    ) -> Counts:
        """Decide every batch in turn, and commit its plan before the next one is decided; see `KeepFirst`."""
        counts = Counts()
        for batch, prints in batches:
            for plan in self._decide(batch, prints, commit):
                observe(plan)
                counts += plan.counts
            counts += Counts(partial=int(prints.partial.sum()))
        return counts

    def settle(self) -> ReplacementCounts:
        """Decide again whatever a better record has made outdated, and return the result."""
        is_first = True
        while any(page := self._queue.take(PAGE)):
            if is_first:
                log.info("replacing keepers that match a better record")
                is_first = False
            kept, dropped = page
            self._decide_kept(kept)
            self._decide_dropped(dropped)
        for leaving in self._queue.leaving(PAGE):
            plan = self.store.replace(leaving)
            befores = [(record.number, UNIQUE) for record in leaving]
            self._count(plan, befores)
        self.store.finish()
        return self._counts

    def _decide(self, batch: Batch, prints: Fingerprints, commit: Commit) -> Iterator[Plan]:
        """Decide a batch, and yield its plan as committed; in halves if the plan is too large to store."""
        entered = self.keepers.add_texts(RawIds.of(batch.ids), prints)
        adopted = find_adopted(batch, self.adopted, self.target)
        assert prints.ranks is not None
        ranks = prints.ranks.copy()
        # The target's own records are better than all others.
        ranks[[raw_id in adopted.ids for raw_id in batch.ids]] = BEST
        prints = replace(prints, ranks=ranks)
        decision = self._decide_by_rank(batch.ids, prints, entered.texts, adopted)
        plan = make_plan(batch, prints, decision.verdicts)
        plan = replace(plan, displaced=[keeper.id for keeper in decision.displaced])
        is_too_large = len(plan.bounds(PLAN_BYTES)) > 1 or sum(map(len, plan.displaced)) > PLAN_BYTES
        if len(batch) > 1 and is_too_large:
            half = len(batch) // 2
            for some in (slice(half), slice(half, None)):
                part = Batch(batch.ids[some], batch.raws[some])
                yield from self._decide(part, prints.take(range(len(batch))[some]), commit)
            return
        done = commit(plan, batch.raws)
        self._displace(decision.displaced)
        add_keepers(done, entered, prints, self.keepers)
        rows = np.array(done.rows(Action.UNIQUE), np.int64)
        self.keepers.rank(entered.texts[rows], ranks[rows], self.store.number)
        # Records that took the place of a refused keeper were not compared with worse keepers.
        promoted = [row for row in rows.tolist() if plan.verdicts[row] != UNIQUE]
        self._displace([KeeperRef(int(entered.texts[row]), batch.ids[row]) for row in promoted])
        yield done

    def _decide_by_rank(
        self, ids: Sequence[bytes], prints: Fingerprints, texts: Numbers, adopted: AdoptedIds
    ) -> Decision:
        """Decide records against better keepers, and the better records of the batch."""
        decide_once = partial(decide, ids, prints, texts, self.matching, self.keepers, adopted, by_rank=True)
        return decide_by_present_keepers(decide_once, self.keepers, self.target, self.adopted)

    def _displace(self, displaced: Sequence[KeeperRef]) -> None:
        """Queue keepers to be decided again; until then nothing is dropped for them."""
        if not displaced:
            return
        texts = np.array([keeper.text for keeper in displaced])
        ranks = self.keepers.ranks_of(texts)
        self._queue.add_kept(
            [
                KeptRecord(keeper.id, keeper.text, self.keepers.plan_number(keeper.text), pack_rank(rank))
                for keeper, rank in zip(displaced, ranks, strict=True)
            ]
        )
        for keeper in displaced:
            self.keepers.release(keeper)

    def _decide_kept(self, records: Sequence[KeptRecord]) -> None:
        """Decide kept records again; those that are dropped leave the target later.

        A record that is missing from the target by now, or was changed there, is no keeper any longer, as
        everywhere.
        """
        by_id = {record.id: record for record in records}
        for ids, prints in self.keepers.refetch(list(by_id)) if by_id else ():
            numbers = self.keepers.find_texts(prints.digests).tolist()
            rows = [
                row
                for row, raw_id in enumerate(ids)
                if raw_id in by_id and by_id[raw_id].text == numbers[row]
            ]
            if rows:
                self._judge_kept([by_id[ids[row]] for row in rows], prints.take(rows))

    def _judge_kept(self, records: Sequence[KeptRecord], prints: Fingerprints) -> None:
        texts = np.array([record.text for record in records])
        ranks = unpack_ranks((record.rank for record in records), len(self.matching.prefer))
        ids = [record.id for record in records]
        decision = self._decide_by_rank(ids, replace(prints, ranks=ranks), texts, AdoptedIds())
        self._displace(decision.displaced)
        is_kept = np.array([verdict is UNIQUE for verdict in decision.verdicts])
        self.keepers.keep(BatchTexts(texts, np.zeros(len(texts), np.bool_)), is_kept, ids)
        self.keepers.cache_shingles(texts[is_kept], prints.shingles.take(np.flatnonzero(is_kept)))
        gone = list[bytes]()
        for record, rank, verdict in zip(records, ranks, decision.verdicts, strict=True):
            if verdict is UNIQUE:
                self.keepers.rank(np.array([record.text]), rank[None], record.number)
            else:
                self._queue.leave(record, verdict)
                gone.append(record.id)
        if gone:
            self.store.dropped_for(gone, self._queue.add_dropped)
            self._queue.stay_undecided(gone)

    def _decide_dropped(self, records: Sequence[DroppedRecord]) -> None:
        """Decide dropped records again, by their present versions in the source."""
        by_id = {record.id: record for record in records}
        before = {record.id: (record.number, record.verdict) for record in records}
        rest = set(by_id)

        def commit(plan: Plan, raws: Sequence[bytes]) -> Plan:
            return self.store.redecide(plan, raws, [by_id[raw_id] for raw_id in plan.ids])

        for batch, prints in self.read(list(by_id)) if by_id else ():
            for plan in self._decide(batch, prints, commit):
                rest.difference_update(plan.ids)
                self._count(plan, [before[raw_id] for raw_id in plan.ids])
        if rest:
            ids = [raw_id for raw_id in by_id if raw_id in rest]
            plan = plan_without_texts(self.blank, ids, [VANISHED] * len(ids))
            plan = commit(plan, [b""] * len(ids))
            self._count(plan, [before[raw_id] for raw_id in ids])

    def _count(self, plan: Plan, before: Sequence[tuple[int, Verdict]]) -> None:
        """Count new decisions.

        Args:
            plan: The new decisions.
            before: For each of its records the number of the plan that decided it before, and the verdict.
        """
        self._counts.decided_again += len(plan)
        is_older = self._older.find(digests(plan.ids)) >= 0
        is_older |= np.array([number < self.first_number for number, _ in before])
        self._older.number(digests([plan.ids[row] for row in np.flatnonzero(is_older).tolist()]))
        own = np.flatnonzero(~is_older).tolist()
        self._counts.own += Counts.of(plan.verdicts[row] for row in own) - Counts.of(
            before[row][1] for row in own
        )
        for row in np.flatnonzero(is_older).tolist():
            verdict = plan.verdicts[row]
            was_kept, is_kept = (one.action is Action.UNIQUE for one in (before[row][1], verdict))
            if verdict.action is Action.REFUSED and verdict != VANISHED:
                self._counts.refused[verdict.reason] += 1
            else:
                self._counts.replaced += was_kept and not is_kept
                self._counts.returned += is_kept and not was_kept
