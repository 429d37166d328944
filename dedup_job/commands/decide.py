"""`backfill` and `run`: from taking the lease to giving it back."""

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
    """Decide all undecided records and apply the decisions to the target.

    Args:
        context: The open connections.
        mode: "backfill", "run" or "reconcile".
        observe: Called with each batch and its final plan.
        consent: Changes of filter or collections, and guards, that a person has accepted.

    Raises:
        ConfigError: If the settings do not fit the ledger, or the target holds foreign records.
        LeaseHeld: If another run is in progress on this target.
        GuardStop: If a guard stops the run.
    """
    run = RunId.new(mode)
    started = time.monotonic()
    source, target = context.source, context.target
    warnings = Notes()
    context.check_no_foreign_records(context.ledger_reader().head())
    with context.ledger(run, consent) as ledger, context.engine() as engine:
        head = ledger.recover(source, target)
        # Taken before the first read: a record that arrives during the run counts as not yet covered.
        looked, newest = source.now(), source.newest()
        keepers = context.keepers(target, engine)
        warn = warnings if consent.allow else stop
        guards = Guards.of(context.settings.limits, warn, broken_off(context, ledger))
        past = Past.read(context, ledger, head, keepers, context.window(mode, head))

        def decide_window(window: Window, mode: str) -> Counts:
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

        counts, is_full = Look(context, ledger, head, mode, looked)(past.window, decide_window)
        tell_of_gone(keepers, warnings)
        ledger.covered(looked, newest, is_full)
        report = Report(
            run.name,
            mode,
            counts,
            time.monotonic() - started,
            context.recipe.digest,
            context.recipe.about,
            keepers.summary,
            ledger.refused_before(),
            warnings.messages,
        )
        ledger.close({**report.as_json(), "exit_code": report.exit_code})
    return report
