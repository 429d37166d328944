"""`sync`: bring target and ledger up to date with the source."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import MappingProxyType

import numpy as np

from dedup_job.commands.backfill_and_run import decide
from dedup_job.commands.outdated_decisions import OutdatedDecisions, SourceComparison, have_same_text
from dedup_job.errors import LeaseHeld
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.decisions_to_replace_on_disk import PAGE, EarlierDecision
from dedup_job.ledger.head import Head
from dedup_job.ledger.move_between_source_and_archive import ArchiveMoves
from dedup_job.ledger.plan_format import Before
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.settings_fit_ledger import Consent
from dedup_job.mongo.pages import Window
from dedup_job.pipeline.command_context import Context, require_head
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.pipeline.guards import FailureGuard, WarningList, check_vanished, stop_run
from dedup_job.pipeline.job import KeepFirst, Observe, commit_in_parts, plan_without_texts
from dedup_job.pipeline.load_keepers_and_scan_source import PriorDecisions
from dedup_job.pipeline.replace_keepers import KeepBest
from dedup_job.pipeline.replace_keepers_in_ledger import (
    LedgerDecisions,
    check_rights_to_replace,
    choose_decider,
)
from dedup_job.records import (
    CONFLICT,
    COPYING_ACTIONS,
    SYNC,
    UNIQUE_INDEX,
    UPDATE,
    VANISHED,
    Batch,
    Counts,
    Plan,
    RawIds,
    digests,
    is_failure,
)
from dedup_job.report.changes_and_sync_results import OutdatedCounts, SyncResult, UpdateSummary
from dedup_job.report.progress import Advance
from dedup_job.temporary_ids_and_tables import IdList

# Stored as the digest of an inserted record if none was inserted.
NO_HASH = bytes(16)
# Records that may have swapped unique values, at most, and their bytes.
SWAPPED, SWAPPED_BYTES = 1_000, 64 << 20


def finish_interrupted(context: Context, consent: Consent = Consent()) -> Mapping[str, int]:
    """Finish the pending plan of a killed run, which a comparison would not see.

    Returns:
        Records that the target refused in killed runs, by reason: no summary has reported them yet.

    Raises:
        LeaseHeld: If another run is in progress.
    """
    head = require_head(context, settles=True)
    if head.pending is None and head.lease is None and head.unsettled is None:
        return {}
    check_rights_to_replace(context)
    with context.ledger(RunId.new(UPDATE), consent) as ledger:
        head = ledger.recover(context.source, context.target, settles=True)
        if head.unsettled is not None:
            _settle_keepers(context, ledger, head)
        refused_before = ledger.run_row.refused_before()
        ledger.close({"exit_code": 0})
    return refused_before


def _settle_keepers(context: Context, ledger: Ledger, head: Head) -> None:
    """Finish replacing keepers by better records, which a killed run has left."""
    with context.engine() as engine:
        keepers = context.keepers(context.target, engine)
        past = PriorDecisions.read(context, ledger, head, keepers, Window())
        store = LedgerDecisions(ledger, context.target)
        choose_decider(context, engine, past, context.target, store, head.next).settle()


def guard_vanished(found: SourceComparison, max_share: float, is_noted: bool) -> None:
    """Stop if too many decided records have vanished from the source.

    Args:
        found: The comparison.
        max_share: Largest share that may have vanished.
        is_noted: Whether to log a warning only.

    Raises:
        GuardStop: If the share is larger.
    """
    vanished = found.outdated.due.kept + found.outdated.due.others
    check_vanished(vanished, found.comparison.records, max_share, WarningList() if is_noted else stop_run)


def preview_sync(context: Context, found: SourceComparison) -> OutdatedCounts:
    """Return what a sync would do, after counting the undecided records; writes nothing."""
    undecided = sum(map(len, context.source.undecided_ids(found.rest)))
    return replace(found.outdated.due, undecided=undecided)


def sync(
    context: Context,
    found: SourceComparison,
    advance: Advance,
    consent: Consent = Consent(),
    refused_before: Mapping[str, int] = MappingProxyType({}),
) -> SyncResult:
    """Decide outdated records again, then decide new records and records that runs have missed.

    Args:
        context: The open connections.
        found: The comparison that found the outdated decisions.
        advance: Called with the number of records that were decided since the last call.
        consent: Changes and guards that a person has accepted.
        refused_before: The result of `finish_interrupted`, for the report.
    """
    started = time.monotonic()

    def observe(plan: Plan) -> None:
        advance(len(plan))

    updated = update(context, found, observe, consent) if found.outdated else None
    is_rest = any(context.source.undecided_ids(found.rest))
    decided = decide(context, SYNC, observe, consent) if is_rest else None
    return SyncResult(
        context.source_name,
        found.comparison.records,
        decided,
        found.comparison.changed,
        found.comparison.vanished,
        found.seconds + time.monotonic() - started,
        updated,
        refused_before,
        found.outdated.due.occupied,
        found.outdated.due.undecided_in_archive,
    )


def update(
    context: Context, found: SourceComparison, observe: Observe, consent: Consent = Consent()
) -> UpdateSummary:
    """Decide outdated records again, and update plans whose records changed without a change of text.

    Raises:
        LeaseHeld: If another command wrote to the ledger since the comparison.
        GuardStop: If the job fails on too many records.
    """
    run, started, outdated = RunId.new(UPDATE), time.monotonic(), found.outdated
    with context.ledger(run, consent) as ledger, context.engine() as engine:
        head = ledger.recover(context.source, context.target)
        # Taking the lease has raised the fence by one; a larger difference means another writer.
        if outdated.fence is None or head.fence != outdated.fence + 1:
            raise LeaseHeld("another command changed this target during the comparison; sync again")
        context.target.check_rights()
        bring_back(context, ledger, chain(outdated.again.absent(), outdated.kept_in_archive.pages(PAGE)))
        failures = FailureGuard(
            context.settings.limits.max_failed_share, WarningList() if consent.allow else stop_run
        )
        updating = UpdateRun(context, ledger, engine, outdated, observe, failures)
        keepers = context.keepers(context.target, engine)
        # If a record was refused because of another record with its id, the other record is the target's own.
        conflicts = outdated.again.with_verdict(CONFLICT)
        foreign = (RawIds.of(set(page) - context.target.absent(page)) for page in conflicts)
        past = PriorDecisions.read(context, ledger, head, keepers, Window(), outdated.texts_of, foreign)
        past = past.with_references(context, engine, partial(ledger.keep_references, target=context.target))
        store = LedgerDecisions(ledger, context.target)
        decider = choose_decider(context, engine, past, context.target, store, head.next)
        renewed = updating.renew()
        counts = sum((updating.decide_again(ids, past, decider) for ids in outdated.in_order), Counts())
        counts = updating.try_again(past, decider, counts)
        if replaced := decider.settle():
            counts += replaced.own
        ledger.settle()
        seconds = time.monotonic() - started
        updated = UpdateSummary(
            run.name,
            context.target_name,
            renewed,
            counts,
            updating.removed,
            outdated.due.kept_in_archive,
            seconds,
            updating.stay,
            has_copies=context.target.holds_copies,
        )
        ledger.close({**updated.as_json(), "exit_code": updated.exit_code})
    return updated


def bring_back(context: Context, ledger: Ledger, pages: Iterable[list[bytes]]) -> None:
    """Move the records with these ids that a sweep moved to an archive back to the source."""
    archive = context.archive_of(ledger.current_head)
    if archive is None:
        return
    moves = ArchiveMoves.begin(ledger, archive, "archive")
    for ids in pages:
        moves.bring_all_back(ids)
    moves.note()


@dataclass(slots=True)
class _Swapped:
    """Records that were not renewed, which may have swapped unique values with records of other plans.

    They are renewed again, all in one plan, as far as there is room for them in memory.
    """

    plans: list[Plan] = field(default_factory=list)
    befores: list[Before] = field(default_factory=list)
    raws: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(
        self, plan: Plan, before: Before, current: Mapping[bytes, bytes], stay: Sequence[bytes]
    ) -> Sequence[bytes]:
        """Add records of a renewal that stay unchanged; return the ids of the records that found no room."""
        for place, raw_id in enumerate(stay):
            self.size += len(current[raw_id])
            if self.size > SWAPPED_BYTES or len(self.raws) == SWAPPED:
                return stay[place:]
            rows = [plan.ids.index(raw_id)]
            part = plan.take(rows)
            self.plans.append(part)
            self.befores.append(Before(before.numbers[rows], before.hashes[rows], part.counts))
            self.raws.append(current[raw_id])
        return []

    def join(self) -> tuple[Plan, list[bytes], Before]:
        """Return the plan of all, their raw records, and their earlier decisions."""
        plan = Plan.join(self.plans)
        numbers = np.concatenate([before.numbers for before in self.befores])
        hashes = np.concatenate([before.hashes for before in self.befores])
        return plan, self.raws, Before(numbers, hashes, plan.counts)


@dataclass(slots=True)
class UpdateRun:
    """The work of one update: decides outdated records again.

    Attributes:
        context: The open connections.
        ledger: The ledger, with the lease.
        engine: Makes the fingerprints.
        outdated: The outdated decisions.
        observe: Called with each final plan.
        failures: Stops the run if the job fails on too many records.
        removed: Number of records that have left the target.
        stay: Ids of records that were altered in the target and stay there unchanged.
        put_off: Number of records that the target refused because of a unique index.
    """

    context: Context
    ledger: Ledger
    engine: FingerprintWorkers
    outdated: OutdatedDecisions
    observe: Observe
    failures: FailureGuard
    removed: int = 0
    stay: IdList = field(default_factory=IdList)
    put_off: int = 0

    def renew(self) -> int:
        """Store the new hashes, and copy the new records, where records changed and their texts did not.

        Returns:
            The number of records. A record whose text has changed since the comparison is left to the next
            sync.
        """
        renewed, swapped = 0, _Swapped()
        for plan_id, outdated in self.outdated.renewed.items():
            judged = self.ledger.plan(plan_id).plan
            rows = {judged.ids[row]: row for row in outdated.tolist()}
            for current in self.context.source.fetch(list(rows)):
                old = judged.take([rows[raw_id] for raw_id in current])
                prints = self.engine.fingerprint([current[raw_id] for raw_id in old.ids])
                old = old.take(np.flatnonzero(have_same_text(prints, old)).tolist())
                raws = [current[raw_id] for raw_id in old.ids]
                plan = replace(old, hashes=digests(raws))
                if len(plan):
                    before = Before(np.full(len(old), plan_id.number, np.uint32), old.hashes, old.counts)
                    stay = self.ledger.renew(plan, raws, self.context.target, before)
                    renewed += len(plan) - len(stay)
                    self.stay.extend(swapped.add(plan, before, current, stay))
                    self.observe(plan)
        if swapped.plans:
            plan, raws, before = swapped.join()
            stay = self.ledger.renew(plan, raws, self.context.target, before)
            renewed += len(plan) - len(stay)
            self.stay.extend(stay)
        return renewed

    def decide_again(
        self, pages: Iterable[list[bytes]], past: PriorDecisions, decider: KeepFirst | KeepBest
    ) -> Counts:
        """Decide records again, in this order; refuse records that are no longer in the source."""
        gone, blank = IdList(), self.context.recipe.unchecked("", b"")
        batches = past.fingerprint(self.engine, self._read(pages, gone))
        counts = decider.decide_batches(batches, self._commit, self.observe)
        for ids in gone.pages(PAGE):
            # Without fingerprints, so they match nothing.
            plan = plan_without_texts(blank, ids, [VANISHED] * len(ids))
            plan = commit_in_parts(plan, [b""] * len(ids), self._commit)
            self.observe(plan)
            counts += plan.counts
        return counts

    def try_again(self, past: PriorDecisions, decider: KeepFirst | KeepBest, counts: Counts) -> Counts:
        """Decide records again that the target refused because of a unique index.

        The record that had the value may have left the target, or been replaced there, in the meantime.

        Returns:
            `counts`, corrected by the new verdicts.
        """
        refused = Counts(refused={UNIQUE_INDEX.reason: self.put_off})
        return counts + self.decide_again(self.outdated.again.due_again(), past, decider) - refused

    def _read(self, pages: Iterable[list[bytes]], gone: IdList) -> Iterator[Batch]:
        """Yield the records that are in the source; add the ids of the others to `gone`."""
        for page in pages:
            present = set[bytes]()
            for batch in self.context.source.records(page):
                present.update(batch.ids)
                yield batch
            gone.extend(raw_id for raw_id in page if raw_id not in present)

    def _commit(self, plan: Plan, raws: Sequence[bytes]) -> Plan:
        again = self.outdated.again
        by_id = again.find(plan.ids)
        before = [by_id[raw_id] for raw_id in plan.ids]
        failed = {raw_id for raw_id, earlier in by_id.items() if is_failure(earlier.verdict.reason)}
        self.failures.check(plan, failed)
        done = self.ledger.commit(plan, raws, self.context.target, before=_pack_before(before))
        for raw_id, earlier, verdict in zip(done.ids, before, done.verdicts, strict=True):
            if verdict == CONFLICT:
                self.stay.extend([raw_id])
            elif verdict.action in COPYING_ACTIONS:
                # Counted as removed when it was put off, and back in the target now.
                self.removed -= earlier.has_left
            else:
                self.removed += earlier.copy is not None
            if verdict == UNIQUE_INDEX:
                self.put_off += 1
                again.put_off(raw_id, self.ledger.number, verdict)
        return done


def _pack_before(earlier: Sequence[EarlierDecision]) -> Before:
    """Return the columns of a plan that store the earlier decisions on its records."""
    numbers = np.array([decision.number for decision in earlier], np.uint32)
    hashes = b"".join(decision.copy or NO_HASH for decision in earlier)
    counts = Counts.of(decision.verdict for decision in earlier)
    return Before(numbers, np.frombuffer(hashes, np.uint64).reshape(-1, 2), counts)
