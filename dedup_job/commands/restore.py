"""Restore: single dropped records are put back."""

from __future__ import annotations

from collections.abc import Sequence

from dedup_job.commands.context import Context
from dedup_job.commands.undo import origin_of, written_head
from dedup_job.commands.why import why as why_answer
from dedup_job.errors import StateError, UsageError
from dedup_job.ledger.overrides import KEEP
from dedup_job.ledger.putting_back import Dropped, RestoreLedger
from dedup_job.ledger.rows import id_of_row
from dedup_job.ledger.run_row import RunId
from dedup_job.mongo.shown_ids import extended, readings, with_equals
from dedup_job.report.undo_page import Restored


def restore(context: Context, given: Sequence[str], why: str) -> Restored:
    """Put dropped records back into the target; those that are restored already, and there, are left alone.

    A record arrives as the source has it now; where that is not what was judged, the answer says so.
    Nothing is changed when one of them cannot be restored.  Raises UsageError when one was not dropped,
    StateError when it is not in the source any more, or source or target are not what they were.
    """
    head = written_head(context)
    this = RunId.new("restore")
    with context.opened(RestoreLedger, this, origin_of(context, head)) as ledger:
        ledger.recover(context.source, context.target)
        dropped = [found for one in dict.fromkeys(given) if (found := _dropped(context, one))]
        changed = [extended(raw_id) for raw_id in ledger.changed(dropped)]
        ledger.restore(dropped, why, context.target)
        restored = Restored(this.name, [extended(id_of_row(one.row)) for one in dropped], len(given), changed)
        ledger.close({**restored.as_json(), "exit_code": 0})
    return restored


def _dropped(context: Context, given: str) -> Dropped | None:
    """Return the dropped record that a command line names, or None for one that is restored already."""
    reader, ids = context.ledger_reader(), with_equals(readings(given))
    row = reader.row("dropped", ids) or _row_of_restored(context, given, ids)
    if row is None:
        return None
    raw_id = id_of_row(row)
    raw = context.source.one(raw_id)
    if raw is None:
        raise StateError(f"{given} is not in {context.source_name} any more; its keeper stands for it")
    return Dropped(row, raw)


def _row_of_restored(context: Context, given: str, ids: Sequence[bytes]) -> bytes | None:
    """Return what the row said of a record that was restored and is gone from the target again.

    None where it is still there.  Raises UsageError, with what the ledger knows, for any other record.
    """
    overrides = context.ledger_reader().overrides(ids)
    if overrides and not context.target.absent(overrides):
        return None
    for override in overrides.values():
        if override.action == KEEP:
            return override.dropped_row
        raise UsageError(f"{given} was restored, and its run was undone since; the next run keeps it")
    answer = why_answer(context, given)
    reason = f" ({answer['reason']})" if answer.get("reason") else ""
    raise UsageError(f"{given} was not dropped; the ledger says: {answer['verdict']}{reason}")
