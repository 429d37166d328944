"""`backfill` and `run`: from taking the lease to giving it back."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dedup_job.ledger.compatibility import Consent
from dedup_job.ledger.run_history import RunId
from dedup_job.mongo.id_window import Window
from dedup_job.pipeline import job
from dedup_job.pipeline.context import Context
from dedup_job.pipeline.guards import Guards, WarningList, check_first_records, stop_run
from dedup_job.pipeline.job import Observe
from dedup_job.pipeline.prior_decisions import PriorDecisions, interrupted_runs, warn_missing_keepers
from dedup_job.pipeline.source_scan import SourceScan
from dedup_job.records import Counts, Plan
from dedup_job.report.run_summary import RunSummary


def decide(context: Context, mode: str, observe: Observe, consent: Consent = Consent()) -> RunSummary:
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
    warnings = WarningList()
    context.check_no_foreign_records(context.ledger_reader().head())
    with context.ledger(run, consent) as ledger, context.engine() as engine:
        head = ledger.recover(source, target)
        # Taken before the first read: a record that arrives during the run counts as not yet covered.
        looked, newest = source.now(), source.newest()
        keepers = context.keepers(target, engine)
        warn = warnings if consent.allow else stop_run
        guards = Guards.of(context.settings.limits, warn, interrupted_runs(context, ledger))
        past = PriorDecisions.read(context, ledger, head, keepers, context.window(mode, head))

        def decide_window(window: Window, mode: str) -> Counts:
            def commit(plan: Plan, raws: Sequence[bytes]) -> Plan:
                guards.check(plan)
                return ledger.commit(plan, raws, target, mode)

            batches = check_first_records(past.fingerprint(engine, source.batches(window)), guards.first)
            return job.run(
                job.Job(batches, context.recipe.matching, keepers, target, commit, observe, past.adopted)
            )

        counts, is_full = SourceScan(context, ledger, head, mode, looked)(past.window, decide_window)
        warn_missing_keepers(keepers, warnings)
        ledger.covered(looked, newest, is_full)
        report = RunSummary(
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
