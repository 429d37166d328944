"""The commit protocol: finish what a killed run began, then commit plans one by one."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dedup_job.errors import StateError
from dedup_job.ledger.apply_plan import (
    CurrentRecords,
    as_arriving,
    gone_keepers,
    insert_kept,
    not_as_judged,
    records_now,
)
from dedup_job.ledger.compatibility import check_whole
from dedup_job.ledger.head import Head
from dedup_job.ledger.leased_ledger import LeasedLedger
from dedup_job.ledger.plan_format import Before, PlanId, StoredPlan, counts_key, pack, unpack
from dedup_job.ledger.redecide import (
    EarlierPlans,
    insert_missing,
    left_rows,
    remove_rest,
    replace_kept,
    rows_in_target,
)
from dedup_job.mongo.client import named_errors
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.records import (
    ADOPT,
    BACKFILL,
    COPYING_ACTIONS,
    RENEW,
    UNIQUE,
    Action,
    Plan,
    Promotions,
    Verdict,
)

CHECK_SECONDS = 1.0  # how often a run that tries many copies makes sure that it still has the lease


class Ledger(LeasedLedger):
    """A held ledger to which plans are committed."""

    _number = -1

    def recover(self, source: Source, target: Target) -> Head:
        """Finish the plan that a killed run left pending, as it was decided; then forget unaccepted plans.

        What it was to drop for a keeper that is gone from the target by now, or altered there, is kept.
        Raises StateError when a run is half undone: only a person's word takes records out of the target, so
        no other command ends that.
        """
        check_whole(self._head)
        first = self._head.next
        if self._head.pending is not None:
            stored = self._pending(self._head.pending)
            if stored.mode == ADOPT:  # there is nothing to carry out, and the target may have changed
                self._swap({"pending": stored.id.key}, {"pending": None})
            elif stored.mode == RENEW:
                self._renewed(stored, records_now(stored, source, target), target)
            else:
                if gone := gone_keepers(stored, self.plans(self._head), target):
                    stored = self._amended(stored, stored.plan.without({}, gone))
                self._close_plan(self._carried_out(stored, records_now(stored, source, target), target))
        self._forget_orphans(first)
        self._before = self._head.counts
        return self._head

    def _pending(self, plan_id: PlanId) -> StoredPlan:
        with named_errors("the ledger"):
            packed = self._patience(lambda: self._collection("plans").find_one({"_id": plan_id.key}))
        if packed is None:
            self._document.check_held(self._head)  # a run that took over may have amended it
            raise StateError("the pending plan of the ledger is missing; restore the target database")
        return unpack(packed)

    def _forget_orphans(self, first: int) -> None:
        """Delete the plans from this number on that earlier runs stored and no head names (any more).

        Only those of lower fences, for good out of use: where this run lost the lease without knowing it yet,
        those of its successors are accepted plans.
        """
        orphans: dict[str, Any] = {
            "_id": {"$gte": {"number": first}},
            "_id.fence": {"$lt": self._head.fence},
        }
        if self._head.last is not None:
            orphans["_id"]["$ne"] = self._head.last.key
        with named_errors("the ledger"):
            self._patience(lambda: self._collection("plans").delete_many(orphans))

    def commit(
        self,
        plan: Plan,
        raws: Sequence[bytes],
        target: Target,
        mode: str | None = None,
        before: Before | None = None,
    ) -> Plan:
        """Make a plan final and carry it out; returns it as it ended, with what the target refused.

        `mode` is that of the plan, where it is another than the run's; `before` what was decided of its
        records before, where it decides them again.  Its rows may still be written then; see `settle`.
        """
        stored = self._accepted(plan, mode or self._run.mode, before)
        stored = self._carried_out(stored, CurrentRecords(raws), target)
        self._rest = self._writer.submit(self._close_plan, stored)
        return stored.plan

    def renew(self, plan: Plan, raws: Sequence[bytes], target: Target, before: Before) -> list[bytes]:
        """Bring records up to date of which only the text is as it was judged: their verdicts stay.

        Returns the ids of those that stay as they were, as the target does not have what it was given, or
        does not take what is in the place of that.
        """
        return self._renewed(self._accepted(plan, RENEW, before), CurrentRecords(raws), target)

    def check_rights(self, target: Target) -> None:
        """Raise NotPermitted for who may not remove or replace records, before anything is begun."""
        target.remove([], self._deadline())
        target.replace([], self._deadline())

    def _accepted(self, plan: Plan, mode: str, before: Before | None) -> StoredPlan:
        """Store a plan and make it final."""
        self.settle()
        stored = StoredPlan(
            id=PlanId(self._head.next, self._head.fence),
            previous=self._head.last,
            run=self._run.name,
            mode=mode,
            at=datetime.now(UTC),
            plan=plan,
            before=before,
        )
        self._number = stored.id.number
        self._store(stored)
        self._check_places()
        self._swap({"pending": None, "next": stored.id.number}, {"pending": stored.id.key})
        return stored

    @property
    def number(self) -> int:
        """That of the plan that was committed last."""
        return self._number

    def refused_before(self) -> Mapping[str, int]:
        """Return how many records earlier runs had refused, by reason, that ended without saying so."""
        return self._row.refused_before()

    def adopting(self, is_begun: bool) -> None:
        """Record that the target's own records are being taken in, or that they have been."""
        self.settle()
        self._swap({"pending": None}, {"adopting": is_begun})

    def covered(self, seen: datetime, newest: datetime | None = None, is_full: bool = False) -> None:
        """Record that all that was in the source then is decided, and whether all ids were compared.

        `newest` is the time in the newest ObjectId of that moment: by it, and no clock that may be wrong, the
        next run knows which ids it need not look at.
        """
        self.settle()
        self._check_places()
        covered = seen if newest is None else min(seen, newest)
        times = {"covered": covered, "seen": seen} | ({"looked": seen} if is_full else {})
        self._swap({"pending": None}, times)

    def _store(self, stored: StoredPlan) -> None:
        """Write a plan that nothing refers to yet; an answer that was lost makes this happen twice."""
        packed = pack(stored)
        with named_errors("the ledger"):
            plans = self._collection("plans")
            self._patience(lambda: plans.replace_one({"_id": packed["_id"]}, packed, upsert=True))

    def _carried_out(self, stored: StoredPlan, records: CurrentRecords, target: Target) -> StoredPlan:
        """Make the target what the accepted plan says; returns the plan as it ended."""
        stored = self._write_kept(stored, records, target)
        if stored.before is not None:
            while failed := remove_rest(stored, target, partial(self._deadline, stored.id)):
                stored = self._amended(stored, stored.plan.without(failed))
        return stored

    def _write_kept(self, stored: StoredPlan, records: CurrentRecords, target: Target) -> StoredPlan:
        """Put what a plan keeps into the target, and promote duplicates of what the target refuses.

        The first refusals become an amended plan before anything is inserted in their place.  Where a
        promoted record is refused, too, the copies behind it are tried in their order, one at a time, until
        the target takes one.  A try costs one insertion; what all tries show becomes one more amended plan.
        """
        promotions = Promotions(stored.plan)
        rows, is_first, is_stored = stored.plan.rows(*COPYING_ACTIONS), True, True
        absent: set[bytes] | None = None
        checked = time.monotonic()
        while True:
            failed, left = self._write(stored, records, rows, target, absent or ())
            if not failed:
                break
            promoted = promotions.lose(failed)
            rows = sorted(left + promoted)
            # A record that has changed since must be in an accepted plan as it is now before it is inserted.
            is_stored = is_first or any(verdict.action in COPYING_ACTIONS for verdict in failed.values())
            is_first = False
            if is_stored:
                plan = as_arriving(stored.plan, records, failed)
                stored = self._amended(stored, replace(plan, verdicts=promotions.verdicts))
                continue
            if absent is None:  # looked up once: looking for each refused copy would double what it costs
                behind = [*promoted, *promotions.next_candidates(promoted)]
                absent = target.absent([stored.plan.ids[row] for row in behind])
            if time.monotonic() - checked > CHECK_SECONDS:
                self._deadline(stored.id)  # raises when another run has the lease: it may decide otherwise
                checked = time.monotonic()
        verdicts = promotions.verdicts
        # What a killed run inserted in its tries is accepted above, after the same refusals.  If the target
        # has begun to take an earlier copy meanwhile, both are there, and both are kept.
        landed = [row for row in sorted(records.landed) if verdicts[row].action is Action.DUPLICATE]
        if landed:
            promotions.lose(dict.fromkeys(landed, UNIQUE))
        if landed or not is_stored:
            stored = self._amended(stored, replace(stored.plan, verdicts=promotions.verdicts))
        return stored

    def _write(
        self,
        stored: StoredPlan,
        records: CurrentRecords,
        rows: Sequence[int],
        target: Target,
        absent: Collection[bytes],
    ) -> tuple[dict[int, Verdict], list[int]]:
        """Put the records of these kept rows into the target.

        Returns:
            The rows that do not end as planned, with their new verdicts, and the rows still to be written.
        """
        failed: dict[int, Verdict] = {}
        if stored.before is not None:
            failed = replace_kept(stored, records, rows, target, partial(self._deadline, stored.id))
        if failed := failed or not_as_judged(stored.plan, records, rows):
            return failed, [row for row in rows if failed.get(row, UNIQUE).action in COPYING_ACTIONS]
        return insert_kept(records, rows, target, absent), []

    def _renewed(self, stored: StoredPlan, records: CurrentRecords, target: Target) -> list[bytes]:
        """Carry out an accepted renewal: it is kept by the plans of its records, and is none of the chain."""
        rows = stored.plan.rows(*COPYING_ACTIONS)
        replace_kept(stored, records, rows, target, partial(self._deadline, stored.id))
        insert_missing(stored, records, target)
        rows = rows_in_target(stored, target)
        self._check_places()
        self._earlier.renew(stored, rows)
        self._swap({"pending": stored.id.key}, {"pending": None})
        with named_errors("the ledger"):
            self._patience(lambda: self._collection("plans").delete_one({"_id": stored.id.key}))
        there = set(rows)
        return [raw_id for row, raw_id in enumerate(stored.plan.ids) if row not in there]

    @property
    def _earlier(self) -> EarlierPlans:
        return EarlierPlans(self._collection, self._patience)

    def _close_plan(self, stored: StoredPlan) -> None:
        """Write the rows of a plan that is carried out, and advance."""
        self._note(stored)
        if stored.before is not None:
            self._row_writer.put("left", left_rows(stored))
            self._earlier.take_out(stored)
        self._check_places()  # else what was carried out may be nowhere
        self._advance(stored)

    def _amended(self, stored: StoredPlan, plan: Plan) -> StoredPlan:
        """Accept a plan with other verdicts in place of the pending one.

        Its id has this run's fence, so that no two runs ever write one plan.
        """
        plan_id = PlanId(stored.id.number, self._head.fence, stored.id.version + 1)
        amended = replace(stored, id=plan_id, plan=plan)
        self._store(amended)
        self._swap({"pending": stored.id.key}, {"pending": amended.id.key})
        with named_errors("the ledger"):
            plans = self._collection("plans")
            self._patience(lambda: plans.delete_one({"_id": stored.id.key}))
        return amended

    def _note(self, stored: StoredPlan) -> None:
        self._row_writer.note(stored, self._left)

    def _advance(self, stored: StoredPlan) -> None:
        after: dict[str, Any] = {
            "pending": None,
            "last": stored.id.key,
            "next": stored.id.number + 1,
        }
        if stored.mode != ADOPT:  # which says nothing of the source
            counts = self._head.counts + stored.plan.counts
            after["counts"] = counts_key(counts - stored.before.counts if stored.before else counts)
        if stored.mode == BACKFILL:
            after["watermark"] = stored.plan.ids[-1]
        self._swap({"pending": stored.id.key}, after)
