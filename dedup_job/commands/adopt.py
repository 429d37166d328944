"""`backfill --adopt`: keep the target's own records, and let them be keepers."""

from __future__ import annotations

import logging
import time

from dedup_job.commands.context import Context
from dedup_job.document import UNIQUE, Action, Counts, Verdict
from dedup_job.engine.exempt import WithExempt
from dedup_job.job import Observe, in_parts, planned
from dedup_job.ledger.fitting import Consent
from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.mongo.ahead import read_ahead
from dedup_job.mongo.window import Window
from dedup_job.plan import ADOPT
from dedup_job.report.summary import Report

log = logging.getLogger("dedup_job")


def adopt(context: Context, observe: Observe, consent: Consent = Consent()) -> Report | None:
    """Adopt the records of a target that has no ledger yet, or resume an interrupted adoption.

    All of them are kept, even copies of each other: the job never deletes records that it did not insert.
    They are stored as plans of their own run, of mode "adopt", which counts no record as decided.

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
        batches = read_ahead(context.target_records.batches(rest_of_adoption(ledger, head)))
        for batch, prints in WithExempt(engine).fingerprinted(batches):
            verdicts = [Verdict(Action.UNJUDGED, reason) if reason else UNIQUE for reason in prints.reasons]
            plan = planned(batch, prints, verdicts)
            in_parts(
                plan, batch.raws, lambda plan, raws: ledger.commit(plan, raws, context.target.as_it_is())
            )
            observe(batch, plan)
            counts += plan.counts
        ledger.adopting(False)
        seconds = time.monotonic() - started
        report = Report(run.name, ADOPT, counts, seconds, context.recipe.digest, context.recipe.about)
        ledger.close({**report.as_json(), "exit_code": 0})
    log.info("adopted", extra={"fields": {"records": counts.read}})
    return report


def rest_of_adoption(reader: LedgerReader, head: Head) -> Window:
    """Return the range of target ids that an interrupted adoption has not read."""
    last = None
    for stored in reader.plans(head):
        last = stored.plan.ids[-1]
    return Window(after=last)
