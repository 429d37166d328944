from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Int64, ObjectId, encode
from bson.decimal128 import Decimal128
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.mongo.ids import document, elements
from dedup_job.text.fields import ExtractedText, TextFields, Utf8Texts
from dedup_job.within.group_values import group_digest

FIELDS = TextFields(("text",), ("site", "page.lang"))

EQUAL = [
    (1, 1.0),
    (1, Int64(1)),
    (1, Decimal128("1")),
    (1, Decimal128("1.000")),
    (0, -0.0),
    (2.0**53 + 2, 2**53 + 2),
    (-(2.0**63), -(2**63)),
    (2.0**63, Decimal128(str(2**63))),
    (1e22, Decimal128("1E+22")),
    (Decimal128("-1E+19"), Decimal128("-10000000000000000000.0")),
    (Decimal128("1E+6144"), Decimal128("1" + "0" * 33 + "E+6111")),
    ([1, {"a": 2}], [1.0, {"a": Int64(2)}]),
    ({"a": 1}, RawBSONDocument(encode({"a": 1.0}))),
]
DIFFERENT = [
    (1, "1"),
    (1, True),
    (0, None),
    ("", None),
    ("a", "A"),
    ("a", b"a"),
    (0.5, Decimal128("0.5")),
    (2.0**63, Decimal128(str(2**63 + 1))),
    (1e23, Decimal128("1E+23")),
    (float("inf"), Decimal128("Infinity")),
    (float("inf"), Decimal128("1E+6000")),
    (Decimal128("1E+6000"), Decimal128("1E+6001")),
    (Decimal128("10000000000000000000"), Decimal128("10000000000000000000.5")),
    ([1, 2], [2, 1]),
    (["a"], "a"),
    ([], None),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (ObjectId("0" * 24), "0" * 24),
    (datetime(1970, 1, 1, tzinfo=UTC), 0),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_values_have_one_digest(one: Any, other: Any) -> None:
    assert group_digest([one]) == group_digest([other])


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_values_have_different_digests(one: Any, other: Any) -> None:
    assert group_digest([one]) != group_digest([other])


@given(st.integers(2**63, 10**34 - 1), st.integers(0, 40), st.sampled_from([1, -1]))
def test_whole_numbers_beyond_64_bits_are_equal_if_they_are_the_same_number(
    digits: int, zeros: int, sign: int
) -> None:
    number, near = sign * digits * 10**zeros, float(sign * digits * 10**zeros)
    decimal = Decimal128(f"{sign * digits}E+{zeros}")
    assert (group_digest([near]) == group_digest([decimal])) == (int(near) == number)


def test_values_do_not_change_places() -> None:
    assert len({group_digest(values) for values in (["a", "b"], ["b", "a"], ["ab"], ["a", "b", None])}) == 4


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), Decimal128("NaN"), Decimal128("1E+6000"), 2**63 - 1]
)
def test_odd_numbers_are_equal_to_themselves(number: Any) -> None:
    assert group_digest([number]) == group_digest([number])


def group_of(record: dict[str, Any]) -> ExtractedText:
    (extracted,) = FIELDS.texts_of([encode(record)])
    return extracted


def test_missing_is_equal_to_null_and_a_document_on_the_way_may_be_missing_too() -> None:
    records = [{}, {"site": None}, {"page": {}}, {"page": None}, {"page": 3}, {"page": {"lang": None}}]
    assert {group_of({"text": "x", **record}).group for record in records} == {group_digest([None, None])}
    given = group_of({"text": "x", "site": "a", "page": {"lang": "zh"}})
    assert given.group == group_digest(["a", "zh"])


def test_a_record_whose_group_is_unclear_is_not_judged() -> None:
    assert group_of({"text": "x", "page": [{"lang": "zh"}]}).reason == "group_in_list"
    twice = document(elements(encode({"text": "x", "site": "a"})), elements(encode({"site": "b"})))
    assert FIELDS.texts_of([twice])[0].reason == "field_twice"


def test_a_missing_text_is_named_before_an_unclear_group() -> None:
    assert group_of({"page": [{"lang": "zh"}]}).reason == "missing"


def test_the_fields_of_the_group_are_requested_too() -> None:
    assert FIELDS.names == ("text", "site", "page")
    assert TextFields(("text",), ("$site",)).names == ()


def test_a_text_of_a_program_has_its_group_before_it() -> None:
    texts = Utf8Texts(("text",), ("group",))
    assert texts.texts_of([b"g" * 16 + "文".encode()]) == [ExtractedText("文", group=b"g" * 16)]
    assert texts.text_of(b"g" * 16 + b"x") == "x"
