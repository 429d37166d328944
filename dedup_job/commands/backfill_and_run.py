"""`backfill`, also with `--adopt`, and `run`, from taking the lease to giving it back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.settings_fit_ledger import Consent
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.pages import Window, prefetch
from dedup_job.pipeline.command_context import Context
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.pipeline.guards import Guards, WarningList, stop_run
from dedup_job.pipeline.job import Observe, commit_in_parts, make_plan
from dedup_job.pipeline.load_keepers_and_scan_source import (
    PriorDecisions,
    interrupted_runs,
    scan_source,
    warn_missing_keepers,
)
from dedup_job.pipeline.replace_keepers_in_ledger import (
    LedgerDecisions,
    check_rights_to_replace,
    choose_decider,
)
from dedup_job.pipeline.skip_restored_and_long_ids import skip_records
from dedup_job.preference.preference_ranks import BEST
from dedup_job.records import ADOPT, BACKFILL, UNIQUE, Action, Batch, Counts, Plan, Verdict
from dedup_job.report.run_summary import RunSummary

log = logging.getLogger("dedup_job")


def decide(
    context: Context, mode: str, observe: Observe, consent: Consent = Consent(), expected: int | None = None
) -> RunSummary:
    """Decide all undecided records and apply the decisions to the target.

    Args:
        context: The open connections.
        mode: "backfill", "run" or "sync".
        observe: Called with each final plan.
        consent: Changes of filter or collections, and guards, that a person has accepted.
        expected: About how many records will be decided, for `status`; None if unknown.

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
    check_rights_to_replace(context)
    with context.ledger(run, consent) as ledger, context.engine() as engine:
        head = ledger.recover(source, target, settles=True)
        # Asked before the first read, so that records that arrive during the run are left to the next run.
        looked, newest = source.begin_scan()
        keepers = context.keepers(target, engine)
        warn = warnings if consent.allow else stop_run
        before = interrupted_runs(context, ledger)
        guards = Guards(context.settings.limits, context.recipe, warn, warnings, before)
        past = PriorDecisions.read(context, ledger, head, keepers, context.window(mode, head))
        past = past.with_references(context, engine, partial(ledger.keep_references, target=target))
        store = LedgerDecisions(ledger, target)
        decider = choose_decider(context, engine, past, target, store, head.next)

        ledger.run_row.begin_deciding(ledger.current_head, expected)

        def decide_window(window: Window, mode: str) -> Counts:
            def commit(plan: Plan, raws: Sequence[bytes]) -> Plan:
                guards.check(plan)
                return ledger.commit(plan, raws, target, mode)

            batches = guards.first.watch(past.fingerprint(engine, source.batches(window)))
            return decider.decide_batches(batches, commit, observe)

        counts, is_full = scan_source(context, ledger, head, mode, looked, past.window, decide_window)
        replaced = decider.settle()
        warn_missing_keepers(keepers, warnings)
        ledger.store_scan(looked, newest, is_full)
        if mode == BACKFILL and head.stages is not None:
            # It has finished what a backfill on Spark began.
            ledger.finish_stages()
        report = RunSummary(
            run.name,
            mode,
            counts + replaced.own if replaced is not None else counts,
            time.monotonic() - started,
            context.recipe.digest,
            context.recipe.about,
            keepers.summary,
            ledger.run_row.refused_before(),
            warnings.messages,
            replaced=replaced,
        )
        ledger.close({**report.as_json(), "exit_code": report.exit_code})
    return report


def adopt(context: Context, observe: Observe, consent: Consent = Consent()) -> RunSummary | None:
    """Adopt the records of a target that has no ledger yet, or resume an interrupted adoption.

    All of them are kept, even copies of each other: the job never deletes records that it did not insert.
    They are stored as plans of their own run, of mode "adopt", which counts no record as decided.
    A record that a person restored is kept, too, but is no keeper: nothing is dropped for it.

    Args:
        context: The open connections.
        observe: Called with each plan.
        consent: Changes that a person has accepted.

    Returns:
        The summary of the adoption; None if there is nothing to adopt.
    """
    if not context.has_foreign_records(context.ledger_reader().head()):
        return None
    run, started, counts = RunId.new(ADOPT), time.monotonic(), Counts()
    with context.ledger(run, consent) as ledger, context.engine() as engine:
        head = ledger.recover(context.source, context.target)
        # Stored before the first plan: a killed adoption must be resumed before anything is decided.
        ledger.store_adoption(True)
        target = context.target.without_inserts()
        for batch, plan in plan_adoption(context, engine, ledger, head):
            commit_in_parts(plan, batch.raws, lambda plan, raws: ledger.commit(plan, raws, target))
            observe(plan)
            counts += plan.counts
        ledger.store_adoption(False)
        seconds = time.monotonic() - started
        report = RunSummary(run.name, ADOPT, counts, seconds, context.recipe.digest, context.recipe.about)
        ledger.close({**report.as_json(), "exit_code": 0})
    log.info("adopted", extra={"fields": {"records": counts.read}})
    return report


def plan_adoption(
    context: Context, engine: FingerprintWorkers, reader: LedgerReader, head: Head | None
) -> Iterator[tuple[Batch, Plan]]:
    """Yield the target's own records in batches, each with the plan that adopts it; writes nothing."""
    batches = prefetch(context.target_records.batches(undecided_window(reader, head)))
    restored = IdSet.of(reader.overridden_ids())
    for batch, prints in skip_records(engine.fingerprint_batches(batches), restored.among):
        verdicts = [Verdict(Action.UNCHECKED, reason) if reason else UNIQUE for reason in prints.reasons]
        if prints.ranks is not None:
            # The job never removes them, so no record may be better.
            prints = replace(prints, ranks=np.full_like(prints.ranks, BEST))
        yield batch, make_plan(batch, prints, verdicts)


def undecided_window(reader: LedgerReader, head: Head | None) -> Window:
    """Return the range of target ids that an interrupted adoption has not read."""
    last = None
    for stored in reader.plans(head) if head else ():
        last = stored.plan.ids[-1]
    return Window(after=last)
