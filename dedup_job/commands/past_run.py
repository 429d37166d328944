"""A run that was: its plans are told as they were when it decided, from the ledger alone."""

from __future__ import annotations

from dedup_job.commands.context import Context
from dedup_job.document import Batch, Counts
from dedup_job.errors import UsageError
from dedup_job.job import Observe
from dedup_job.ledger.fitting import check_fits
from dedup_job.report.summary import Report


def past_run(context: Context, run: str, observe: Observe) -> Report:
    """Tell of each plan of a run, in the order of decision; the batches have no records, only their ids.

    Raises UsageError for a run that the ledger does not know, or that was undone.
    """
    reader = context.ledger_reader()
    head, row = reader.head(), reader.run(run)
    if head is None or row is None:
        raise UsageError(f"the ledger knows no run {run!r}; dedup-job status lists the last ones")
    if "undone" in row:
        raise UsageError(f"run {run} was undone by {row['undone_by']}: there is nothing left of it to show")
    check_fits(head, context.origin)
    plans = [link.id for link in reader.links(head.last) if link.run == run]
    counts = Counts()
    for plan_id in reversed(plans):
        plan = reader.plan(plan_id).plan
        observe(Batch(plan.ids, ()), plan)
        counts += plan.counts
    return Report(run, row["mode"], counts, row.get("seconds") or 0.0, head.digest, context.about)
