from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from bson import decode, encode
from pymongo.database import Database

from dedup_job.mongo.id_lookup import PIECE_BYTES, RecordsById
from dedup_job.text.fields import TextFields
from tests.support.job import retrying

MEGABYTE = 1 << 20


@pytest.fixture
def lookup(database: Database[Any]) -> RecordsById:
    return RecordsById(retrying(database["pages"]))


def ids(values: Iterable[object]) -> list[bytes]:
    return [encode({"_id": value}) for value in values]


def sizes(piece: Mapping[bytes, bytes]) -> int:
    return sum(map(len, piece.values()))


def test_large_records_come_a_few_megabytes_at_a_time_and_each_once(lookup: RecordsById) -> None:
    lookup.collection.unretried.insert_many({"_id": n, "body": "x" * 3 * MEGABYTE} for n in range(20))
    pieces = list(lookup.fetch(ids(range(20))))
    assert [raw_id for piece in pieces for raw_id in piece] == ids(range(20))
    assert max(map(sizes, pieces)) < PIECE_BYTES + 4 * MEGABYTE


def test_a_record_larger_than_a_piece_is_a_piece_of_its_own(lookup: RecordsById) -> None:
    lookup.collection.unretried.insert_many({"_id": n, "body": "x" * 15 * MEGABYTE} for n in range(3))
    assert [list(piece) for piece in lookup.fetch(ids(range(3)))] == [[raw_id] for raw_id in ids(range(3))]


def test_small_records_come_in_one_piece_and_those_that_are_missing_not_at_all(lookup: RecordsById) -> None:
    lookup.collection.unretried.insert_many({"_id": n} for n in range(0, 1_000, 2))
    assert [list(piece) for piece in lookup.fetch(ids(range(1_000)))] == [ids(range(0, 1_000, 2))]
    assert list(lookup.fetch(ids(["elsewhere"]))) == list(lookup.fetch([])) == []


def test_a_record_that_only_the_server_takes_for_the_one_asked_for_is_none_and_ends_no_search(
    lookup: RecordsById,
) -> None:
    values = [0.0, 1.0, 2, 3.0, 4]
    lookup.collection.unretried.insert_many({"_id": value, "body": "x" * 50} for value in values)
    for nbytes in (1, PIECE_BYTES):
        found = [raw_id for piece in lookup.fetch(ids(range(5)), nbytes=nbytes) for raw_id in piece]
        assert found == ids([2, 4])
    assert lookup.present(ids(range(5))) == ids(values)


def test_a_record_that_is_deleted_between_two_pieces_is_left_out(lookup: RecordsById) -> None:
    lookup.collection.unretried.insert_many({"_id": n, "body": "x" * 50} for n in range(3))
    pieces = lookup.fetch(ids(range(3)), nbytes=1)
    assert list(next(pieces)) == ids([0])
    lookup.collection.delete_one({"_id": 1})
    assert [list(piece) for piece in pieces] == [ids([2])]


def test_only_the_fields_of_the_text_are_asked_for(lookup: RecordsById) -> None:
    record = {"_id": 1, "title": "t", "pages": [{"body": "b"}, {"body": "c"}], "html": "x" * MEGABYTE}
    lookup.collection.unretried.insert_one(record)
    fields = TextFields(("pages.1.body", "title", "pages.0.body"))
    [piece] = lookup.fetch(ids([1]), fields.names)
    assert {name for raw in piece.values() for name in decode(raw)} == {"_id", "title", "pages"}
    assert fields.text_of(piece[ids([1])[0]]) == fields.text_of(encode(record)) == "c\nt\nb"


def test_a_field_that_cannot_be_asked_for_by_name_comes_with_its_whole_record(lookup: RecordsById) -> None:
    record = {"_id": 1, "$text": "t", "html": "x"}
    lookup.collection.unretried.insert_one(record)
    assert list(lookup.fetch(ids([1]), TextFields(("$text",)).names)) == [{ids([1])[0]: encode(record)}]


def test_what_is_absent_is_told_by_the_ids_alone(lookup: RecordsById) -> None:
    lookup.collection.unretried.insert_many({"_id": n} for n in range(3))
    assert lookup.absent(ids(range(5))) == set(ids([3, 4]))
    assert lookup.absent([]) == set()
