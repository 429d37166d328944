"""Filters that match records only while the server still has them byte for byte.

A comparison on the server takes 7, 7.0 and a 64-bit 7 for equal.  Each filter therefore also names the types
of all numbers in its records.  It only cannot tell 0.0 from -0.0, one NaN from another, and decimals that
differ in trailing zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bson import encode
from bson.raw_bson import RawBSONDocument

from dedup_job.mongo.ids import (
    ARRAY,
    DECIMAL,
    DOCUMENT,
    DOUBLE,
    INT,
    LONG,
    SYMBOL,
    as_field,
    document,
    fields,
    portions,
    selector,
)
from dedup_job.records import RAW, chunked

# The schemas of types that the server compares by value, whatever the type; it compares symbols as strings.
NAMES = {DOUBLE: "double", INT: "int", LONG: "long", DECIMAL: "decimal", SYMBOL: "symbol"}
NUMBERS = {kind: encode({"bsonType": name}) for kind, name in NAMES.items()}
EMPTY = encode({})
NO_NAME = b"\0"
NESTED = (DOCUMENT, ARRAY)
# With longer lists the server takes longer for each record (measured with 1 kB: 35,000 records/s with 100 in
# a filter, 22,000 with 2,000, and 5,000 with a filter for each record).
RECORDS_IN_FILTER = 100
# Bytes of records in a filter, and in a command, which may have 16 MiB.
FILTER_BYTES, COMMAND_BYTES = 4 << 20, 8 << 20
# Bytes.  A longer record does not fit into a command beside the rest of it.
LONGEST = 8 << 20
# The server refuses commands with more than 180 levels, and `$jsonSchema` needs two for each of the record.
MOST_LEVELS = 60


def is_comparable(raw: bytes) -> bool:
    """Return whether a filter for a raw record fits into a command."""
    # Each level has a type byte of its own, and counting bytes is faster than parsing.
    most = raw.count(b"\x03") + raw.count(b"\x04")
    return len(raw) <= LONGEST and (most < MOST_LEVELS or _levels(raw) <= MOST_LEVELS)


def filters(
    records: Mapping[bytes, bytes], most: int = RECORDS_IN_FILTER
) -> Iterator[tuple[Mapping[str, Any], list[bytes]]]:
    """Yield filters that together match these records while they are unchanged, and the ids of each.

    Args:
        records: Raw records that are comparable, by raw id.
        most: Most records of a filter.
    """
    by_types: dict[bytes, list[bytes]] = {}
    for raw_id, raw in records.items():
        by_types.setdefault(_types(raw), []).append(raw_id)
    for types, ids in by_types.items():
        for some in chunked(ids, most):
            for portion in portions(some, FILTER_BYTES, lambda raw_id: len(records[raw_id])):
                yield _filter({raw_id: records[raw_id] for raw_id in portion}, types), portion


def filters_by_command(
    records: Mapping[bytes, bytes], most: int = RECORDS_IN_FILTER
) -> Iterator[list[tuple[Mapping[str, Any], list[bytes]]]]:
    """Yield what `filters` yields, in lists for one command each."""
    return portions(
        filters(records, most), COMMAND_BYTES, lambda found: sum(len(records[raw_id]) for raw_id in found[1])
    )


def value_of_each(values: Mapping[bytes, bytes]) -> Mapping[str, Any]:
    """Return the expression for the value of the record that a command is about.

    Args:
        values: A raw document for each record, by raw id.
    """
    ids = _literal(as_field(raw_id, str(place)) for place, raw_id in enumerate(values))
    documents = _literal(
        b"\x03" + str(place).encode() + b"\0" + raw for place, raw in enumerate(values.values())
    )
    # The server finds the place in a hash table of the ids.
    return {"$arrayElemAt": [documents, {"$indexOfArray": [ids, "$_id"]}]}


def _filter(records: Mapping[bytes, bytes], types: bytes) -> Mapping[str, Any]:
    """Return the filter for some records whose numbers have the same types."""
    same = {"$eq": ["$$ROOT", value_of_each(records)]}
    return {"$and": [selector(records), {"$expr": same}, {"$jsonSchema": RawBSONDocument(types, RAW)}]}


def _literal(array: Iterable[bytes]) -> RawBSONDocument:
    """Return the expression for an array of these raw elements, whose names are their positions."""
    return RawBSONDocument(document(b"\x04$literal\0" + document(*array)), RAW)


def _types(raw: bytes, is_array: bool = False) -> bytes:
    """Return the JSON schema that names the types of all numbers in a document or an array, as raw BSON.

    >>> from bson import decode, encode
    >>> decode(_types(encode({"_id": 7, "a": ["x", 2.5]})))["properties"]["a"]
    {'items': [{}, {'bsonType': 'double'}]}
    """
    schemas = dict[bytes, bytes]()
    for start, value, end in fields(raw):
        kind = raw[start]
        if kind in NUMBERS:
            schema = NUMBERS[kind]
        elif kind in NESTED:
            schema = _types(raw[value:end], is_array=kind == ARRAY)
        else:
            schema = EMPTY
        # Most fields end here: only in an array, the place of a schema counts.
        if schema == EMPTY and not is_array:
            continue
        name = raw[start + 1 : value]
        # The server finds no field without a name by its schema.
        if name != NO_NAME:
            # Of a field that a document has twice, the server compares the type of the first.
            schemas.setdefault(name, b"\x03" + name + schema)
    if all(schema.endswith(EMPTY) for schema in schemas.values()):
        return EMPTY
    keyword = b"\x04items\0" if is_array else b"\x03properties\0"
    return document(keyword + document(*schemas.values()))


def _levels(raw: bytes, most: int = MOST_LEVELS) -> int:
    """Return how many levels a document has; at most one more than `most`."""
    if most < 0:
        return 1
    inner = (raw[value:end] for start, value, end in fields(raw) if raw[start] in NESTED)
    return 1 + max((_levels(one, most - 1) for one in inner), default=0)
