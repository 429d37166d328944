"""`why`: show the decision on a record, and its keeper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bson import decode

from dedup_job.commands.record_lookup import NamedRecord, find_record, find_versions
from dedup_job.ledger.overrides import Override
from dedup_job.ledger.plan_format import StoredPlan
from dedup_job.ledger.rows_on_records import DecisionRow
from dedup_job.mongo.ids import SHOWABLE, extended, readings, with_equals
from dedup_job.pipeline.command_context import Context
from dedup_job.records import ADOPT, digest


def why(context: Context, given: str) -> dict[str, Any]:
    """Return the decision on a record as JSON values.

    A dropped, unchecked or refused record has its own row, which names its plan.  A unique record has no row:
    its plan is found by reading all plans, which takes minutes for tens of millions of records.

    Args:
        context: The open connections.
        given: Id of the record, as on a command line.

    Raises:
        UsageError: If neither source, target nor ledger have the record.
    """
    records = find_versions(context, given)
    ids = [records[0].id] if records else with_equals(readings(given))
    answer, decision = _find_row(context, ids)
    reader = context.ledger_reader()
    if decision is not None:
        plan_and_row = _find_plan(reader.plans_of(decision.run, decision.at), [decision.id])
    else:
        head = reader.head()
        plan_and_row = _find_plan(reader.plans(head) if head else (), ids)
        if plan_and_row is not None:
            answer = _describe_plan(context, *plan_and_row)
        else:
            answer = _describe_undecided(context, find_record(context, given))
    raws = {record.place: record.raw for record in records}
    has_changed = plan_and_row is not None and _is_changed(*plan_and_row, raws.get("source"))
    return {
        **answer,
        **({"changed_since": True} if has_changed else {}),
        "in_source": "source" in raws,
        "in_target": "target" in raws if context.target.holds_copies else None,
        **({"in_archive": True} if "archive" in raws else {}),
    }


def _find_row(context: Context, ids: Sequence[bytes]) -> tuple[dict[str, Any], DecisionRow | None]:
    """Return the JSON values of a record's row, and the decision; for a restored record of its former row."""
    reader = context.ledger_reader()
    overrides = reader.overrides(ids)
    for name in ("dropped", "exceptions"):
        if (row := reader.row(name, ids)) is None:
            continue
        decision, about = DecisionRow.read(row), decode(row, SHOWABLE)
        answer = {"id": extended(decision.id), "verdict": decision.verdict}
        if decision.keeper is not None:
            answer |= _describe_keeper(context, decision.keeper)
        hidden = ("_id", "action", "keeper", "plan", "rank")
        rest = {key: about[key] for key in about if key not in hidden}
        at = decision.at.isoformat(timespec="seconds")
        return {**answer, **rest, "at": at, **_describe_restore(overrides.get(decision.id))}, decision
    for override in overrides.values():
        decision = DecisionRow.read(override.dropped_row)
        assert decision.keeper is not None
        answer = {
            "id": extended(override.id),
            "verdict": "restored",
            **_describe_keeper(context, decision.keeper),
            "reason": decision.reason,
            "distance": decision.distance,
            "similarity": decision.similarity,
            "run": decision.run,
            **_describe_restore(override),
        }
        return answer, decision
    return {}, None


def _describe_restore(override: Override | None) -> dict[str, Any]:
    if override is None:
        return {}
    return {"restored": override.at.isoformat(timespec="seconds"), "restored_because": override.why or None}


def _describe_keeper(context: Context, keeper: bytes) -> dict[str, Any]:
    return {"keeper": extended(keeper), "keeper_in_target": not context.target.absent([keeper])}


def _find_plan(plans: Iterable[StoredPlan], ids: Sequence[bytes]) -> tuple[StoredPlan, int] | None:
    """Return the plan that decided a record with one of these ids, and the record's row in it."""
    for stored in plans:
        for raw_id in set(ids).intersection(stored.plan.ids):
            return stored, stored.plan.ids.index(raw_id)
    return None


def _describe_plan(context: Context, stored: StoredPlan, row: int) -> dict[str, Any]:
    """Return a plan's decision on a record, as JSON values."""
    verdict = stored.plan.verdicts[row]
    matched: dict[str, Any] = {}
    # A dropped record whose row somebody deleted from the ledger.
    if match := verdict.match:
        matched = _describe_keeper(context, match.keeper)
        matched |= {"distance": match.distance, "similarity": match.similarity}
    return {
        "id": extended(stored.plan.ids[row]),
        "verdict": verdict.action.name.lower(),
        **matched,
        "reason": verdict.reason or None,
        "run": stored.run,
        "mode": stored.mode,
        "plan": stored.id.number,
        "at": stored.at.isoformat(timespec="seconds"),
    }


def _is_changed(stored: StoredPlan, row: int, raw: bytes | None) -> bool:
    """Return whether the source has another version of a record than the version that was judged."""
    # Adopted records came from the target, and a record that changed during its run was not judged at all.
    if raw is None or stored.mode == ADOPT or stored.plan.verdicts[row].reason == "changed":
        return False
    return digest(raw) != stored.plan.hash_of(row)


def _describe_undecided(context: Context, record: NamedRecord) -> dict[str, Any]:
    """Return why a record may be undecided: a filter, an interrupted run, or an undo."""
    head = context.ledger_reader().head()
    left = context.ledger_reader().row("left", [record.id])
    return {
        "id": extended(record.id),
        "verdict": "undecided",
        "filter": context.settings.source.filter if context.settings.source.condition else None,
        "pending_plan": head.pending.number if head and head.pending else None,
        "undone_but_left": decode(left, SHOWABLE)["reason"] if left else None,
    }
