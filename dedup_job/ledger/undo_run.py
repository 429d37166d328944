"""Undo a run: its plans, newest first, each by repeatable removals and one compare-and-set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import takewhile
from typing import Any

import pymongo.collection

from dedup_job.errors import StateError, Unreachable, UsageError
from dedup_job.ledger.apply_plan import is_as_judged
from dedup_job.ledger.commit import Ledger
from dedup_job.ledger.head import Undoing
from dedup_job.ledger.overrides import PASS
from dedup_job.ledger.plan_format import StoredPlan, counts_key
from dedup_job.ledger.redecide import ALTERED
from dedup_job.ledger.rows import left_row, row_key, row_keys
from dedup_job.ledger.run_history import BEFORE
from dedup_job.mongo.client import RetryPolicy, named_errors
from dedup_job.mongo.collection_checks import created
from dedup_job.mongo.ids import IdSet, id_of, selector
from dedup_job.mongo.pages import BatchSize, Pages
from dedup_job.mongo.record_equality import arrived
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.records import ADOPT, APPLY, BACKFILL, COPYING_ACTIONS, Counts, Plan, digest

PAGE = BatchSize(5_000, 8 << 20)


class UndoBackup:
    """The raw records themselves, in a collection of the ledger that is empty save during an undo."""

    def __init__(self, collection: pymongo.collection.Collection[Any], patience: RetryPolicy) -> None:
        self._collection, self._patience = collection, patience
        self._records = Target(collection, patience)

    @property
    def name(self) -> str:
        """The full name of the collection."""
        return self._collection.full_name

    def prepare(self, before: datetime) -> None:
        """Make the collection, so that who lacks a right learns it; `before` as in `Target.remove`."""
        with named_errors("the ledger"):
            self._patience(lambda: created(self._collection))
        self._records.remove([], before)

    def put(self, raws: Sequence[bytes]) -> None:
        """Keep these raw records; StateError when others of their ids are here."""
        if self._records.insert(raws):
            raise StateError(
                f"{self.name} holds other records of these ids; look at them, then move them away"
            )

    def pages(self) -> Iterator[list[bytes]]:
        """Yield the raw records, some megabytes at a time."""
        return Pages(self._collection, "the ledger", self._patience, lambda: PAGE).records_after(None)

    def remove(self, ids: Collection[bytes], before: datetime) -> None:
        """Let records go, as `Target.remove` does: not any more once the server's clock says `before`."""
        self._records.remove(sorted(ids), before)


VANISHED = "vanished"
CHANGED = "changed"


def reasons_to_stay(
    found: Mapping[bytes, bytes], hashes: Mapping[bytes, bytes], source: Source
) -> dict[bytes, str]:
    """Return which of the records that were found in the target stay there, and why.

    hashes  of the same records, as they were judged
    """
    reasons: dict[bytes, str | None] = {}
    for some in source.fetch(list(found)):  # some megabytes at a time
        reasons |= {
            raw_id: _reason(found[raw_id], some[raw_id], hashes[raw_id])
            for raw_id in some.keys() & found.keys()
        }
    gone = found.keys() - reasons.keys()
    reasons |= {raw_id: _reason(found[raw_id], None, hashes[raw_id]) for raw_id in gone}
    return {raw_id: reason for raw_id, reason in reasons.items() if reason is not None}


def _reason(stored: bytes, sent: bytes | None, judged: bytes) -> str | None:
    """Return why a stored record stays, or None where the source has sent it and has it as it was judged."""
    if sent is not None and digest(sent) == judged and arrived(sent, stored):
        return None
    if not is_as_judged(stored, judged):
        return ALTERED
    return VANISHED if sent is None else CHANGED


