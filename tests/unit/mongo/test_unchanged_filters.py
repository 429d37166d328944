from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from bson import Code, Decimal128, Int64, ObjectId, Regex, encode
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from dedup_job.mongo.ids import document, elements, id_of
from dedup_job.mongo.unchanged_filters import LONGEST, MOST_LEVELS, RECORDS_IN_FILTER, filters, is_comparable
from tests.support.bson_types import raw_ids
from tests.support.job import RAW


def insert(database: Database[Any], raws: Iterable[bytes]) -> dict[bytes, bytes]:
    """Insert raw records, and return them as the server has them."""
    pages = database["pages"].with_options(RAW)
    pages.insert_many(map(RawBSONDocument, raws))
    return {id_of(bytes(one.raw)): bytes(one.raw) for one in pages.find()}


def matched(database: Database[Any], records: dict[bytes, bytes]) -> set[bytes]:
    pages = database["pages"].with_options(RAW)
    return {bytes(one.raw) for condition, _ in filters(records) for one in pages.find(condition, {"_id": 1})}


def test_unchanged_records_of_every_type_are_matched(database: Database[Any]) -> None:
    values = b"".join(
        elements(raw_id).replace(b"_id\0", b"f%03d\0" % place, 1) for place, raw_id in enumerate(raw_ids())
    )
    nested = document(b"\x04list\0" + document(b"\x030\0" + document(values)), b"\x10\0\1\0\0\0")
    twice = document(b"\x10a\0\1\0\0\0", b"\x01a\0" + bytes(8), b"\x10$b\0\1\0\0\0", b"\x10c.d\0\1\0\0\0")
    records = insert(
        database,
        [document(elements(raw_id), values, elements(nested), elements(twice)) for raw_id in raw_ids()],
    )

    assert matched(database, records) == set(records)


def test_many_records_are_matched_whatever_their_types(database: Database[Any]) -> None:
    forms: list[Any] = [1, 1.0, Int64(1), "1", [1, 2.0], {"a": [Int64(1)]}, None]
    records = insert(
        database, (encode({"_id": n, "a": forms[n % len(forms)]}) for n in range(5 * RECORDS_IN_FILTER))
    )

    assert matched(database, records) == set(records)
    assert max(len(ids) for _, ids in filters(records)) <= RECORDS_IN_FILTER
    assert sum(len(ids) for _, ids in filters(records)) == len(records)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (7, 7.0),
        (7, Int64(7)),
        (7.0, Int64(7)),
        (7.0, Decimal128("7")),
        ([1, 2], [1, 2.0]),
        ([[1], {"x": 2}], [[1], {"x": Int64(2)}]),
        ({"x": {"y": 1.0}}, {"x": {"y": Int64(1)}}),
        ("a", "A"),
        ("a", "a "),
        (None, 0),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}),
        ([], {}),
        (True, 1),
        ("x", ["x"]),
        (Regex("a"), Regex("a", "i")),
        (Code("f"), "f"),
    ],
)
def test_a_record_that_changed_in_any_way_is_not_matched(
    database: Database[Any], before: Any, after: Any
) -> None:
    records = insert(database, [encode({"_id": 1, "a": before, "b": 5})])

    database["pages"].update_one({"_id": 1}, {"$set": {"a": after}})

    assert matched(database, records) == set()
    database["pages"].update_one({"_id": 1}, {"$set": {"a": before}})
    assert matched(database, records) == set(records)


@pytest.mark.parametrize("change", [{"$set": {"z": None}}, {"$unset": {"a": ""}}, {"$rename": {"a": "aa"}}])
def test_a_field_more_or_fewer_is_a_change(database: Database[Any], change: dict[str, Any]) -> None:
    records = insert(database, [encode({"_id": ObjectId(), "a": None})])

    database["pages"].update_one({}, change)

    assert matched(database, records) == set()


def test_deep_and_long_records_are_matched_up_to_a_limit(database: Database[Any]) -> None:
    def deep(levels: int) -> bytes:
        nested: Any = 1
        for level in range(levels - 1):
            nested = [nested] if level % 2 else {"a": nested}
        return encode({"_id": levels, "a": nested})

    long = encode({"_id": "long", "a": "x" * (LONGEST - 100)})
    records = insert(database, [deep(MOST_LEVELS), long])

    assert all(map(is_comparable, records.values()))
    assert matched(database, records) == set(records)
    assert not is_comparable(deep(MOST_LEVELS + 1))
    assert not is_comparable(encode({"_id": 1, "a": "x" * LONGEST}))
