"""`report --of`: what a past run did, read from the ledger."""

from __future__ import annotations

from dedup_job.commands.context import Context
from dedup_job.document import Batch, Counts
from dedup_job.errors import UsageError
from dedup_job.job import Observe
from dedup_job.ledger.fitting import check_fits
from dedup_job.report.summary import Report


def past_run(context: Context, run: str, observe: Observe) -> Report:
    """Return the summary of a past run.

    Args:
        context: The open connections.
        run: Name of the run.
        observe: Called with each batch and its plan, in the order of decision; the batches hold ids only.

    Raises:
        UsageError: If the ledger does not know the run, or it was undone.
    """
    reader = context.ledger_reader()
    head, row = reader.head(), reader.run(run)
    if head is None or row is None:
        raise UsageError(f"the ledger knows no run {run!r}; dedup-job status lists the last runs")
    if "undone" in row:
        raise UsageError(f"run {run} was undone by {row['undone_by']}: nothing of it is left to report")
    check_fits(head, context.origin)
    # Links are read from the newest plan backwards.
    plan_ids = [link.id for link in reader.links(head.last) if link.run == run]
    counts = Counts()
    for plan_id in reversed(plan_ids):
        plan = reader.plan(plan_id).plan
        observe(Batch(plan.ids, ()), plan)
        counts += plan.counts
    seconds = row.get("seconds") or 0.0
    return Report(run, row["mode"], counts, seconds, head.digest, context.recipe.about)
