"""Inspection: why two records match or not, and what the ledger says of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bson import decode

from dedup_job.errors import UsageError
from dedup_job.mongo.commit import check_fits
from dedup_job.mongo.ids import SHOWABLE, document, elements, extended, id_of, readings, with_equals
from dedup_job.mongo.overrides import Override
from dedup_job.mongo.rows import id_of_row
from dedup_job.parts import Parts
from dedup_job.report import explanation


@dataclass(frozen=True, slots=True)
class Found:
    """A record that a command line names, and the place where it is: source or target."""

    place: str
    id: bytes
    raw: bytes


def records_named(parts: Parts, given: str) -> list[Found]:
    """Return the record that a command line names, as it is in the source and as it is in the target."""
    found = [
        Found(place, raw_id, raw)
        for place, collection in (("source", parts.source), ("target", parts.target))
        for reading in readings(given)
        for found in collection.fetch([reading])
        for raw_id, raw in found.items()
    ]
    return [one for one in found if one.id == found[0].id]


def explained(parts: Parts, first: str, second: str) -> dict[str, Any]:
    """Return as JSON values why two records match or not; raises UsageError when one is nowhere."""
    head = parts.ledger_reader().head()
    if head:
        check_fits(head, parts.origin)
    one, other = (_first_found(parts, given) for given in (first, second))
    if one.id == other.id:
        raise UsageError(f"{first} and {second} are the same record; name two")
    with parts.engine() as engine:
        prints = engine.fingerprint([one.raw, other.raw])
    # A record that killed its worker is not touched here.
    read = [
        "" if reason else parts.recipe.reader.text(found.raw)
        for found, reason in zip((one, other), prints.reasons, strict=True)
    ]
    records = [
        explanation.Record(extended(found.id), found.place, text)
        for found, text in zip((one, other), read, strict=True)
    ]
    return explanation.as_json((records[0], records[1]), prints, parts.recipe)


def why(parts: Parts, given: str) -> dict[str, Any]:
    """Return what the ledger says of one record, as JSON values; raises UsageError when nobody knows it.

    What was dropped, unjudged or refused has a row of its own.  The plan that kept a unique record is found
    by walking the plans, which takes as long as a run needs to begin: minutes for tens of millions.
    """
    found = records_named(parts, given)
    ids = [found[0].id] if found else with_equals(readings(given))
    answer = _noted(parts, ids) or _planned(parts, ids)
    if answer is None:
        answer = _undecided(parts, _first_found(parts, given))
    places = [one.place for one in found]
    return {**answer, "in_source": "source" in places, "in_target": "target" in places}


def _first_found(parts: Parts, given: str) -> Found:
    for found in records_named(parts, given):
        return found
    raise UsageError(
        f"no record of {parts.source_name} or of the target has the id {given!r}; give an ObjectId's 24 "
        """digits, a text, or extended JSON as in '{"$oid": "..."}', 42, '"42"'"""
    )


def _noted(parts: Parts, ids: Sequence[bytes]) -> dict[str, Any] | None:
    """Return what a row of the ledger says; see the design of `dropped` and `exceptions`."""
    reader = parts.ledger_reader()
    overrides = reader.overrides(ids)
    for name in ("dropped", "exceptions"):
        if (row := reader.row(name, ids)) is None:
            continue
        about = decode(row, SHOWABLE)
        raw_id = id_of_row(row)
        answer = {"id": extended(raw_id), "verdict": about.pop("action", "duplicate")}
        if name == "dropped":
            answer |= _keeper_found(parts, _keeper(row))
        at = about["at"].isoformat(timespec="seconds")
        noted = {key: about[key] for key in about if key not in ("_id", "keeper")}
        return {**answer, **noted, "at": at, **_restored(overrides.get(raw_id))}
    return next((_overridden(parts, override) for override in overrides.values()), None)


def _overridden(parts: Parts, override: Override) -> dict[str, Any]:
    """Return what is known of a record that was dropped and then restored."""
    row = document(elements(override.id), elements(override.dropped))
    about = decode(row, SHOWABLE)
    noted = {key: about[key] for key in ("reason", "distance", "similarity", "run")}
    answer = {"id": extended(override.id), "verdict": "restored", **_keeper_found(parts, _keeper(row))}
    return {**answer, **noted, **_restored(override)}


def _restored(override: Override | None) -> dict[str, Any]:
    """Return what a person said of a record."""
    if override is None:
        return {}
    return {"restored": override.at.isoformat(timespec="seconds"), "restored_because": override.why or None}


def _keeper_found(parts: Parts, keeper: bytes) -> dict[str, Any]:
    return {"keeper": extended(keeper), "keeper_in_target": not parts.target.absent([keeper])}


def _keeper(row: bytes) -> bytes:
    """Return the keeper, as it is, of a row of `dropped`: the element behind `_id`."""
    rest = row[len(id_of(row)) - 1 : -1]
    return id_of(document(rest.replace(b"keeper\0", b"_id\0", 1)))


def _planned(parts: Parts, ids: Sequence[bytes]) -> dict[str, Any] | None:
    """Return what the plan says that decided a record."""
    reader = parts.ledger_reader()
    head = reader.head()
    for stored in reader.plans(head) if head else ():
        for raw_id in set(ids).intersection(stored.plan.ids):
            verdict = stored.plan.verdicts[stored.plan.ids.index(raw_id)]
            return {
                "id": extended(raw_id),
                "verdict": verdict.action.name.lower(),
                "reason": verdict.reason or None,
                "run": stored.run,
                "mode": stored.mode,
                "plan": stored.id.number,
                "at": stored.at.isoformat(timespec="seconds"),
            }
    return None


def _undecided(parts: Parts, found: Found) -> dict[str, Any]:
    """Say that a record was not decided, and why that may be: a filter, a run that broke off, an undo."""
    head = parts.ledger_reader().head()
    left = parts.ledger_reader().row("left", [found.id])
    return {
        "id": extended(found.id),
        "verdict": "undecided",
        "filter": parts.settings.source.filter if parts.settings.source.condition else None,
        "pending_plan": head.pending.number if head and head.pending else None,
        "undone_but_left": decode(left, SHOWABLE)["reason"] if left else None,
    }
