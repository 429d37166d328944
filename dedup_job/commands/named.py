"""Records that a command line names: by an ObjectId's digits, extended JSON of the id, or a text."""

from __future__ import annotations

from dataclasses import dataclass

from dedup_job.commands.context import Context
from dedup_job.errors import UsageError
from dedup_job.mongo.shown_ids import readings


@dataclass(frozen=True, slots=True)
class NamedRecord:
    """A record that a command line names, and the place where it is: source or target."""

    place: str
    id: bytes
    raw: bytes


def records_named(context: Context, given: str) -> list[NamedRecord]:
    """Return the record that a command line names, as it is in the source and as it is in the target."""
    found = [
        NamedRecord(place, raw_id, raw)
        for place, collection in (("source", context.source), ("target", context.target))
        for reading in readings(given)
        for found in collection.fetch([reading])
        for raw_id, raw in found.items()
    ]
    return [one for one in found if one.id == found[0].id]


def record_named(context: Context, given: str) -> NamedRecord:
    """Return the first of them; raises UsageError when it is nowhere."""
    for found in records_named(context, given):
        return found
    raise UsageError(
        f"no record of {context.source_name} or of the target has the id {given!r}; give an ObjectId's 24 "
        """digits, a text, or extended JSON as in '{"$oid": "..."}', 42, '"42"'"""
    )
