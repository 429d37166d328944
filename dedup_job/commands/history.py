"""`history`: list the past runs, or report on one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from dedup_job.errors import UsageError
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.settings_fit_ledger import check_fits
from dedup_job.pasteable_command import command_line
from dedup_job.pipeline.command_context import Context, read_head
from dedup_job.pipeline.job import Observe
from dedup_job.records import REFERENCE, Counts
from dedup_job.report.run_summary import RunSummary

RUNS_AT_ONCE = 100
RUN_KEYS = ("mode", "started", "seconds", "read", "unique", "duplicate", "unchecked", "refused", "exit_code")


def list_runs(context: Context) -> Iterator[list[dict[str, Any]]]:
    """Yield all runs as JSON values, some at a time, the newest first."""
    runs = map(run_json, context.ledger_reader().runs())
    while some := list(islice(runs, RUNS_AT_ONCE)):
        yield some


def count_records(context: Context, run: str) -> int | None:
    """Return the number of records that a run decided; None if it is unknown."""
    row = context.ledger_reader().run(run)
    return row.get("read") if row else None


def run_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `runs` as JSON values; a killed run has only the values from its start."""
    shown = {"run": row["_id"], **{key: row.get(key) for key in RUN_KEYS}}
    if shown["seconds"] is None and "ended" in row:
        shown["seconds"] = round((row["ended"] - row["started"]).total_seconds(), 1)
    undone = {"undid": row.get("undid"), "undone": format_time(row.get("undone"))}
    return {**shown, "started": format_time(row["started"]), **undone}


def format_time(value: datetime | None) -> str | None:
    """Return a time in ISO format, to the second."""
    return value.isoformat(timespec="seconds") if value else None


def find_run(reader: LedgerReader, run: str) -> Mapping[str, Any]:
    """Return the row of a run; raise UsageError if the ledger does not know the run."""
    if (row := reader.run(run)) is None:
        raise UsageError(f"the ledger knows no run {run!r}; {command_line('history')} lists them")
    return row


def check_not_undone(row: Mapping[str, Any]) -> None:
    """Raise UsageError if the run with this row was undone."""
    if "undone" in row:
        raise UsageError(
            f"run {row['_id']} was undone by {row['undone_by']}: nothing of it is left to report"
        )


def report_run(context: Context, run: str, observe: Observe) -> RunSummary:
    """Return the summary of a past run.

    Args:
        context: The open connections.
        run: Name of the run.
        observe: Called with each plan, in the order of decision.

    Raises:
        ConfigError: If there is no ledger yet.
        UsageError: If the ledger does not know the run, or it was undone.
    """
    head, reader = read_head(context), context.ledger_reader()
    row = find_run(reader, run)
    check_not_undone(row)
    check_fits(head, context.origin)
    # Links are read from the newest plan backwards.
    plan_ids = [link.id for link in reader.links(head.last) if link.run == run]
    counts = Counts()
    for plan_id in reversed(plan_ids):
        stored = reader.plan(plan_id)
        # The run has read these records in a reference, not in the source.
        if stored.mode == REFERENCE:
            continue
        plan = stored.plan
        observe(plan)
        counts += plan.counts
    seconds = row.get("seconds") or 0.0
    return RunSummary(run, row["mode"], counts, seconds, head.digest, context.recipe.about)
