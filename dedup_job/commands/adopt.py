"""`backfill --adopt`: keep the target's own records, and let them be keepers."""

from __future__ import annotations

import logging
import time

from dedup_job.ledger.compatibility import Consent
from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_history import RunId
from dedup_job.mongo.id_window import Window
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.pages import prefetch
from dedup_job.pipeline.context import Context
from dedup_job.pipeline.job import Observe, commit_in_parts, make_plan
from dedup_job.pipeline.skip_records import skip_records
from dedup_job.records import ADOPT, UNIQUE, Action, Counts, Verdict
from dedup_job.report.run_summary import RunSummary

log = logging.getLogger("dedup_job")


def adopt(context: Context, observe: Observe, consent: Consent = Consent()) -> RunSummary | None:
    """Adopt the records of a target that has no ledger yet, or resume an interrupted adoption.

    All of them are kept, even copies of each other: the job never deletes records that it did not insert.
    They are stored as plans of their own run, of mode "adopt", which counts no record as decided.
    A record that a person restored is kept, too, but is no keeper: nothing is dropped for it.

    Args:
        context: The open connections.
        observe: Called with each batch and its plan.
        consent: Changes that a person has accepted.

    Returns:
        The summary of the adoption; None where there is nothing to adopt.
    """
    if not context.has_foreign_records(context.ledger_reader().head()):
        return None
    run, started, counts = RunId.new(ADOPT), time.monotonic(), Counts()
    with context.ledger(run, consent) as ledger, context.engine() as engine:
        head = ledger.recover(context.source, context.target)
        # Noted before the first plan: a killed adoption must be resumed before anything is decided.
        ledger.adopting(True)
        batches = prefetch(context.target_records.batches(undecided_window(ledger, head)))
        restored = IdSet.of(ledger.overridden())
        for batch, prints in skip_records(engine.fingerprinted(batches), restored.among):
            verdicts = [Verdict(Action.UNJUDGED, reason) if reason else UNIQUE for reason in prints.reasons]
            plan = make_plan(batch, prints, verdicts)
            commit_in_parts(
                plan, batch.raws, lambda plan, raws: ledger.commit(plan, raws, context.target.as_it_is())
            )
            observe(batch, plan)
            counts += plan.counts
        ledger.adopting(False)
        seconds = time.monotonic() - started
        report = RunSummary(run.name, ADOPT, counts, seconds, context.recipe.digest, context.recipe.about)
        ledger.close({**report.as_json(), "exit_code": 0})
    log.info("adopted", extra={"fields": {"records": counts.read}})
    return report


def undecided_window(reader: LedgerReader, head: Head) -> Window:
    """Return the range of target ids that an interrupted adoption has not read."""
    last = None
    for stored in reader.plans(head):
        last = stored.plan.ids[-1]
    return Window(after=last)
