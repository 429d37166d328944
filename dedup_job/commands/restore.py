"""`restore`: insert single dropped records into the target."""

from __future__ import annotations

from collections.abc import Sequence

from dedup_job.commands.undo import read_head, undo_origin
from dedup_job.commands.why import why as why_answer
from dedup_job.errors import StateError, UsageError
from dedup_job.ledger.overrides import KEEP
from dedup_job.ledger.restore_record import DroppedRecord, ids_changed_since, restore_record
from dedup_job.ledger.rows import id_of_row
from dedup_job.ledger.run_history import RunId
from dedup_job.mongo.id_text import extended, readings, with_equals
from dedup_job.pipeline.context import Context
from dedup_job.report.undo_results import RestoreResult


def restore(context: Context, given: Sequence[str], why: str) -> RestoreResult:
    """Insert dropped records into the target, in their present version from the source.

    Records that are restored and in the target already are left alone.  If one record cannot be restored,
    nothing is changed.

    Args:
        context: The open connections.
        given: Ids of the records, as on a command line.
        why: A reason, stored in the ledger.

    Returns:
        The restored records, and which of them differ from the version that was judged.

    Raises:
        UsageError: If one of the records was not dropped.
        StateError: If one is no longer in the source, or source or target were replaced.
    """
    head = read_head(context)
    this = RunId.new("restore")
    with context.open_ledger(this, undo_origin(context, head)) as ledger:
        ledger.recover(context.source, context.target)
        dropped = [
            record for name in dict.fromkeys(given) if (record := _find_dropped(context, name)) is not None
        ]
        changed = [extended(raw_id) for raw_id in ids_changed_since(ledger, dropped)]
        for record in dropped:
            restore_record(ledger, record, why, context.target)
        ids = [extended(id_of_row(record.row)) for record in dropped]
        restored = RestoreResult(this.name, ids, len(given), changed)
        ledger.close({**restored.as_json(), "exit_code": 0})
    return restored


def _find_dropped(context: Context, given: str) -> DroppedRecord | None:
    """Return the dropped record with this id; None for a record that is restored already."""
    reader, ids = context.ledger_reader(), with_equals(readings(given))
    row = reader.row("dropped", ids) or _find_row_of_restored(context, given, ids)
    if row is None:
        return None
    raw_id = id_of_row(row)
    raw = context.source.one(raw_id)
    if raw is None:
        raise StateError(
            f"{given} is no longer in {context.source_name}, so it cannot be restored; its keeper is kept"
        )
    return DroppedRecord(row, raw)


def _find_row_of_restored(context: Context, given: str, ids: Sequence[bytes]) -> bytes | None:
    """Return the former `dropped` row of a record that was restored and has left the target again.

    Returns:
        The row; None if the restored record is in the target.

    Raises:
        UsageError: If the record was not dropped; the message quotes the ledger.
    """
    overrides = context.ledger_reader().overrides(ids)
    if overrides and not context.target.absent(overrides):
        return None
    for override in overrides.values():
        if override.action == KEEP:
            return override.dropped_row
        raise UsageError(f"{given} was restored, and its run was undone since; the next run will keep it")
    answer = why_answer(context, given)
    reason = f" ({answer['reason']})" if answer.get("reason") else ""
    raise UsageError(f"{given} was not dropped; the ledger says: {answer['verdict']}{reason}")
