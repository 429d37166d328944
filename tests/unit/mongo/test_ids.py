from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from bson import decode, encode
from bson.binary import Binary
from bson.code import Code
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.mongo import ids as module
from dedup_job.mongo.compare_stored_with_sent import has_empty_time, is_unchanged
from dedup_job.mongo.ids import IdSet, as_field, document, elements, id_of, selector, split, value

IDS = st.lists(st.integers(0, 30).map(lambda number: b"%d" % number), max_size=12)


@given(st.lists(IDS, max_size=4), IDS)
def test_missing_are_those_that_no_plan_decided(chunks: list[list[bytes]], ids: list[bytes]) -> None:
    known = {raw_id for chunk in chunks for raw_id in chunk}
    assert IdSet.of(chunks).missing(ids) == [raw_id for raw_id in ids if raw_id not in known]


@given(st.lists(IDS, max_size=4), IDS)
def test_ids_whose_hashes_begin_alike_are_told_apart(chunks: list[list[bytes]], ids: list[bytes]) -> None:
    """With 64-bit halves that collide all the time, the other half decides."""

    def colliding(values: list[bytes]) -> np.ndarray:
        return np.array([(int(value) % 3, int(value)) for value in values], np.uint64).reshape(-1, 2)

    known = {raw_id for chunk in chunks for raw_id in chunk}
    original = module.digests
    module.digests = colliding
    try:
        assert IdSet.of(chunks).missing(ids) == [raw_id for raw_id in ids if raw_id not in known]
    finally:
        module.digests = original


def test_nothing_decided_means_everything_is_missing() -> None:
    assert IdSet().missing([b"1", b"2"]) == [b"1", b"2"]
    assert not len(IdSet())
    assert not len(IdSet.of([]))


def test_each_id_takes_sixteen_bytes() -> None:
    decided = IdSet.of([[b"%d" % number for number in range(100)], [b"x"]])
    assert len(decided) == 101
    assert decided._sorted.nbytes == 101 * 16


@given(st.lists(IDS, max_size=4), IDS)
def test_every_id_is_either_missing_or_among_them(chunks: list[list[bytes]], ids: list[bytes]) -> None:
    decided = IdSet.of(chunks)
    assert decided.among(ids) == set(ids) - set(decided.missing(ids))


ELEMENT = {  # raw values that Python's encoder does not write
    "symbol": b"\x0e_id\0\x04\0\0\0abc\0",
    "undefined": b"\x06_id\0",
    "dbpointer": b"\x0c_id\0\x04\0\0\0a.b\0" + bytes(range(12)),
    "nan with a payload": b"\x01_id\0\x01\0\0\0\0\0\xf8\x7f",
    "invalid utf-8": b"\x02_id\0\x03\0\0\0\xff\xfe\0",
    "date after the year 9999": b"\x09_id\0" + (2**62).to_bytes(8, "little"),
    "old binary": b"\x05_id\0\x07\0\0\0\x02\x03\0\0\0abc",
}
VALUES: list[Any] = [
    None, True, False, 0, -1, 2**31 - 1, Int64(7), 2**62, 1.5, float("nan"), float("inf"), -0.0,
    Decimal128("1.10"), "", "文", "a\0b", ObjectId(b"0" * 12), datetime(2026, 1, 2, tzinfo=UTC),
    Timestamp(1, 2), Binary(b"", 0), Binary(b"xyz", 128), Binary.from_uuid(uuid.UUID(int=5)), Regex("a", "i"),
    re.compile(""), Code("f"), Code("f", {"a": 1}), MinKey(), MaxKey(), {}, {"_id": 1}, {"$gt": ""},
    {"a": {"b": [1]}}, DBRef("c", 1), [], [1, "x"],
]  # fmt: skip
RAW_IDS = [encode({"_id": one}) for one in VALUES] + [document(element) for element in ELEMENT.values()]
ANY_ID = pytest.mark.parametrize("raw_id", RAW_IDS, ids=[*map(repr, VALUES), *ELEMENT])


@ANY_ID
def test_the_id_of_a_record_is_its_first_element_as_a_document(raw_id: bytes) -> None:
    assert id_of(document(elements(raw_id), elements(encode({"text": "x", "n": 1})))) == raw_id
    assert id_of(raw_id) == raw_id


