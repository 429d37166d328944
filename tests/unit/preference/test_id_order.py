from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, encode

from dedup_job.preference.id_order import tie_key

NANS = [Decimal128("NaN"), Decimal128("sNaN"), Decimal128("-sNaN")]


@pytest.mark.parametrize(
    "values",
    [
        [-(2**40), -1.5, -1, 0, 0.5, 1, 255, 256, 2**40, Int64(2**60)],
        ["", "a", "aa", "b", "天"],
        [datetime(1960, 1, 1), datetime(1971, 1, 1), datetime(2024, 1, 1)],
        [ObjectId("0" * 24), ObjectId("0" * 23 + "1"), ObjectId("f" * 24)],
        [Decimal128("-1E400"), -1e300, Decimal128("0.1"), 0.1, 2**53, Int64(2**53 + 1), Decimal128("1E400")],
    ],
)
def test_ids_of_one_type_are_sorted_as_on_the_server(values: list[Any]) -> None:
    keys = [tie_key(encode({"_id": value})) for value in values]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_ids_that_are_no_unicode_or_no_number_have_a_place_too() -> None:
    texts, names = encode({"_id": {"a": "xyz"}}), encode({"_id": {"xyz": 1}})
    odd = [texts.replace(b"xyz", b"x\xffz"), names.replace(b"xyz", b"x\xffz")]
    assert len({tie_key(raw_id) for raw_id in (texts, names, *odd)}) == 4
    nans = [encode({"_id": nan}) for nan in NANS]
    assert max(map(tie_key, nans)) < tie_key(encode({"_id": float("-inf")}))
