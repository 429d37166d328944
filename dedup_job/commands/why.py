"""Why: what the ledger says of one record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bson import decode

from dedup_job.commands.context import Context
from dedup_job.commands.named import NamedRecord, record_named, records_named
from dedup_job.document import digest
from dedup_job.ledger.overrides import Override
from dedup_job.ledger.rows import id_of_row, keeper_of_row
from dedup_job.ledger.stored_plan import StoredPlan
from dedup_job.mongo.raw_documents import document, elements
from dedup_job.mongo.shown_ids import SHOWABLE, extended, readings, with_equals
from dedup_job.plan import ADOPT


def why(context: Context, given: str) -> dict[str, Any]:
    """Return what the ledger says of one record, as JSON values; raises UsageError when nobody knows it.

    What was dropped, unjudged or refused has a row of its own, which names its plan; that says what the
    record was like.  The plan that kept a unique record is found by walking the plans, which takes as long as
    a run needs to begin: minutes for tens of millions.
    """
    found = records_named(context, given)
    ids = [found[0].id] if found else with_equals(readings(given))
    answer, row = _noted(context, ids)
    planned = _planned(context, ids) if row is None else _plan_of_row(context, row)
    if row is None:
        answer = _decided(*planned) if planned else _undecided(context, record_named(context, given))
    places = {one.place: one.raw for one in found}
    changed = {"changed_since": True} if planned and _is_changed(*planned, places.get("source")) else {}
    return {**answer, **changed, "in_source": "source" in places, "in_target": "target" in places}


def _noted(context: Context, ids: Sequence[bytes]) -> tuple[dict[str, Any], bytes | None]:
    """Return what a row of `dropped` or `exceptions` says, or said before a restore; and the row."""
    reader = context.ledger_reader()
    overrides = reader.overrides(ids)
    for name in ("dropped", "exceptions"):
        if (row := reader.row(name, ids)) is None:
            continue
        about = decode(row, SHOWABLE)
        raw_id = id_of_row(row)
        answer = {"id": extended(raw_id), "verdict": about.pop("action", "duplicate")}
        if name == "dropped":
            answer |= _keeper_found(context, keeper_of_row(row))
        at = about["at"].isoformat(timespec="seconds")
        noted = {key: about[key] for key in about if key not in ("_id", "keeper")}
        return {**answer, **noted, "at": at, **_restored(overrides.get(raw_id))}, row
    for override in overrides.values():
        return _overridden(context, override), _row_before(override)
    return {}, None


def _overridden(context: Context, override: Override) -> dict[str, Any]:
    """Return what is known of a record that was dropped and then restored."""
    row = _row_before(override)
    about = decode(row, SHOWABLE)
    noted = {key: about[key] for key in ("reason", "distance", "similarity", "run")}
    answer = {
        "id": extended(override.id),
        "verdict": "restored",
        **_keeper_found(context, keeper_of_row(row)),
    }
    return {**answer, **noted, **_restored(override)}


def _restored(override: Override | None) -> dict[str, Any]:
    """Return what a person said of a record."""
    if override is None:
        return {}
    return {"restored": override.at.isoformat(timespec="seconds"), "restored_because": override.why or None}


def _keeper_found(context: Context, keeper: bytes) -> dict[str, Any]:
    return {"keeper": extended(keeper), "keeper_in_target": not context.target.absent([keeper])}


def _planned(context: Context, ids: Sequence[bytes]) -> tuple[StoredPlan, int] | None:
    """Return the plan that decided a record, and the row."""
    reader = context.ledger_reader()
    head = reader.head()
    for stored in reader.plans(head) if head else ():
        for raw_id in set(ids).intersection(stored.plan.ids):
            return stored, stored.plan.ids.index(raw_id)
    return None


def _row_before(override: Override) -> bytes:
    """Return the row of `dropped` that a restored record had."""
    return document(elements(override.id), elements(override.dropped))


def _plan_of_row(context: Context, row: bytes) -> tuple[StoredPlan, int] | None:
    """Return the plan that a row of `dropped` or `exceptions` tells of, and the record's place in it."""
    about, raw_id = decode(row, SHOWABLE), id_of_row(row)
    for stored in context.ledger_reader().plans_of(about["run"], about["at"]):
        if raw_id in stored.plan.ids:
            return stored, stored.plan.ids.index(raw_id)
    return None


def _decided(stored: StoredPlan, row: int) -> dict[str, Any]:
    """Return what a plan says that decided a record."""
    verdict = stored.plan.verdicts[row]
    return {
        "id": extended(stored.plan.ids[row]),
        "verdict": verdict.action.name.lower(),
        "reason": verdict.reason or None,
        "run": stored.run,
        "mode": stored.mode,
        "plan": stored.id.number,
        "at": stored.at.isoformat(timespec="seconds"),
    }


def _is_changed(stored: StoredPlan, row: int, raw: bytes | None) -> bool:
    """Return whether the source has a record, but not as it was judged (where that is known)."""
    if raw is None or stored.mode == ADOPT or stored.plan.verdicts[row].reason == "changed":
        return False
    return bool(digest(raw) != stored.plan.hashes[row].tobytes())


def _undecided(context: Context, found: NamedRecord) -> dict[str, Any]:
    """Say that a record was not decided, and why that may be: a filter, a run that broke off, an undo."""
    head = context.ledger_reader().head()
    left = context.ledger_reader().row("left", [found.id])
    return {
        "id": extended(found.id),
        "verdict": "undecided",
        "filter": context.settings.source.filter if context.settings.source.condition else None,
        "pending_plan": head.pending.number if head and head.pending else None,
        "undone_but_left": decode(left, SHOWABLE)["reason"] if left else None,
    }