class UndoLedger(Ledger):
    """A ledger from which a run is taken back."""

    @cached_property
    def _aside(self) -> UndoBackup:
        return UndoBackup(self._collection("aside"), self._patience)

    def take_back(
        self, run: str, source: Source, target: Target, observe: Callable[[Plan], object]
    ) -> Undoing:
        """Take the last run that decided something back, or go on with that; returns what was done in all.

        Raises UsageError when the run decided nothing or later runs must be undone first, StateError when
        another undo has not ended.
        """
        if self._head.undo is None or self._head.undo.run != run:
            self.recover(source, target)
            target.remove([], self._deadline())  # who lacks a right learns it before anything is begun
            self._aside.prepare(self._deadline())
            self._mark(run)
        adopted = IdSet.of(stored.plan.ids for stored in takewhile(_is_adopted, self.plans(self._head)))
        while (stored := self._newest()) is not None:
            left = self._withdraw(stored, adopted, source, target)
            self._step_back(stored, left)
            observe(stored.plan)
        return self._unmark()

    @property
    def _undoing(self) -> Undoing:
        assert self._head.undo is not None
        return self._head.undo

    def _mark(self, run: str) -> None:
        """Begin: from here on nothing but this undo goes on."""
        later: dict[str, None] = {}
        has_decided = False
        for link in self.links(self._head.last):
            if has_decided := link.run == run:
                break
            later[link.run] = None
        check_newest(run, later, has_decided)
        self._swap({"pending": None, "undo": None}, {"undo": Undoing(run).key})

    def _newest(self) -> StoredPlan | None:
        """Return the newest plan that is to be taken back; one of an adoption goes with that alone."""
        if self._head.last is None:
            return None
        stored = self.plan(self._head.last)
        if _is_adopted(stored) and (self.run(stored.run) or {}).get("mode") != ADOPT:
            return None
        return stored if stored.run == self._undoing.run else None

    def _withdraw(
        self, stored: StoredPlan, adopted: IdSet, source: Source, target: Target
    ) -> Mapping[bytes, str]:
        """Take out of ledger and target what a plan put there; returns which records stay, and why."""
        ids, run = stored.plan.ids, stored.run
        self._withdraw_rows(stored)
        if _is_adopted(stored):
            return {}
        overrides = self.overrides(ids)
        hashes = {raw_id: one.hash for raw_id, one in overrides.items()} | _inserted(stored.plan)
        left = self._remove(
            {raw_id: hashes[raw_id] for raw_id in adopted.missing(list(hashes))}, source, target
        )
        self._check_places()  # else what stays may be of another collection
        now = datetime.now(UTC)
        rows = [left_row(raw_id, reason, run, now) for raw_id, reason in left.items()]
        with named_errors("the ledger"):
            self._patience(lambda: self._release(ids, run, hashes.keys() - left.keys()))
            self._row_writer.put("left", rows)
            if overrides:
                unjudged = {"$set": {"action": PASS}}
                self._patience(
                    lambda: self._collection("overrides").update_many(selector(row_keys(overrides)), unjudged)
                )
        return left

    def _withdraw_rows(self, stored: StoredPlan) -> None:
        """Take out of the ledger what tells of a plan's records.

        A late deletion does no harm: a row that a later run makes again has that run's name.
        """
        keys = [row_key(raw_id, _is_adopted(stored)) for raw_id in stored.plan.ids]
        rows_of_run = {"$and": [selector(keys), {"run": stored.run}]}
        with named_errors("the ledger"):
            for name in ("dropped", "exceptions"):
                self._patience(lambda: self._collection(name).delete_many(rows_of_run))  # noqa: B023

    def _release(self, ids: Sequence[bytes], run: str, gone: Collection[bytes]) -> None:
        """Take back that a run decided what an earlier undo had left; what is gone is not left any more."""
        rows = self._collection("left")
        if known := self._left.among(ids):
            rows.update_many(
                {"$and": [selector(row_keys(known)), {"decided": run}]}, {"$unset": {"decided": ""}}
            )
        if known.intersection(gone):
            rows.delete_many(selector(row_keys(known.intersection(gone))))

    def _remove(self, hashes: Mapping[bytes, bytes], source: Source, target: Target) -> dict[bytes, str]:
        """Remove records that have these hashes; returns what stays, and why."""
        left = self._settle(hashes, source, target)  # what an undo before had put aside when it was killed
        for found in target.fetch(list(hashes)):
            # Of what was found, the others are equal to one of these for the server alone.
            there = {raw_id: found[raw_id] for raw_id in found.keys() & hashes.keys()}
            stay = reasons_to_stay(there, hashes, source)
            left |= stay
            due = {raw_id: there[raw_id] for raw_id in there.keys() - stay.keys()}
            if due:
                self._aside.put(list(due.values()))
                self._take_out(due.keys(), target)
                left = {raw_id: why for raw_id, why in left.items() if raw_id not in due}
                left |= self._settle(hashes, source, target)
        return left

    def _take_out(self, ids: Collection[bytes], target: Target) -> None:
        """Remove records that are put aside."""
        there = set(ids)
        while there:
            self._check_places()
            target.remove(sorted(there), self._deadline())
            before, there = there, there - target.absent(there)
            if there == before:
                self._document.check_held(self._head)
                raise Unreachable("the target did not remove the records in time; run the same undo again")

    def _settle(self, hashes: Mapping[bytes, bytes], source: Source, target: Target) -> dict[bytes, str]:
        """Put records back that were put aside, where the source has not got them any more; returns those.

        Then none is aside any more.
        """
        left: dict[bytes, str] = {}
        for page in self._aside.pages():
            held = {id_of(raw): raw for raw in page}
            judged = {raw_id: hashes.get(raw_id) or digest(raw) for raw_id, raw in held.items()}
            stay = reasons_to_stay(held, judged, source)
            self._check_places()
            deadline = self._deadline()
            if refused := target.insert([held[raw_id] for raw_id in stay]):
                raise StateError(
                    f"{len(refused)} records left the source while they were removed, and the target does "
                    f"not take them back ({refused[min(refused)]}); {self._aside.name} holds them"
                )
            self._aside.remove(held, deadline)
            left |= stay
        return left

    def _step_back(self, stored: StoredPlan, left: Mapping[bytes, str]) -> None:
        """Make the plan before this one the last one; nothing refers to this one any more."""
        done, head = self._undoing, self._head
        now_left = Counter(done.left) + Counter(left.values())
        counts = Counts() if _is_adopted(stored) else stored.plan.counts  # an adoption decides nothing
        further = Undoing(done.run, done.plans + 1, done.counts + counts, now_left)
        after: dict[str, Any] = {
            "last": stored.previous.key if stored.previous else None,
            "next": stored.id.number,
            "counts": counts_key(head.counts - counts),
            "undo": further.key,
        }
        if stored.mode == BACKFILL:
            after["watermark"] = self._watermark_before(stored)
        self._swap({"last": stored.id.key, "undo": done.key}, after)

    def _watermark_before(self, stored: StoredPlan) -> bytes | None:
        """Return how far the backfill was before a plan of it."""
        for link in self.links(stored.previous):
            if link.mode == BACKFILL:
                return self.plan(link.id).last_id
        return None

    def _unmark(self) -> Undoing:
        """End: the head says again how far the last complete look at the source was before the run."""
        done, runs = self._undoing, self._collection("runs")
        row = self.run(done.run) or {}
        self._forget_orphans(self._head.next)
        changes = {"$set": {"undone": datetime.now(UTC), "undone_by": self._run.name}}
        with named_errors("the ledger"):
            self._patience(lambda: runs.update_one({"_id": done.run}, changes))
        # Where the row is gone, or of an earlier version, the next run looks at everything.
        before: dict[str, Any] = {name: row.get(name) for name in BEFORE}
        if row.get("mode") == ADOPT:
            before["adopting"] = False
        if row.get("mode") == APPLY:  # what it had decided again is undecided, and may be anywhere
            before["looked"] = None
        self._swap({"undo": done.key}, {"undo": None, **before})
        return done


def check_newest(run: str, later: Collection[str], has_decided: bool) -> None:
    """Raise UsageError where a run cannot be undone: it decided nothing, or later ones built on it."""
    if not has_decided:
        raise UsageError(f"run {run} decided nothing that could be undone")
    if later:
        raise UsageError(f"later runs built on run {run}; undo them first: {', '.join(later)}")


def _is_adopted(stored: StoredPlan) -> bool:
    """Return whether a plan says what was in the target before the ledger."""
    return stored.mode == ADOPT


def _inserted(plan: Plan) -> dict[bytes, bytes]:
    """Return the hashes of the records that a plan put into the target, by id."""
    rows = plan.rows(*COPYING_ACTIONS)
    return {plan.ids[row]: plan.hashes[row].tobytes() for row in rows}
