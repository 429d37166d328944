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
from dedup_job.commands.guard import FailureGuard, Notes, check_vanished, stop
from dedup_job.commands.outdated import Compared, Earlier, Outdated
from dedup_job.commands.past import Past
from dedup_job.commands.reconcile import decide_missed, reconciliation
from dedup_job.commands.verify.subject import head_of
from dedup_job.document import CONFLICT, COPIED, NOT_ALONE, VANISHED, Batch, Counts, Fingerprints, digests
from dedup_job.engine.local import LocalEngine
from dedup_job.errors import LeaseHeld
from dedup_job.job import Observe
from dedup_job.ledger.commit import Ledger
from dedup_job.ledger.fitting import Consent
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.stored_plan import Before
from dedup_job.mongo.window import Window
from dedup_job.plan import APPLY, Plan
from dedup_job.report.applied import Applied
from dedup_job.report.progress import Advance
from dedup_job.report.reconciled import Reconciliation

AT_ONCE = 5_000  # records


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
        refused = found.outdated.refused_for_another
        held = refused - context.target.absent(refused)
        past = Past.read(context, ledger, head, keepers, Window(), found.outdated.texts_of, held)
        renewed, stay = applying.renew()
        counts = sum((applying.decide_again(ids, past) for ids in found.outdated.in_order), Counts())
        counts = applying.try_again(past, counts)
        ledger.settle()
        stay += applying.conflicts
        seconds = time.monotonic() - started
        applied = Applied(
            run.name, context.target_name, renewed, counts, len(applying.removed), seconds, stay
        )
        ledger.close({**applied.as_json(), "exit_code": applied.exit_code})
    return applied


@dataclass(slots=True)
class Applying:
    """Works through outdated decisions.

    removed    ids of records that have left the target
    conflicts  ids of which the target has another record, which stays
    not_alone  by id: records that the target does not take beside another one
    """

    context: Context
    ledger: Ledger
    engine: LocalEngine
    outdated: Outdated
    observe: Observe
    failures: FailureGuard
    removed: set[bytes] = field(default_factory=set)
    conflicts: list[bytes] = field(default_factory=list)
    not_alone: dict[bytes, Earlier] = field(default_factory=dict)

    def renew(self) -> tuple[int, list[bytes]]:
        """Renew what is to be renewed; returns how many records were, and the ids of those that stay.

        One that has changed again since is left to the next time.
        """
        renewed, stay = 0, list[bytes]()
        for plan_id, ids in self.outdated.renewed.items():
            judged = self.ledger.plan(plan_id).plan
            rows = {raw_id: row for row, raw_id in enumerate(judged.ids)}
            for found in self.context.source.fetch(ids):
                old = judged.take([rows[raw_id] for raw_id in found if raw_id in rows])
                old = old.take(self._same_text(old, found))
                raws = [found[raw_id] for raw_id in old.ids]
                plan = replace(old, hashes=digests(raws))
                if len(plan):
                    before = _before(plan_id.number, old)
                    left = self.ledger.renew(plan, raws, self.context.target, before)
                    renewed += len(plan) - len(left)
                    stay += left
                    self.observe(Batch(plan.ids, raws), plan)
        return renewed, stay

    def decide_again(self, ids: Sequence[bytes], past: Past) -> Counts:
        """Decide records again, in this order; those that are gone are refused."""
        there = set[bytes]()
        again = past.job(
            self.context,
            self.engine,
            self._read(ids, there),
            self.context.target.absent,
            self._commit,
            self.observe,
        )
        counts = job.run(again)
        gone = [raw_id for raw_id in ids if raw_id not in there]
        for some in _portions(gone):
            plan = job.in_parts(self._vanished(some), [b""] * len(some), self._commit)
            self.observe(Batch(some, ()), plan)
            counts += plan.counts
        return counts

    def try_again(self, past: Past, counts: Counts) -> Counts:
        """Decide once more what the target did not take beside another record; returns the counts after it.

        That other one may have left the target, or been replaced, behind it.
        """
        refused, self.not_alone = self.not_alone, {}
        self.outdated.again.update(refused)
        again = self.decide_again(list(refused), past)
        return counts + again - Counts.of(one.verdict for one in refused.values())

    def _same_text(self, plan: Plan, raws: Mapping[bytes, bytes]) -> list[int]:
        """Return the rows of a plan whose record has the text that it had."""
        prints = self.engine.fingerprint([raws[raw_id] for raw_id in plan.ids])
        same: list[int] = (prints.digests == plan.digests).all(axis=1).nonzero()[0].tolist()
        return same

    def _read(self, ids: Sequence[bytes], there: set[bytes]) -> Iterator[Batch]:
        """Yield the records that are in the source, and note in `there` which these are."""
        for some in _portions(ids):
            for batch in self.context.source.records(some):
                there.update(batch.ids)
                yield batch

    def _commit(self, plan: Plan, raws: Sequence[bytes]) -> Plan:
        self.failures.look(plan, self.outdated.failed_of(plan.ids))
        done = self.ledger.commit(plan, raws, self.context.target, before=self.outdated.before(plan.ids))
        for raw_id, verdict in zip(done.ids, done.verdicts, strict=True):
            if verdict == CONFLICT:
                self.conflicts.append(raw_id)
                continue
            if verdict.action in COPIED:
                self.removed.discard(raw_id)
            elif self.outdated.again[raw_id].copy is not None:
                self.removed.add(raw_id)
            if verdict == NOT_ALONE:
                self.not_alone[raw_id] = Earlier(self.ledger.number, verdict, None)
        return done

    def _vanished(self, ids: Sequence[bytes]) -> Plan:
        """Return the plan that refuses records that are gone; what they were stands for nothing."""
        blank = self.context.recipe.unjudged(VANISHED.reason, b"")
        prints = Fingerprints.join([blank] * len(ids))
        plan = job.planned(Batch(ids, ()), prints, [VANISHED] * len(ids))
        return replace(plan, hashes=prints.digests)


def _before(number: int, judged: Plan) -> Before:
    """Return what a plan says of records that are to be renewed in it."""
    return Before(np.full(len(judged), number, np.uint32), judged.hashes, judged.counts)


def _portions(ids: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    return (ids[first : first + AT_ONCE] for first in range(0, len(ids), AT_ONCE))
