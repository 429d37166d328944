"""Look up the records that a command line names: by an ObjectId's digits, extended JSON, or a text."""

from __future__ import annotations

from dataclasses import dataclass

from dedup_job.commands.context import Context
from dedup_job.errors import UsageError
from dedup_job.mongo.shown_ids import readings


@dataclass(frozen=True, slots=True)
class NamedRecord:
    """A record that a command line names.

    Attributes:
        place: Where it was found: "source" or "target".
        id: Its raw id.
        raw: The raw record.
    """

    place: str
    id: bytes
    raw: bytes


def records_named(context: Context, given: str) -> list[NamedRecord]:
    """Return the versions of a record in the source and in the target; none where it does not exist."""
    records = [
        NamedRecord(place, raw_id, raw)
        for place, collection in (("source", context.source), ("target", context.target))
        for reading in readings(given)
        for portion in collection.fetch([reading])
        for raw_id, raw in portion.items()
    ]
    # The id 42 may be read as a number or as a text; the first reading that exists is meant.
    return [record for record in records if record.id == records[0].id]


def record_named(context: Context, given: str) -> NamedRecord:
    """Return a record, preferably from the source; raise UsageError if it does not exist."""
    for record in records_named(context, given):
        return record
    raise UsageError(
        f"no record of {context.source_name} or of the target has the id {given!r}; give an ObjectId's 24 "
        """digits, a text, or extended JSON as in '{"$oid": "..."}', 42, '"42"'"""
    )
