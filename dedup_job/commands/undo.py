"""Undo: a whole run is taken back."""

from __future__ import annotations

import time

from dedup_job.commands.context import Context
from dedup_job.commands.deciding import Observe, new_run
from dedup_job.document import Batch
from dedup_job.errors import UsageError
from dedup_job.ledger.head import Head, Origin
from dedup_job.ledger.taking_back import UndoLedger
from dedup_job.report.undo_page import Undone


def undo(context: Context, run: str, observe: Observe) -> Undone:
    """Take a whole run back, as if it had not been; a run that is undone already is left alone.

    Raises UsageError when there is no such run, it decided nothing, or later runs must be undone first.
    """
    head = written_head(context)
    row = context.ledger_reader().run(run)
    if row is None and head.undo is None:
        raise UsageError(f"the ledger knows no run {run!r}; dedup-job status lists the last ones")
    if row and "undone" in row and head.undo is None:
        return Undone(row["undone_by"], run, already=True)
    this = new_run("undo")
    started = time.monotonic()
    with context.opened(UndoLedger, this, origin_of(context, head)) as ledger:
        done = ledger.take_back(
            run, context.source, context.target, lambda plan: observe(Batch(plan.ids, ()), plan)
        )
        undone = Undone(this.name, run, done.plans, done.counts, done.left, time.monotonic() - started)
        ledger.close({**undone.as_json(), "exit_code": undone.exit_code})
    return undone


def written_head(context: Context) -> Head:
    """Return the state of the ledger; raises UsageError where there is none."""
    head = context.ledger_reader().head()
    if head is None:
        raise UsageError("there is no ledger beside the target yet: no run has been")
    return head


def origin_of(context: Context, head: Head) -> Origin:
    """Return source, target and ledger as they are now; on recipe and filter no reversal depends."""
    return Origin(context.source_name, head.recipe, head.digest, head.filter, context.places.noted())
