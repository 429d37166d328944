"""`status`: the progress of a ledger, who works on it, and the results of the last runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby, islice
from typing import Any

from dedup_job.commands.history import format_time, run_json
from dedup_job.ledger.head import Head, Holder
from dedup_job.ledger.reader import DECIDING, REPORTED
from dedup_job.mongo.ids import extended
from dedup_job.pipeline.command_context import Context
from dedup_job.records import BACKFILL, is_failure
from dedup_job.report.progress import RunProgress
from dedup_job.report.run_summary import LedgerProgress

LAST_RUNS = 10


def status(context: Context, runs: int = LAST_RUNS) -> dict[str, Any]:
    """Return the state of a ledger as JSON values.

    Args:
        context: The open connections.
        runs: Number of last runs to show. Consecutive runs without new records, or that failed before they
            decided anything, count as one.

    Returns:
        `ledger` is false if there is none yet. `newest_id` is the time in the newest id that was read; the
        next run reads ids from a little before it on. `restored` is a part of the duplicates. `in_target`
        is the number of records that the runs have put into the target; null without copies. `replacing` is
        true while kept records are replaced by better ones, and after a run that was killed meanwhile.
    """
    reader = context.ledger_reader()
    # Before the head, which may only be newer: a run that ends in between has no lease in it.
    rows = list(reader.runs())
    head = reader.head()
    if head is None:
        return {"ledger": False, "source": context.source_name, "target": context.target_name}
    pending = next(reader.links(head.pending), None)
    counts, now, restored = head.counts, reader.now(), reader.count_restored()
    in_target = counts.unique + sum(counts.unchecked.values()) + restored
    lease = describe_lease(head, now)
    # The holder of the lease has raised the fence.
    own = next((row for row in rows if row.get("fence") == head.fence and "ended" not in row), None)
    return {
        "ledger": True,
        "source": head.source,
        "target": context.target_name,
        "recipe": head.digest,
        "fence": head.fence,
        "plans": head.next,
        "watermark": extended(head.watermark) if head.watermark else None,
        "covered": format_time(head.seen or head.covered),
        "newest_id": format_time(head.covered),
        "looked": format_time(head.looked),
        **counts.as_json(),
        "failed": sum(count for reason, count in counts.unchecked.items() if is_failure(reason)),
        "restored": restored,
        "in_target": in_target if context.target.holds_copies else None,
        "lag": describe_lag(context, head),
        "replication": context.throttle.describe(),
        "lease": lease,
        "running": describe_running(context, own, head, now) if own and lease and lease["held"] else None,
        "pending": pending and {"plan": pending.id.number, "run": pending.run},
        "replacing": head.unsettled is not None,
        "undoing": head.undo.run if head.undo else None,
        "promotion": head.promotion and {"state": head.promotion.state, "kept_as": head.promotion.kept_as},
        "runs": list(islice(_group_runs(rows), runs)),
    }


def describe_lag(context: Context, head: Head) -> dict[str, Any]:
    """Return a lower bound of the number of undecided records, and the time since all were decided.

    The number is None if only a scan of all ids could find it: with a filter, or if no record seems to be
    undecided, as decided records may have been deleted.
    """
    now = context.source.now()
    return {
        "records": count_undecided(context, head) or None,
        "seconds": _age(now, head.seen or head.covered),
        "full_scan_seconds": _age(now, head.looked),
    }


def count_undecided(context: Context, head: Head) -> int | None:
    """Return a lower bound of the number of undecided records; None if the server cannot count them."""
    if not context.can_count_source():
        return None
    return max(0, context.source.estimated_count() + _count_archived(context, head) - head.in_source)


def _count_archived(context: Context, head: Head) -> int:
    """Return about how many records were moved from the source to the archive."""
    archive = context.archive_if_there(head)
    return archive.as_source().estimated_count() if archive else 0


def expected_records(context: Context, mode: str, is_fresh: bool = False) -> int | None:
    """Return about how many records a run will decide; None if that is unknown.

    Args:
        context: The open connections.
        mode: "backfill" or "run".
        is_fresh: Whether the run ignores earlier decisions.
    """
    head = None if is_fresh else context.ledger_reader().head()
    if mode == BACKFILL:
        decided = head.in_source - _count_archived(context, head) if head else 0
        rest = context.source.estimated_matches() - decided
    else:
        rest = (count_undecided(context, head) if head else None) or 0
    return rest if rest > 0 else None


def describe_running(context: Context, row: Mapping[str, Any], head: Head, now: datetime) -> dict[str, Any]:
    """Return the run in progress as JSON values.

    Args:
        context: The open connections.
        row: Its row in `runs`.
        head: The head of the ledger.
        now: The server's clock.
    """
    deciding = row.get("deciding")
    shown = {
        "run": row["_id"],
        "mode": row["mode"],
        "started": format_time(row["started"]),
        "seconds": _age(now, row["started"]),
        "deciding": deciding is not None,
    }
    if deciding is None:
        return shown
    read = head.counts.read - deciding["decided"]
    progress = RunProgress(read, deciding["expected"], (now - deciding["at"]).total_seconds())
    return shown | progress.as_json()


def ledger_progress(context: Context) -> LedgerProgress:
    """Return the progress of the ledger after a run, for monitoring."""
    head = context.ledger_reader().head()
    assert head is not None
    return LedgerProgress(count_undecided(context, head), head.seen or head.covered)


def _age(now: datetime, then: datetime | None) -> float | None:
    return None if then is None else round(max(0.0, (now - then).total_seconds()), 1)


def describe_lease(head: Head, now: datetime) -> dict[str, Any] | None:
    """Return the holder of the lease as JSON values; None if there is none.

    `holder_alive` is None if it is unknown, as for a process on another machine.
    """
    if head.lease is None:
        return None
    holder, until = Holder.read(head.lease), head.lease["until"]
    is_alive = not holder.is_gone() if holder.is_near() else None
    return {
        "host": holder.host,
        "pid": holder.pid,
        "until": format_time(until),
        "seconds_left": round((until - now).total_seconds(), 1),
        "holder_alive": is_alive,
        "held": until > now and is_alive is not False,
    }


def _group_runs(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the runs as JSON values, newest first; only the newest of consecutive runs that did nothing.

    `alike` is the number of runs that are left out after it.
    """
    for group_key, group in groupby(rows, _group_key):
        if group_key is None:
            yield from ({**run_json(row), "alike": 0} for row in group)
        else:
            newest, *others = group
            yield {**run_json(newest), "alike": len(others)}


def _group_key(row: Mapping[str, Any]) -> str | None:
    """Return "empty" or "failed" for a run that decided nothing; None for other and unfinished runs."""
    if row["mode"] not in DECIDING or row.get("read") or "undid" in row or row.get("exit_code") is None:
        return None
    return "empty" if row["exit_code"] in REPORTED else "failed"
