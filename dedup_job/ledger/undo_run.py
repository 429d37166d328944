"""Undo a run plan by plan, newest first; each step can be repeated, and ends with one compare-and-set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dedup_job.errors import StateError, UsageError
from dedup_job.ledger.apply_plan import ALTERED, is_as_judged, remove_until_gone
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.head import Head, UndoProgress
from dedup_job.ledger.move_between_source_and_archive import ArchiveMoves
from dedup_job.ledger.overrides import PASS
from dedup_job.ledger.plan_format import StoredPlan, counts_key
from dedup_job.ledger.reader import Link
from dedup_job.ledger.rows_on_records import left_row, row_key, row_keys
from dedup_job.ledger.run_row import BEFORE
from dedup_job.mongo.archive import Archive
from dedup_job.mongo.collection_checks import create_collection
from dedup_job.mongo.compare_stored_with_sent import is_unchanged
from dedup_job.mongo.ids import IdSet, id_of, selector
from dedup_job.mongo.mark_field import CHANGED, Marks
from dedup_job.mongo.pages import BatchSize, Pages
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.pasteable_command import command_line
from dedup_job.records import (
    ADOPT,
    BACKFILL,
    COPYING_ACTIONS,
    OUTSIDE_SOURCE,
    UPDATE,
    VANISHED,
    Action,
    Counts,
    Plan,
    digest,
)

# The records of a page are in memory together.
PAGE = BatchSize(5_000, 8 << 20)


class UndoBackup(Target):
    """Backup of the records that an undo is about to remove; empty except during an undo."""

    @property
    def name(self) -> str:
        """The full name of the collection."""
        return self.collection.full_name

    def prepare(self, before: datetime) -> None:
        """Create the collection, so that a missing privilege is noticed; `before` as in `Target.remove`."""
        self.collection.attempt(lambda: create_collection(self.collection.unretried))
        self.remove([], before)

    def put(self, raws: Sequence[bytes], check_held: Callable[[], object]) -> None:
        """Store raw records; raise StateError if it holds other records with their ids.

        What a run without the lease stores here would return to the target if it is deleted from the source,
        so `check_held` is called as by `Target.insert`.
        """
        if self.insert(raws, check_held=check_held):
            raise StateError(
                f"{self.name} holds other records with these ids; check them, move them to another "
                "collection, and run undo again"
            )

    def pages(self) -> Iterator[list[bytes]]:
        """Yield the raw records, some megabytes at a time."""
        return Pages(self.collection, lambda: PAGE).records_after(None)


def reasons_to_stay(
    found: Mapping[bytes, bytes], hashes: Mapping[bytes, bytes], source: Source
) -> dict[bytes, str]:
    """Return which records must stay in the target, and why.

    A record is removed only if the source still has the same version of it.

    Args:
        found: Raw records of the target, by id.
        hashes: Hashes of the versions that were judged, by id.
        source: The source.
    """
    reasons: dict[bytes, str | None] = {}
    # The records of the source come some megabytes at a time.
    for some in source.fetch(list(found)):
        reasons |= {raw_id: _reason_to_stay(found[raw_id], some[raw_id], hashes[raw_id]) for raw_id in some}
    gone = found.keys() - reasons.keys()
    reasons |= {raw_id: _reason_to_stay(found[raw_id], None, hashes[raw_id]) for raw_id in gone}
    return {raw_id: reason for raw_id, reason in reasons.items() if reason is not None}


def _reason_to_stay(stored: bytes, sent: bytes | None, judged: bytes) -> str | None:
    """Return why a record must stay in the target; None if the source has the same version.

    Args:
        stored: The record in the target.
        sent: The record in the source; None if it vanished.
        judged: Hash of the version that was judged.
    """
    if sent is not None and digest(sent) == judged and is_unchanged(sent, stored):
        return None
    if not is_as_judged(stored, judged):
        return ALTERED
    return VANISHED.reason if sent is None else CHANGED


@dataclass(frozen=True, slots=True)
class UndoRun:
    """The undo of one run.

    Attributes:
        ledger: The ledger, with the lease.
        source: The source.
        target: The target, from which the run's records are removed.
        marks: Takes the marks of the run's duplicates away, if the source is marked.
        archive: The archive, from which the run's duplicates return; None if none were moved there.
    """

    ledger: Ledger
    source: Source
    target: Target
    marks: Marks
    archive: Archive | None = None

    @property
    def _backup(self) -> UndoBackup:
        return UndoBackup(self.ledger.collection("aside"))

    @property
    def _progress(self) -> UndoProgress:
        undo = self.ledger.current_head.undo
        assert undo is not None
        return undo

    def undo(self, run: str, observe: Callable[[Plan], object]) -> UndoProgress:
        """Undo the last run that decided something, or resume its undo.

        Args:
            run: Name of the run.
            observe: Called with each plan that was undone.

        Returns:
            The whole progress, with earlier interrupted attempts.

        Raises:
            UsageError: If the run decided nothing, or later runs must be undone first.
            StateError: If another undo has not finished.
        """
        ledger = self.ledger
        is_new = ledger.current_head.undo is None or ledger.current_head.undo.run != run
        if is_new:
            ledger.recover(self.source, self.target)
            # A user who lacks a privilege learns it before anything is done.
            if self.target.holds_copies:
                self.target.remove([], ledger.deadline())
                self._backup.prepare(ledger.deadline())
        moves = ArchiveMoves.begin(ledger, self.archive, "archive") if self.archive else None
        if is_new:
            self._begin(run)
        adopted = ledger.adopted_ids(ledger.current_head)
        while (stored := self._newest_plan()) is not None:
            if moves is not None:
                moves.bring_all_back([stored.plan.ids[row] for row in stored.plan.rows(Action.DUPLICATE)])
                moves.note(upto=min(moves.progress.upto, stored.id.number))
            left, restored = self._undo_plan(stored, adopted)
            self._step_back(stored, left, restored)
            observe(stored.plan)
        return self._finish()

    def _begin(self, run: str) -> None:
        """Store in the head that an undo is in progress: until it finishes, nothing else is decided."""
        later: dict[str, None] = {}
        has_decided = False
        for link in self.ledger.links(self.ledger.current_head.last):
            if has_decided := link.run == run:
                check_not_promoted(self.ledger.current_head, link)
                break
            later[link.run] = None
        check_newest(run, later, has_decided)
        self.ledger.swap({"pending": None, "undo": None}, {"undo": UndoProgress(run).key})

    def _newest_plan(self) -> StoredPlan | None:
        """Return the run's newest plan; an adoption's plan is only undone together with its adoption."""
        ledger = self.ledger
        if ledger.current_head.last is None:
            return None
        stored = ledger.plan(ledger.current_head.last)
        if stored.mode == ADOPT and (ledger.run(stored.run) or {}).get("mode") != ADOPT:
            return None
        return stored if stored.run == self._progress.run else None

    def _undo_plan(self, stored: StoredPlan, adopted: IdSet) -> tuple[Mapping[bytes, str], int]:
        """Remove a plan's rows from the ledger, and its records from the target.

        Args:
            stored: The plan.
            adopted: Ids of the target's own records, which are never removed.

        Returns:
            Records that stay in the target, and why; the number of dropped records that a person restored.
        """
        ledger, plan, ids, run = self.ledger, stored.plan, stored.plan.ids, stored.run
        if ledger.current_head.mark is not None:
            dropped = (ids[row] for row in plan.rows(Action.DUPLICATE))
            self.marks.clear(dropped, ledger.deadline_by)
        self._delete_rows(stored)
        if stored.mode in OUTSIDE_SOURCE:
            return {}, 0
        overrides = ledger.overrides(ids)
        hashes, left = dict[bytes, bytes](), dict[bytes, str]()
        if self.target.holds_copies:
            restored = {raw_id: override.hash for raw_id, override in overrides.items()}
            inserted = {ids[row]: plan.hash_of(row) for row in plan.rows(*COPYING_ACTIONS)}
            hashes = restored | inserted
            left = self._remove({raw_id: hashes[raw_id] for raw_id in adopted.missing(list(hashes))})
        # If the target was replaced, the records that stay belong to another collection.
        ledger.check_places()
        now = datetime.now(UTC)
        rows = [left_row(raw_id, reason, run, now) for raw_id, reason in left.items()]
        self._release_left(ids, run, hashes.keys() - left.keys())
        ledger.rows.put("left", rows)
        if overrides:
            ledger.rows.update("overrides", selector(row_keys(overrides)), {"$set": {"action": PASS}})
        return left, count_restored(plan, overrides)

    def _delete_rows(self, stored: StoredPlan) -> None:
        """Delete the rows on a plan's records."""
        keys = [row_key(raw_id, stored.mode == ADOPT) for raw_id in stored.plan.ids]
        # Only rows of this run: a deletion that arrives late must not delete a later run's row.
        rows_of_run = {"$and": [selector(keys), {"run": stored.run}]}
        for name in ("dropped", "exceptions"):
            self.ledger.collection(name).delete_many(rows_of_run)

    def _release_left(self, ids: Sequence[bytes], run: str, gone: Collection[bytes]) -> None:
        """Update the rows on records that an earlier undo had left in the target.

        Args:
            ids: Records of the plan: the run no longer decides them.
            run: The run.
            gone: Records that are no longer in the target, so nothing is left of them.
        """
        rows = self.ledger.rows
        if known := self.ledger.left_ids.among(ids):
            decided = {"$and": [selector(row_keys(known)), {"decided": run}]}
            rows.update("left", decided, {"$unset": {"decided": ""}})
        if known.intersection(gone):
            rows.delete("left", selector(row_keys(known.intersection(gone))))

    def _remove(self, hashes: Mapping[bytes, bytes]) -> dict[bytes, str]:
        """Remove the records with these hashes from the target; return the records that stay, and why."""
        # First the records that an interrupted undo left in the backup.
        left = self._empty_backup(hashes)
        for found in self.target.fetch(list(hashes)):
            stay = reasons_to_stay(found, hashes, self.source)
            left |= stay
            due = {raw_id: found[raw_id] for raw_id in found.keys() - stay.keys()}
            if due:
                self._backup.put(list(due.values()), self.ledger.check_held)
                remove_until_gone(self.target, due, self._deadline)
                left = {raw_id: why for raw_id, why in left.items() if raw_id not in due}
                left |= self._empty_backup(hashes)
        return left

    def _deadline(self) -> datetime:
        """Check that the target is the same, and return the time until which records may be removed."""
        self.ledger.check_places()
        return self.ledger.deadline()

    def _empty_backup(self, hashes: Mapping[bytes, bytes]) -> dict[bytes, str]:
        """Put records back that the source no longer has, and delete all records from the backup.

        Returns:
            The records that were put back, and why they stay.
        """
        left: dict[bytes, str] = {}
        for page in self._backup.pages():
            held = {id_of(raw): raw for raw in page}
            judged = {raw_id: hashes.get(raw_id) or digest(raw) for raw_id, raw in held.items()}
            stay = reasons_to_stay(held, judged, self.source)
            self.ledger.check_places()
            kept = [held[raw_id] for raw_id in stay]
            if refused := self.target.insert(kept, check_held=self.ledger.check_held):
                raise StateError(
                    f"{len(refused)} records left the source while undo removed them, and the target "
                    f"refuses to take them back ({refused[min(refused)]}); {self._backup.name} holds them; "
                    "correct the cause, and run the same undo again"
                )
            remove_until_gone(self._backup, held, self.ledger.deadline)
            left |= stay
        return left

    def _step_back(self, stored: StoredPlan, left: Mapping[bytes, str], restored: int) -> None:
        """Make the plan before this one the head's last plan."""
        done, head = self._progress, self.ledger.current_head
        now_left = Counter(done.left) + Counter(left.values())
        # An adoption and a reference decide nothing.
        counts = Counts() if stored.mode in OUTSIDE_SOURCE else stored.plan.counts
        further = UndoProgress(
            done.run, done.plans + 1, done.counts + counts, now_left, done.restored + restored
        )
        after: dict[str, Any] = {
            "last": stored.previous.key if stored.previous else None,
            "next": stored.id.number,
            "counts": counts_key(head.counts - counts),
            "undo": further.key,
        }
        if head.mark is not None:
            # Another plan will get this number.
            upto = min(head.mark.upto, stored.id.number)
            after["mark"] = replace(head.mark, upto=upto).key
        if stored.mode == BACKFILL:
            after["watermark"] = self._watermark_before(stored)
        self.ledger.swap({"last": stored.id.key, "undo": done.key}, after)

    def _watermark_before(self, stored: StoredPlan) -> bytes | None:
        """Return the backfill's watermark before one of its plans."""
        for link in self.ledger.links(stored.previous):
            if link.mode == BACKFILL:
                return self.ledger.plan(link.id).last_id
        return None

    def _finish(self) -> UndoProgress:
        """Bring back the fields of the head from before the run, and end the undo."""
        done, ledger = self._progress, self.ledger
        row = ledger.run(done.run) or {}
        ledger.delete_orphans(ledger.current_head.next)
        changes = {"$set": {"undone": datetime.now(UTC), "undone_by": ledger.run_id.name}}
        ledger.collection("runs").update_one({"_id": done.run}, changes)
        # If the row is missing, these fields become None, and the next run scans everything.
        before: dict[str, Any] = {name: row.get(name) for name in BEFORE}
        if row.get("mode") == ADOPT:
            before["adopting"] = False
        if row.get("mode") == UPDATE or ledger.current_head.recipe.get("matching.prefer"):
            # Records of earlier runs are undecided now, with any ids, so the next run needs a full scan.
            before["looked"] = None
        ledger.swap({"undo": done.key}, {"undo": None, **before})
        return done


def check_newest(run: str, later: Collection[str], has_decided: bool) -> None:
    """Raise UsageError if a run cannot be undone: it decided nothing, or later runs depend on it."""
    if not has_decided:
        raise UsageError(f"run {run} decided nothing that could be undone")
    if later:
        raise UsageError(f"later runs built on run {run}; undo them first: {', '.join(later)}")


def check_not_promoted(head: Head, link: Link) -> None:
    """Raise UsageError if a run cannot be undone because the target took the place of its source since."""
    if head.is_before_promotion(link.id):
        raise UsageError(
            f"run {link.run} decided before the target took the place of its source, and what it dropped is "
            f"in the former source alone; take the promotion back first: {command_line('promote --back')}"
        )


def count_restored(plan: Plan, overrides: Collection[bytes]) -> int:
    """Return the number of dropped records of a plan that a person restored: those with an override."""
    return sum(plan.ids[row] in overrides for row in plan.rows(Action.DUPLICATE))
