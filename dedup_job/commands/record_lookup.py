"""Look up the records that a user names, and the keepers of dropped records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bson import encode

from dedup_job.commands.find import read_lines
from dedup_job.errors import UsageError
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows_on_records import DecisionRow
from dedup_job.ledger.settings_fit_ledger import check_fits, no_decisions_error
from dedup_job.mongo.id_lookup import RecordsById, RecordsInTurn
from dedup_job.mongo.ids import extended, readings
from dedup_job.pipeline.command_context import Context, RecordLookup
from dedup_job.records import Unchecked, chunked
from dedup_job.text.fields import TextFields

# Ledger rows whose texts are fetched together.
ROWS_AT_ONCE = 200
# Characters of a text that are searched for differences.
BEGINNING = 10_000


def open_ledger_reader(context: Context) -> LedgerReader:
    """Return the ledger; raise ConfigError if nothing was decided, or with another recipe or source."""
    reader = context.ledger_reader()
    head = reader.head()
    if head is None or head.is_empty:
        raise no_decisions_error(context.target_name)
    check_fits(head, context.origin)
    return reader


def read_portions(pages: Iterator[list[bytes]]) -> Iterator[list[DecisionRow]]:
    """Decode raw rows; yield at most 200 at a time, so that their texts can be fetched together."""
    for page in pages:
        for rows in chunked(page, ROWS_AT_ONCE):
            yield list(map(DecisionRow.read, rows))


def fetch_duplicates(context: Context, ids: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    """Yield the ids and texts of these records of the source, or of its archive.

    The text of a record without a text is "(reason)".
    """
    return _fetch_texts(context, context.dropped_records, ids)


def fetch_beginnings(context: Context, ids: Iterable[bytes]) -> dict[bytes, str]:
    """Return the first characters of the texts that `fetch_duplicates` yields, by id."""
    return {raw_id: text[:BEGINNING] for raw_id, text in fetch_duplicates(context, list(ids))}


def fetch_keepers(context: Context, ids: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    """Yield the ids and texts of the kept records that exist, preferably from the target."""
    return _fetch_texts(context, RecordsInTurn(context.target, context.source), ids)


def _fetch_texts(
    context: Context, records: RecordLookup, ids: Sequence[bytes]
) -> Iterator[tuple[bytes, str]]:
    reader = context.recipe.reader
    for portion in records.fetch(list(dict.fromkeys(ids)), reader.fields.names):
        for raw_id, extracted in zip(portion, reader.extract([*portion.values()]), strict=True):
            yield raw_id, extracted.text or f"({extracted.reason})"


def fetch_groups(context: Context, ids: Sequence[bytes]) -> dict[bytes, dict[str, Any]]:
    """Return the values of the fields in `[match] within` of source records, as JSON values by path."""
    fields = context.recipe.reader.fields
    if not fields.within:
        return {}
    portions = context.source.fetch(list(dict.fromkeys(ids)), fields.names)
    return {raw_id: group_json(fields, raw) for portion in portions for raw_id, raw in portion.items()}


def group_json(fields: TextFields, raw: bytes) -> dict[str, Any]:
    """Return the values of the fields in `[match] within` as JSON values, by path; {} if they are unclear."""
    try:
        values = fields.group_values(raw)
    except Unchecked:
        return {}
    return {path: extended(encode({"_id": value})) for path, value in zip(fields.within, values, strict=True)}


@dataclass(frozen=True, slots=True)
class NamedRecord:
    """A record that a command line names.

    Attributes:
        place: Where it was found: "source", "target" or "archive".
        id: Its raw id.
        raw: The raw record.
    """

    place: str
    id: bytes
    raw: bytes


def find_versions(context: Context, given: str) -> list[NamedRecord]:
    """Return the versions of a record in the source, the target and the archive; empty if there is none."""
    places: dict[str, RecordsById] = {"source": context.source, "target": context.target}
    if context.archive_for_lookups is not None:
        places["archive"] = context.archive_for_lookups.records
    records = [
        NamedRecord(place, raw_id, raw)
        for place, collection in places.items()
        for reading in readings(given)
        # The record 7.0 is meant by 7, too.
        for portion in collection.fetch(collection.present([reading]))
        for raw_id, raw in portion.items()
    ]
    # The id 42 may be read as a number or as a text; the first reading that exists is meant.
    return [record for record in records if record.id == records[0].id]


def find_record(context: Context, given: str) -> NamedRecord:
    """Return a record, preferably from the source; raise UsageError if it does not exist."""
    for record in find_versions(context, given):
        return record
    raise UsageError(
        f"no record of {context.source_name} or of the target has the id {given!r}; give an ObjectId's 24 "
        """digits, a text, or extended JSON as in '{"$oid": "..."}', 42, '"42"'"""
    )


def read_ids(descriptor: int) -> list[str]:
    """Read ids from an open file, one per line, written as on a command line.

    Raises:
        UsageError: If a line is not UTF-8, or too long for an id.
    """
    ids = list[str]()
    for lines in read_lines(descriptor):
        for line in lines:
            if line is None:
                raise UsageError("standard input has a line that is too long for an id")
            try:
                ids.append(line.decode("utf-8-sig").strip())
            except UnicodeDecodeError:
                raise UsageError("standard input is not in UTF-8") from None
    return [given for given in ids if given]
