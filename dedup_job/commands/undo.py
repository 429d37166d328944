"""`undo`: remove everything a run has inserted, and its plans."""

from __future__ import annotations

import time

from dedup_job.errors import UsageError
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.settings_fit_ledger import check_whole
from dedup_job.ledger.undo_run import UndoRun, check_newest, check_not_promoted, count_restored
from dedup_job.pasteable_command import command_line
from dedup_job.pipeline.command_context import Context, read_head, read_head_for_preview, undo_origin
from dedup_job.pipeline.job import Observe
from dedup_job.records import ADOPT, OUTSIDE_SOURCE, RENEW, Counts
from dedup_job.report.undo_and_restore_results import UndoPreview, UndoResult


def undo(context: Context, run: str, observe: Observe) -> UndoResult:
    """Undo a whole run; do nothing if it is undone already.

    Args:
        context: The open connections.
        run: Name of the run.
        observe: Called with each plan that was undone.

    Raises:
        ConfigError: If there is no ledger yet.
        UsageError: If there is no such run, it decided nothing, or later runs must be undone first.
    """
    if (before := find_earlier_undo(context, run)) is not None:
        return before
    this = RunId.new("undo")
    started = time.monotonic()
    with context.open_ledger(this, undo_origin(context, read_head(context))) as ledger:
        undo_run = UndoRun(
            ledger, context.source, context.target, context.marks, context.archive_of(ledger.current_head)
        )
        done = undo_run.undo(run, observe)
        undone = UndoResult(
            this.name,
            run,
            done.plans,
            done.counts,
            done.left,
            done.restored,
            time.monotonic() - started,
            has_copies=context.target.holds_copies,
        )
        ledger.close({**undone.as_json(), "exit_code": undone.exit_code})
    return undone


def find_earlier_undo(context: Context, run: str) -> UndoResult | None:
    """Return the undo that has undone a run already, or None; raise UsageError if there is no such run."""
    head, reader = read_head(context), context.ledger_reader()
    row = reader.run(run)
    # `runs` may have been restored from an older backup; then only the plans name the run.
    if (
        row is None
        and head.undo is None
        and all(link.run != run for link in reader.links(head.pending or head.last))
    ):
        raise UsageError(f"the ledger knows no run {run!r}; {command_line('history')} lists them")
    if row and "undone" in row and head.undo is None:
        return UndoResult(row["undone_by"], run, already=True)
    return None


def preview_undo(context: Context, run: str) -> UndoPreview:
    """Return what an undo of a run would remove; writes nothing.

    Raises:
        ConfigError: If there is no ledger yet.
        UsageError: If there is no such run, it decided nothing, or later runs must be undone first.
        StateError: If another undo must be finished first, or a collection was replaced.
    """
    head, reader = read_head_for_preview(context), context.ledger_reader()
    if head.undo is not None and head.undo.run != run:
        check_whole(head)
    row = reader.run(run) or {}
    due = UndoPreview(
        run,
        row.get("mode"),
        row.get("started"),
        has_begun=head.undo is not None,
        has_copies=context.target.holds_copies,
    )
    later: dict[str, None] = {}
    for link in reader.links(head.pending or head.last):
        # A plan that only updates hashes decides nothing.
        if link.mode == RENEW:
            continue
        is_of_run = link.run == run
        # Adopted records are undone together with their adoption only.
        if is_of_run and (link.mode != ADOPT or due.mode == ADOPT):
            check_not_promoted(head, link)
            if link.mode in OUTSIDE_SOURCE:
                # Neither adopted nor reference records leave the target, so they count as nothing.
                due = due.with_plan(Counts(), 0)
            else:
                plan = reader.plan(link.id).plan
                due = due.with_plan(plan.counts, count_restored(plan, reader.overrides(plan.ids)))
        elif is_of_run or due.plans or due.has_begun:
            break
        else:
            later[link.run] = None
    check_newest(run, later, has_decided=bool(due.plans or due.has_begun))
    return due
