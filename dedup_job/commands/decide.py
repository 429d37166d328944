"""Decide: a backfill or a nightly run, from taking the lease to giving it back."""

from __future__ import annotations

import time

from dedup_job import job
from dedup_job.commands.context import Context
from dedup_job.commands.guard import Guards, HeldBack, Notes, stop
from dedup_job.commands.look import Look
from dedup_job.commands.past import Past, broken_off, tell_of_gone
from dedup_job.document import Counts
from dedup_job.job import Observe
from dedup_job.ledger.fitting import Consent
from dedup_job.ledger.run_row import RunId
from dedup_job.mongo.window import Window
from dedup_job.report.summary import Report


def decide(context: Context, mode: str, observe: Observe, consent: Consent = Consent()) -> Report:
    """Run a backfill or a nightly run: decide what is undecided and carry it out."""
    run = RunId.new(mode)
    started = time.monotonic()
    source, target = context.source, context.target
    notes = Notes()
    context.check_own(context.ledger_reader().head())
    with context.ledger(run, consent) as ledger, context.engine() as engine:
        head = ledger.recover(source, target)
        looked, newest = source.now(), source.newest()
        keepers = context.keepers(target, engine)
        tell, before = notes if consent.allow else stop, broken_off(context, ledger)
        guards = Guards.of(context.settings.limits, tell, before)
        past = Past.read(context, ledger, head, keepers, context.window(mode, head))

        def decided(window: Window, mode: str) -> Counts:
            return job.run(
                past.job(
                    context,
                    HeldBack(engine, guards.first),
                    source.batches(window),
                    target.absent,
                    guards.before(lambda plan, raws: ledger.commit(plan, raws, target, mode)),
                    observe,
                )
            )

        counts, is_full = Look(context, ledger, head, mode, looked)(past.window, decided)
        tell_of_gone(keepers, notes)
        ledger.covered(looked, newest, is_full)
        seconds = time.monotonic() - started
        basis = context.basis(keepers)
        report = Report(run.name, mode, counts, seconds, *basis, ledger.refused_before(), notes.messages)
        ledger.close({**report.as_json(), "exit_code": report.exit_code})
    return report