@ANY_ID
def test_an_id_is_found_behind_any_other_field(raw_id: bytes) -> None:
    """The server keeps `_id` first, but a view or an old file need not."""
    for other in RAW_IDS:
        record = document(as_field(other, "a"), elements(raw_id), elements(encode({"_idx": 1})))
        assert id_of(record) == raw_id


@ANY_ID
def test_an_id_under_another_name_has_the_same_value(raw_id: bytes) -> None:
    renamed = as_field(raw_id, "keeper")
    assert renamed[0] == raw_id[4]
    assert renamed[1:8] == b"keeper\0"
    assert renamed[8:] == elements(raw_id)[5:]


def test_a_record_without_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="without _id"):
        id_of(encode({"text": "x", "id": 1}))


@given(st.lists(st.sampled_from(RAW_IDS)))
def test_ids_joined_end_to_end_come_apart_again(ids: list[bytes]) -> None:
    assert list(split(b"".join(ids))) == ids


@given(st.lists(st.sampled_from(RAW_IDS), max_size=20))
def test_a_selector_holds_every_id_unchanged(ids: list[bytes]) -> None:
    raw = selector(ids).raw
    (operator,) = (elements(raw)[5:],)
    assert operator[4:9] == b"\x04$in\0"
    rest = elements(operator)[5:]
    assert rest == document(*(as_field(raw_id, str(i)) for i, raw_id in enumerate(ids)))


def test_a_selector_is_what_pymongo_would_send() -> None:
    ids = [3, "x", {"$gt": ""}, None]
    raw = selector(encode({"_id": one}) for one in ids).raw
    assert decode(raw) == {"_id": {"$in": ids}}
    assert raw == encode({"_id": {"$in": ids}})


@pytest.mark.parametrize("one", [7, "文", None, ObjectId(b"0" * 12)])
def test_people_read_an_id_as_python_has_it(one: Any) -> None:
    assert value(encode({"_id": one})) == one


def test_equal_numbers_of_different_types_have_different_bytes() -> None:
    assert len({encode({"_id": one}) for one in (1, 1.0, Int64(1), Decimal128("1"))}) == 4


FIELDS = st.dictionaries(
    st.sampled_from("abc"),
    st.sampled_from(
        [0, Timestamp(0, 0), Timestamp(5, 6), "\x11\0\0", b"\x11a" + bytes(9), {"t": Timestamp(0, 0)}, []]
    ),
)


def as_inserted(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the server stores of a record: a top-level timestamp of nothing becomes the time."""
    stamped = Timestamp(1_760_000_000, 3)
    return {
        name: stamped if name != "_id" and field == Timestamp(0, 0) else field
        for name, field in record.items()
    }


def test_a_megabyte_that_looks_like_names_of_times_is_searched_once() -> None:
    """A search from each of its bytes to its end would take hours."""
    likely = encode({"_id": 1, "value": b"\x11" * (1 << 20), "number": 0.0})

    assert not has_empty_time(likely)
    assert has_empty_time(encode({"_id": 1, "value": b"\x11" * (1 << 20), "at": Timestamp(0, 0)}))


@given(FIELDS, st.sampled_from([1, Timestamp(0, 0)]))
def test_a_record_has_arrived_when_nothing_differs_but_times_that_the_server_sets(
    fields: dict[str, Any], raw_id: Any
) -> None:
    record = {"_id": raw_id, **fields}
    sent, stored = encode(record), encode(as_inserted(record))
    assert is_unchanged(sent, sent)
    assert is_unchanged(sent, stored)
    assert has_empty_time(sent) == (sent != stored)
    for name in fields:
        assert not is_unchanged(sent, encode({**as_inserted(record), name: "other"}))
    assert not is_unchanged(sent, encode({**record, "_id": 2}))
    assert not is_unchanged(
        encode({**record, "_id": Timestamp(0, 0)}), encode({**record, "_id": Timestamp(1, 0)})
    )


def test_an_id_that_is_nested_deeper_than_a_server_stores_is_read_as_a_string_only() -> None:
    def nested(levels: int) -> str:
        return '{"a":' * levels + "1" + "}" * levels

    deepest, deeper, deepest_of_all = nested(180), nested(181), nested(3_000)
    as_document, as_string = module.readings(deepest)
    assert (value(as_document)["a"]["a"].raw[4], value(as_string)) == (module.DOCUMENT, deepest)
    assert list(map(value, module.readings(deeper))) == [deeper]
    assert list(map(value, module.readings(deepest_of_all))) == [deepest_of_all]
