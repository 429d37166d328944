"""Reversal: a whole run is taken back, or single dropped records are put back."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dedup_job.document import Batch
from dedup_job.errors import StateError, UsageError
from dedup_job.inspection import why as answer_of
from dedup_job.mongo.head import Head, Origin
from dedup_job.mongo.ids import extended, readings, with_equals
from dedup_job.mongo.restore import Dropped, RestoreLedger
from dedup_job.mongo.rows import id_of_row
from dedup_job.mongo.undo import UndoLedger
from dedup_job.parts import Parts
from dedup_job.report.reversal import Restored, Undone
from dedup_job.wiring import Observe, new_run


def undo(parts: Parts, run: str, observe: Observe) -> Undone:
    """Take a whole run back, as if it had not been; a run that is undone already is left alone.

    Raises UsageError when there is no such run, it decided nothing, or later runs must be undone first.
    """
    head = _head(parts)
    row = parts.ledger_reader().run(run)
    if row is None and head.undo is None:
        raise UsageError(f"the ledger knows no run {run!r}; dedup-job status lists the last ones")
    if row and "undone" in row and head.undo is None:
        return Undone(row["undone_by"], run, already=True)
    this = new_run("undo")
    started = time.monotonic()
    with parts.opened(UndoLedger, this, _origin(parts, head)) as ledger:
        done = ledger.take_back(
            run, parts.source, parts.target, lambda plan: observe(Batch(plan.ids, ()), plan)
        )
        undone = Undone(this.name, run, done.plans, done.counts, done.left, time.monotonic() - started)
        ledger.close({**undone.as_json(), "exit_code": undone.exit_code})
    return undone


def restore(parts: Parts, given: Sequence[str], why: str) -> Restored:
    """Put dropped records back into the target; those that are restored already are left alone.

    Nothing is changed when one of them cannot be restored.  Raises UsageError when one was not dropped,
    StateError when it is not in the source any more.
    """
    head = _head(parts)
    this = new_run("restore")
    with parts.opened(RestoreLedger, this, _origin(parts, head)) as ledger:
        ledger.recover(parts.source, parts.target)
        dropped = [found for one in dict.fromkeys(given) if (found := _dropped(parts, one))]
        ledger.restore(dropped, why, parts.target)
        restored = Restored(this.name, [extended(id_of_row(one.row)) for one in dropped], len(given))
        ledger.close({**restored.as_json(), "exit_code": 0})
    return restored


def _head(parts: Parts) -> Head:
    head = parts.ledger_reader().head()
    if head is None:
        raise UsageError("there is no ledger beside the target yet: no run has been")
    return head


def _origin(parts: Parts, head: Head) -> Origin:
    """Return the source that the settings name; the rest, on which no reversal depends, is the ledger's."""
    return Origin(parts.source_name, head.recipe, head.digest, head.filter, head.places)


def _dropped(parts: Parts, given: str) -> Dropped | None:
    """Return the dropped record that a command line names, or None for one that is restored already."""
    reader, ids = parts.ledger_reader(), with_equals(readings(given))
    row = reader.row("dropped", ids)
    if row is None:
        _check_restored(parts, given, ids)
        return None
    raw_id = id_of_row(row)
    raw = parts.source.one(raw_id)
    if raw is None:
        raise StateError(f"{given} is not in {parts.source_name} any more; its keeper stands for it")
    return Dropped(row, raw)


def _check_restored(parts: Parts, given: str, ids: Sequence[bytes]) -> None:
    """Raise UsageError, with what the ledger knows, unless a record was restored and is in the target."""
    overridden = list(parts.ledger_reader().overrides(ids))
    if overridden and not parts.target.absent(overridden):
        return
    if overridden:
        raise UsageError(f"{given} was restored, and its run was undone since; the next run keeps it")
    answer = answer_of(parts, given)
    reason = f" ({answer['reason']})" if answer.get("reason") else ""
    raise UsageError(f"{given} was not dropped; the ledger says: {answer['verdict']}{reason}")
