"""Apply: what changed in the source, or vanished from it, is brought up to date in target and ledger.

First the records that the target has not got are decided again, and those that were dropped for one which
changed or vanished are among them: what they say is in the target before anything leaves it.  Then those that
the target has.  What it refused meanwhile is tried once more at the end: two records may have swapped a value
that a unique index allows once.  No outdated decision stands for anything meanwhile, so a run that is killed
and done again decides as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from dedup_job import job
from dedup_job.commands.context import Context
from dedup_job.commands.earlier_decisions import PAGE, Earlier
from dedup_job.commands.guard import FailureGuard, Notes, check_vanished, stop
from dedup_job.commands.outdated import Compared, Outdated
from dedup_job.commands.past import Past
from dedup_job.commands.reconcile import decide_missed, reconciliation
from dedup_job.commands.verify.subject import head_of
from dedup_job.document import (
    CONFLICT,
    COPIED,
    NOT_ALONE,
    VANISHED,
    Batch,
    Counts,
    Fingerprints,
    digests,
    is_failure,
)
from dedup_job.engine.local import LocalEngine
from dedup_job.errors import LeaseHeld
from dedup_job.job import Observe
from dedup_job.ledger.commit import Ledger
from dedup_job.ledger.fitting import Consent
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.stored_plan import Before
from dedup_job.mongo.id_list import IdList
from dedup_job.mongo.window import Window
from dedup_job.plan import APPLY, Plan, RawIds
from dedup_job.report.applied import Applied
from dedup_job.report.progress import Advance
from dedup_job.report.reconciled import Reconciliation

NOTHING = bytes(16)  # in the place of the hash of a copy


def finish(context: Context, consent: Consent = Consent()) -> Mapping[str, int]:
    """Finish what a killed run left, as a comparison does not see it; raises LeaseHeld while one works.

    Returns how many records killed runs had refused, by reason, that nobody was told of.
    """
    head = head_of(context, context.ledger_reader())
    if head.pending is None and head.lease is None:
        return {}
    with context.ledger(RunId.new(APPLY), consent) as ledger:
        ledger.recover(context.source, context.target)
        refused_before = ledger.refused_before()
        ledger.close({"exit_code": 0})
    return refused_before


def guard(found: Compared, max_share: float, is_noted: bool) -> None:
    """Raise GuardStop where more than this share has vanished; or note it in the log alone."""
    vanished = found.outdated.vanished.total()
    check_vanished(vanished, found.comparison.records, max_share, Notes() if is_noted else stop)


def carry_out(
    context: Context,
    found: Compared,
    advance: Advance,
    consent: Consent = Consent(),
    refused_before: Mapping[str, int] = MappingProxyType({}),
) -> Reconciliation:
    """Bring up to date what a comparison has found outdated, then decide what runs have missed.

    `advance` is called with how many more records were decided; `refused_before` is what `finish` returned.
    """
    started = time.monotonic()
    applied = apply(context, found, lambda _, plan: advance(len(plan)), consent) if found.outdated else None
    missed = decide_missed(context, found.rest, advance, consent)
    seconds = found.seconds + time.monotonic() - started
    done = reconciliation(context, found.comparison, missed, seconds)
    return replace(done, applied=applied, refused_before=refused_before)


def apply(context: Context, found: Compared, observe: Observe, consent: Consent = Consent()) -> Applied:
    """Bring up to date what is outdated; raises LeaseHeld when a command wrote since that was found."""
    run, started = RunId.new(APPLY), time.monotonic()
    with context.ledger(run, consent) as ledger, context.engine() as engine:
        head = ledger.recover(context.source, context.target)
        if found.outdated.fence is None or head.fence != found.outdated.fence + 1:
            raise LeaseHeld("another command worked on this target meanwhile; reconcile again")
        ledger.check_rights(context.target)
        failures = FailureGuard(context.settings.limits.max_failed_share, Notes() if consent.allow else stop)
        applying = Applying(context, ledger, engine, found.outdated, observe, failures)
        keepers = context.keepers(context.target, engine)
        # Where the target had another record of the id, it is held otherwise than by a decision.
        conflicts = found.outdated.again.with_verdict(CONFLICT)
        held = (RawIds.of(set(some) - context.target.absent(some)) for some in conflicts)
        past = Past.read(context, ledger, head, keepers, Window(), found.outdated.texts_of, held)
        renewed = applying.renew()
        counts = sum((applying.decide_again(ids, past) for ids in found.outdated.in_order), Counts())
        counts = applying.try_again(past, counts)
        ledger.settle()
        seconds = time.monotonic() - started
        applied = Applied(
            run.name, context.target_name, renewed, counts, applying.removed, seconds, applying.stay
        )
        ledger.close({**applied.as_json(), "exit_code": applied.exit_code})
    return applied


@dataclass(slots=True)
class Applying:
    """Works through outdated decisions.

    removed  how many records have left the target
    stay     ids of records of which the target keeps what it has
    put_off  how many records the target did not take beside another one
    """

    context: Context
    ledger: Ledger
    engine: LocalEngine
    outdated: Outdated
    observe: Observe
    failures: FailureGuard
    removed: int = 0
    stay: IdList = field(default_factory=IdList)
    put_off: int = 0

    def renew(self) -> int:
        """Renew what is to be renewed; returns how many records were.

        One that has changed again since is left to the next time.
        """
        renewed = 0
        for plan_id, outdated in self.outdated.renewed.items():
            judged = self.ledger.plan(plan_id).plan
            rows = {judged.ids[row]: row for row in outdated.tolist()}
            for found in self.context.source.fetch(list(rows)):
                old = judged.take([rows[raw_id] for raw_id in found if raw_id in rows])
                old = old.take(self._same_text(old, found))
                raws = [found[raw_id] for raw_id in old.ids]
                plan = replace(old, hashes=digests(raws))
                if len(plan):
                    before = _before(plan_id.number, old)
                    left = self.ledger.renew(plan, raws, self.context.target, before)
                    renewed += len(plan) - len(left)
                    self.stay.extend(left)
                    self.observe(Batch(plan.ids, raws), plan)
        return renewed

    def decide_again(self, pages: Iterable[list[bytes]], past: Past) -> Counts:
        """Decide records again, in this order; those that are gone are refused."""
        gone = IdList()
        again = past.job(
            self.context,
            self.engine,
            self._read(pages, gone),
            self.context.target.absent,
            self._commit,
            self.observe,
        )
        counts = job.run(again)
        for some in gone.pages(PAGE):
            plan = job.in_parts(self._vanished(some), [b""] * len(some), self._commit)
            self.observe(Batch(some, ()), plan)
            counts += plan.counts
        return counts

    def try_again(self, past: Past, counts: Counts) -> Counts:
        """Decide once more what the target did not take beside another record; returns the counts after it.

        That other one may have left the target, or been replaced, behind it.
        """
        refused = Counts(refused={NOT_ALONE.reason: self.put_off})
        return counts + self.decide_again(self.outdated.again.due_again(), past) - refused

    def _same_text(self, plan: Plan, raws: Mapping[bytes, bytes]) -> list[int]:
        """Return the rows of a plan whose record has the text that it had."""
        prints = self.engine.fingerprint([raws[raw_id] for raw_id in plan.ids])
        same: list[int] = (prints.digests == plan.digests).all(axis=1).nonzero()[0].tolist()
        return same

    def _read(self, pages: Iterable[list[bytes]], gone: IdList) -> Iterator[Batch]:
        """Yield the records that are in the source, and add the ids of the others to `gone`."""
        for page in pages:
            there = set[bytes]()
            for batch in self.context.source.records(page):
                there.update(batch.ids)
                yield batch
            gone.extend(raw_id for raw_id in page if raw_id not in there)

    def _commit(self, plan: Plan, raws: Sequence[bytes]) -> Plan:
        again = self.outdated.again
        found = again.find(plan.ids)
        before = [found[raw_id] for raw_id in plan.ids]
        failed = {raw_id for raw_id, one in found.items() if is_failure(one.verdict.reason)}
        self.failures.look(plan, failed)
        done = self.ledger.commit(plan, raws, self.context.target, before=_before_of(before))
        for raw_id, earlier, verdict in zip(done.ids, before, done.verdicts, strict=True):
            if verdict == CONFLICT:
                self.stay.extend([raw_id])
            elif verdict.action in COPIED:
                self.removed -= earlier.has_left
            else:
                self.removed += earlier.copy is not None
            if verdict == NOT_ALONE:
                self.put_off += 1
                again.put_off(raw_id, self.ledger.number, verdict)
        return done

    def _vanished(self, ids: Sequence[bytes]) -> Plan:
        """Return the plan that refuses records that are gone; what they were stands for nothing."""
        blank = self.context.recipe.unjudged(VANISHED.reason, b"")
        prints = Fingerprints.join([blank] * len(ids))
        plan = job.planned(Batch(ids, ()), prints, [VANISHED] * len(ids))
        return replace(plan, hashes=prints.digests)


def _before_of(earlier: Sequence[Earlier]) -> Before:
    """Return what a plan says of records that it decides again."""
    numbers = np.array([one.number for one in earlier], np.uint32)
    hashes = b"".join(one.copy or NOTHING for one in earlier)
    counts = Counts.of(one.verdict for one in earlier)
    return Before(numbers, np.frombuffer(hashes, np.uint64).reshape(-1, 2), counts)


def _before(number: int, judged: Plan) -> Before:
    """Return what a plan says of records that are to be renewed in it."""
    return Before(np.full(len(judged), number, np.uint32), judged.hashes, judged.counts)
