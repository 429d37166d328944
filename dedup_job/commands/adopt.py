"""Adoption: what a target held before the job came is kept as it is, and stands for its copies."""

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
    """Take in the records of a target that has no ledger yet, or the rest of them; None where none are due.

    All of them are kept, copies of one another too: the job never deletes what it did not bring.  They are
    written down as plans of a run of their own, of mode "adopt", which counts nothing as decided.
    """
    if not context.is_foreign(context.ledger_reader().head()):
        return None
    run, started, counts = RunId.new(ADOPT), time.monotonic(), Counts()
    with context.ledger(run, consent) as ledger, context.engine() as engine:
        head = ledger.recover(context.source, context.target)
        ledger.adopting(True)
        batches = read_ahead(context.own_records.batches(rest_of_adoption(ledger, head)))
        for batch, prints in WithExempt(engine).fingerprinted(batches):
            verdicts = [Verdict(Action.UNJUDGED, reason) if reason else UNIQUE for reason in prints.reasons]
            plan = planned(batch, prints, verdicts)
            in_parts(
                plan, batch.raws, lambda plan, raws: ledger.commit(plan, raws, context.target.as_it_is())
            )
            observe(batch, plan)
            counts += plan.counts
        ledger.adopting(False)
        report = Report(
            run.name, ADOPT, counts, time.monotonic() - started, context.recipe.digest, context.about
        )
        ledger.close({**report.as_json(), "exit_code": 0})
    log.info("adopted", extra={"fields": {"records": counts.read}})
    return report


def rest_of_adoption(reader: LedgerReader, head: Head) -> Window:
    """Return what lies behind the last record that a killed adoption took in."""
    last = None
    for stored in reader.plans(head):
        last = stored.plan.ids[-1]
    return Window(after=last)
