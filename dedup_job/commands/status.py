"""Status: how far a ledger is, who works on it, and what the last runs did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby, islice
from typing import Any

from dedup_job.commands.context import Context
from dedup_job.document import is_failure
from dedup_job.ledger.head import Head
from dedup_job.ledger.lease import Holder
from dedup_job.ledger.reader import DECIDING, REPORTED
from dedup_job.mongo.shown_ids import extended
from dedup_job.report.summary import LedgerProgress

LAST_RUNS = 10
RUN_KEYS = ("mode", "started", "seconds", "read", "unique", "duplicate", "unjudged", "refused", "exit_code")


def status(context: Context, runs: int = LAST_RUNS) -> dict[str, Any]:
    """Return as JSON values where a ledger stands; `ledger` is false where there is none yet.

    `newest_id` is the time up to which ids were seen; by it the next run knows which may be new.
    So many of the last runs are shown; those in a row that found nothing new, or that failed before they
    decided anything, are one of them.
    """
    reader = context.ledger_reader()
    head = reader.head()
    if head is None:
        return {"ledger": False, "source": context.source_name, "target": context.target_name}
    pending = next(reader.links(head.pending), None)
    counts = head.counts
    return {
        "ledger": True,
        "source": head.source,
        "target": context.target_name,
        "recipe": head.digest,
        "fence": head.fence,
        "plans": head.next,
        "watermark": extended(head.watermark) if head.watermark else None,
        "covered": _time(head.seen or head.covered),
        "newest_id": _time(head.covered),
        "looked": _time(head.looked),
        **counts.as_json(),
        "failed": sum(count for reason, count in counts.unjudged.items() if is_failure(reason)),
        "restored": reader.count_overridden(),
        "lag": lag(context, head),
        "lease": lease_of(head, reader.now()),
        "pending": pending and {"plan": pending.id.number, "run": pending.run},
        "undoing": head.undo.run if head.undo else None,
        "runs": list(islice(_each_shown(reader.runs()), runs)),
    }


def lag(context: Context, head: Head) -> dict[str, Any]:
    """Return about how many source records at least are not decided, and how long ago all of them were.

    The number is None where only a look at all ids tells: a filter leaves some out, and where no more records
    are there than were decided, some of those may have been deleted.
    """
    now = context.source.now()
    more = undecided(context, head)
    return {
        "records": more or None,
        "seconds": _age(now, head.seen or head.covered),
        "full_look_seconds": _age(now, head.looked),
    }


def undecided(context: Context, head: Head) -> int | None:
    """Return about how many source records at least are not decided; None where nobody counts them."""
    return max(0, context.source.estimated_count() - head.counts.in_source) if context.is_counted() else None


def standing(context: Context) -> LedgerProgress:
    """Return how far the ledger is after a run."""
    head = context.ledger_reader().head()
    assert head is not None
    return LedgerProgress(undecided(context, head), head.seen or head.covered)


def _age(now: datetime, then: datetime | None) -> float | None:
    return None if then is None else round(max(0.0, (now - then).total_seconds()), 1)


def lease_of(head: Head, now: datetime) -> dict[str, Any] | None:
    """Return who holds the lease as JSON values, and whether that process lives, None where nobody tells."""
    if head.lease is None:
        return None
    holder, until = Holder.read(head.lease), head.lease["until"]
    is_alive = not holder.is_gone() if holder.is_near() else None
    return {
        "host": holder.host,
        "pid": holder.pid,
        "until": _time(until),
        "seconds_left": round((until - now).total_seconds(), 1),
        "holder_alive": is_alive,
        "held": until > now and is_alive is not False,
    }


def _each_shown(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows of `runs`; of those alike the newest one, which says how many were `alike` before it."""
    for kind, group in groupby(rows, _kind):
        newest, *others = group
        if kind is not None:
            yield {**_run(newest), "alike": len(others)}
            continue
        for row in (newest, *others):
            yield {**_run(row), "alike": 0}


def _kind(row: Mapping[str, Any]) -> str | None:
    """Return of which kind a run is that did nothing; None for any other, or while nobody knows."""
    if row["mode"] not in DECIDING or row.get("read") or "undid" in row or row.get("exit_code") is None:
        return None
    return "empty" if row["exit_code"] in REPORTED else "failed"


def _run(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `runs`; a run that was killed has no more than its beginning."""
    shown = {"run": row["_id"], **{key: row.get(key) for key in RUN_KEYS}}
    if shown["seconds"] is None and "ended" in row:
        shown["seconds"] = round((row["ended"] - row["started"]).total_seconds(), 1)
    undone = {"undid": row.get("undid"), "undone": _time(row.get("undone"))}
    return {**shown, "started": _time(row["started"]), **undone}


def _time(value: datetime | None) -> str | None:
    return value.isoformat(timespec="seconds") if value else None
