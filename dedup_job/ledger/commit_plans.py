"""The commit protocol: finish the plan of a killed run, then commit plans one by one.

A plan is stored, accepted (it becomes the head's pending plan), applied to the target, noted in the rows on
its records, and then becomes the head's last plan.  A run that is killed anywhere in between leaves at most
one pending plan, which the next run applies again: every step can be repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from dedup_job.errors import StateError
from dedup_job.ledger.apply_plan import (
    CurrentRecords,
    as_arriving,
    exchange_kept,
    gone_keepers,
    insert_missing,
    left_rows,
    not_as_judged,
    records_now,
    remove_rest,
    replace_kept,
    rows_in_target,
)
from dedup_job.ledger.head import Head
from dedup_job.ledger.leased_ledger import LeasedLedger
from dedup_job.ledger.plan_format import Before, PlanId, StoredPlan, counts_key, pack, unpack
from dedup_job.ledger.settings_fit_ledger import check_whole
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.records import (
    BACKFILL,
    COPYING_ACTIONS,
    OUTSIDE_SOURCE,
    REDECIDE,
    REFERENCE,
    RENEW,
    REPLACE,
    UNIQUE,
    Action,
    Plan,
    Promotions,
    Verdict,
)

# How often a run that tries many copies checks that it still has the lease.
CHECK_SECONDS = 1.0

log = logging.getLogger("dedup_job")


class Ledger(LeasedLedger):
    """A ledger that commits plans."""

    # Of the plan that was committed last.
    number = -1
    # The time of the last plan.
    _accepted = datetime.min.replace(tzinfo=UTC)

    def recover(self, source: Source, target: Target, settles: bool = False) -> Head:
        """Apply the plan that a killed run left pending, and delete plans that were never accepted.

        Its duplicates are kept if their keeper is missing from the target by now, or was changed there.

        Args:
            source: The source.
            target: The target.
            settles: Whether the run finishes an interrupted replacement of keepers; see `Head.unsettled`.

        Raises:
            StateError: If an undo is unfinished. Only the same undo may finish it, as only a person may
                remove records from the target.
        """
        check_whole(self.current_head, settles)
        first = self.current_head.next
        if self.current_head.pending is not None:
            stored = self._read_pending(self.current_head.pending)
            log.info("resuming a plan", extra={"fields": {"plan": stored.id.number, "run": stored.run}})
            if stored.mode in OUTSIDE_SOURCE:
                # Nothing is inserted for it, and its records may have changed: read them again.
                self.swap({"pending": stored.id.key}, {"pending": None})
            elif stored.mode == RENEW:
                self._apply_renewal(stored, records_now(stored, source, target), target)
            else:
                if gone := gone_keepers(stored, self.plans(self.current_head), target):
                    stored = self._amend(stored, stored.plan.without({}, gone))
                self._close_plan(self._apply(stored, records_now(stored, source, target), target))
        self.delete_orphans(first)
        self._counts_before = self.current_head.counts
        return self.current_head

    def _read_pending(self, plan_id: PlanId) -> StoredPlan:
        packed = self.collection("plans").find_one({"_id": plan_id.key})
        if packed is None:
            # A run that took over may have amended it.
            self.check_held()
            raise StateError(
                "the pending plan of the ledger is missing; restore the target database from a backup"
            )
        return unpack(packed)

    def delete_orphans(self, first: int) -> None:
        """Delete stored plans that the head does not refer to, from this number on.

        Only plans with a lower fence are deleted: if this run has lost the lease without knowing it, plans
        with a higher fence are accepted plans of its successor.
        """
        orphans: dict[str, Any] = {
            "_id": {"$gte": {"number": first}},
            "_id.fence": {"$lt": self.current_head.fence},
        }
        if self.current_head.last is not None:
            orphans["_id"]["$ne"] = self.current_head.last.key
        self.collection("plans").delete_many(orphans)

    def commit(
        self,
        plan: Plan,
        raws: Sequence[bytes],
        target: Target,
        mode: str | None = None,
        before: Before | None = None,
    ) -> Plan:
        """Accept a plan and apply it; the rows on its records may be written later, see `settle`.

        Args:
            plan: The plan.
            raws: Its raw records.
            target: Where kept records are inserted.
            mode: Mode of the plan, if it differs from the run's.
            before: The earlier decisions on its records, if it decides them again.

        Returns:
            The plan as applied: the target may have refused records.
        """
        stored = self._accept(plan, mode or self.run_id.mode, before)
        stored = self._apply(stored, CurrentRecords(raws), target)
        self._rest = self._writer.submit(self._close_plan, stored)
        return stored.plan

    def keep_references(self, plan: Plan, raws: Sequence[bytes], target: Target) -> Plan:
        """Commit a plan of reference records, which are kept where they are."""
        return self.commit(plan, raws, target.without_inserts(), REFERENCE)

    def renew(self, plan: Plan, raws: Sequence[bytes], target: Target, before: Before) -> list[bytes]:
        """Replace records in the target that changed, while their text and verdict did not.

        Returns:
            Ids of records that stay unchanged in the target: others altered them there, or the target refuses
            the new version.
        """
        return self._apply_renewal(self._accept(plan, RENEW, before), CurrentRecords(raws), target)

    def _accept(self, plan: Plan, mode: str, before: Before | None) -> StoredPlan:
        """Store a plan, and make it the pending plan; before that, wait for secondaries that lag."""
        self.settle()
        self.wait_for_secondaries()
        # Later than the plan before it, in the server's milliseconds: rows of one run are distinguished by
        # the time of their plan.
        self._accepted = max(datetime.now(UTC), self._accepted + timedelta(milliseconds=1))
        stored = StoredPlan(
            id=PlanId(self.current_head.next, self.current_head.fence),
            previous=self.current_head.last,
            run=self.run_id.name,
            mode=mode,
            at=self._accepted,
            plan=plan,
            before=before,
        )
        self.number = stored.id.number
        self._store(stored)
        self.check_places()
        after = {"pending": stored.id.key, **self._unsettle(stored, bool(plan.displaced))}
        self.swap({"pending": None, "next": stored.id.number}, after)
        log.debug("plan accepted", extra={"fields": {"plan": stored.id.number, "records": len(plan)}})
        return stored

    def _unsettle(self, stored: StoredPlan, is_due: bool) -> Mapping[str, int]:
        """Return the change of the head that says from which plan on keepers must be decided again."""
        return {"unsettled": stored.id.number} if is_due and self.current_head.unsettled is None else {}

    def store_adoption(self, is_begun: bool) -> None:
        """Store that an adoption of the target's own records was begun, or that it has finished."""
        self.settle()
        self.swap({"pending": None}, {"adopting": is_begun})

    def store_scan(self, seen: datetime, newest: datetime | None = None, is_full: bool = False) -> None:
        """Store that all records that were in the source at a time are decided.

        Args:
            seen: The server time at which the scan began.
            newest: The time in the newest ObjectId at that moment. The next run relies on it, as clocks may
                be wrong.
            is_full: Whether the scan compared all ids with the ledger.
        """
        self.settle()
        self.check_places()
        covered = seen if newest is None else min(seen, newest)
        times = {"covered": covered, "seen": seen} | ({"looked": seen} if is_full else {})
        self.swap({"pending": None}, times)

    def finish_stages(self) -> None:
        """Store that a backfill on Spark is done: later ones do not use its stages, and are local."""
        self.swap({"pending": None}, {"stages": {**(self.current_head.stages or {}), "is_done": True}})

    def _store(self, stored: StoredPlan) -> None:
        """Write a plan that nothing refers to yet."""
        packed = pack(stored)
        self.collection("plans").replace_one({"_id": packed["_id"]}, packed, upsert=True)

    def _apply(self, stored: StoredPlan, records: CurrentRecords, target: Target) -> StoredPlan:
        """Make the target agree with the accepted plan; return the plan as applied."""
        stored = self._write_kept(stored, records, target)
        if stored.before is not None:
            while failed := remove_rest(stored, target, self.deadline):
                stored = self._amend(stored, stored.plan.without(failed))
        log.debug("plan applied", extra={"fields": {"plan": stored.id.number}})
        return stored

    def _write_kept(self, stored: StoredPlan, records: CurrentRecords, target: Target) -> StoredPlan:
        """Insert the kept records of a plan, and promote duplicates of records that the target refuses.

        The first refusals are stored as an amended plan before another record is inserted in their place.  If
        a promoted record is refused as well, its copies are tried in order, one at a time, until the target
        accepts one.  A try costs one insertion on the primary; the result of all tries is stored as one more
        amended plan, which never relies on an insertion that no majority has (see `Target.insert`).
        """
        failed, left = self._write(stored, records, stored.plan.rows(*COPYING_ACTIONS), target, ())
        if not failed and not records.landed:
            return stored
        promotions, is_first, is_stored = Promotions(stored.plan), True, True
        absent: set[bytes] | None = None
        checked = time.monotonic()
        while failed:
            promoted = promotions.lose(failed)
            rows = sorted(left + promoted)
            # Before a changed record is inserted, an accepted plan must have the digest of its new version.
            is_stored = is_first or any(verdict.action in COPYING_ACTIONS for verdict in failed.values())
            is_first = False
            if is_stored:
                plan = as_arriving(stored.plan, records, failed)
                stored = self._amend(stored, replace(plan, verdicts=promotions.verdicts))
            elif absent is None:
                # One lookup for all copies: a lookup for each refused copy would double the cost of a try.
                behind = [*promoted, *promotions.next_candidates(promoted)]
                absent = target.absent([stored.plan.ids[row] for row in behind])
            if time.monotonic() - checked > CHECK_SECONDS:
                # This raises if another run has taken the lease: that run may decide otherwise.
                self.deadline()
                checked = time.monotonic()
            failed, left = self._write(stored, records, rows, target, absent or ())
        verdicts = promotions.verdicts
        # A copy that a killed run inserted in its tries may be in the target already.  If the target now
        # accepts an earlier copy, both copies are there, and both are kept.
        landed = [row for row in sorted(records.landed) if verdicts[row].action is Action.DUPLICATE]
        if landed:
            promotions.lose(dict.fromkeys(landed, UNIQUE))
        if landed or not is_stored:
            stored = self._amend(stored, replace(stored.plan, verdicts=promotions.verdicts))
        return stored

    def _write(
        self,
        stored: StoredPlan,
        records: CurrentRecords,
        rows: Sequence[int],
        target: Target,
        absent: Collection[bytes],
    ) -> tuple[dict[int, Verdict], list[int]]:
        """Insert, or replace, the records of these kept rows in the target.

        Args:
            stored: The plan.
            records: The records of the plan.
            rows: Rows to insert.
            target: The target.
            absent: Ids known to be absent from the target; see `Target.insert`.

        Returns:
            The rows that failed, with their new verdicts, and the rows that are still to be written.
        """
        failed: dict[int, Verdict] = {}
        if stored.before is not None:
            failed = replace_kept(stored, records, rows, target, self.deadline)
        if failed := failed or not_as_judged(stored.plan, records, rows):
            return failed, [row for row in rows if failed.get(row, UNIQUE).action in COPYING_ACTIONS]
        raws = [raw for row in rows if (raw := records.raws[row]) is not None]
        refused = target.insert(raws, absent, self.check_held)
        return {rows[place]: Verdict(Action.REFUSED, reason) for place, reason in refused.items()}, []

    def _apply_renewal(self, stored: StoredPlan, records: CurrentRecords, target: Target) -> list[bytes]:
        """Apply an accepted renewal, and write its hashes into the earlier plans of its records.

        A renewal decides nothing, so its own plan is deleted in the end.

        Returns:
            Ids of the records that stay unchanged in the target.
        """
        rows = stored.plan.rows(*COPYING_ACTIONS)
        refused = replace_kept(stored, records, rows, target, self.deadline)
        exchange_kept(stored, records, list(refused), target, self.deadline)
        insert_missing(stored, records, target, self.check_held)
        rows = rows_in_target(stored, target)
        self.check_places()
        self.earlier_plans.renew(stored, rows)
        self.swap({"pending": stored.id.key}, {"pending": None})
        self.collection("plans").delete_one({"_id": stored.id.key})
        there = set(rows)
        return [raw_id for row, raw_id in enumerate(stored.plan.ids) if row not in there]

    def _close_plan(self, stored: StoredPlan) -> None:
        """Write the rows on an applied plan's records, and make it the last plan."""
        self.rows.write_plan(stored, self.left_ids)
        if stored.before is not None:
            self.rows.put("left", left_rows(stored))
            if stored.mode in (REPLACE, REDECIDE):
                # The earlier plans are rewritten in the end, each once; see `settle_keepers`.
                self.rows.delete_earlier(stored)
            else:
                self.earlier_plans.remove_records(stored)
        # If the target was replaced, the records of this plan may be nowhere.
        self.check_places()
        self._advance(stored)

    def settle_keepers(self) -> None:
        """Remove records that were decided again from their earlier plans; note that all is settled."""
        self.settle()
        if self.current_head.unsettled is not None:
            plans = self.plans(self.current_head, self.current_head.unsettled)
            self.earlier_plans.remove_redecided(
                stored for stored in plans if stored.mode in (REPLACE, REDECIDE)
            )
            self.check_places()
            settled = {"pending": None, "unsettled": self.current_head.unsettled}
            self.swap(settled, {"unsettled": None})

    def _amend(self, stored: StoredPlan, plan: Plan) -> StoredPlan:
        """Replace the pending plan by a version with other verdicts.

        Its id has this run's fence, so two runs never write the same plan.
        """
        plan_id = PlanId(stored.id.number, self.current_head.fence, stored.id.version + 1)
        amended = replace(stored, id=plan_id, plan=plan)
        self._store(amended)
        # Promoted records were not compared with worse keepers.
        after = {"pending": amended.id.key, **self._unsettle(amended, plan.ranks is not None)}
        self.swap({"pending": stored.id.key}, after)
        self.collection("plans").delete_one({"_id": stored.id.key})
        return amended

    def _advance(self, stored: StoredPlan) -> None:
        after: dict[str, Any] = {
            "pending": None,
            "last": stored.id.key,
            "next": stored.id.number + 1,
        }
        if stored.mode not in OUTSIDE_SOURCE:
            counts = self.current_head.counts + stored.plan.counts
            after["counts"] = counts_key(counts - stored.before.counts if stored.before else counts)
        if stored.mode == BACKFILL:
            after["watermark"] = stored.plan.ids[-1]
        self.swap({"pending": stored.id.key}, after)
        log.debug("plan committed", extra={"fields": {"plan": stored.id.number}})
