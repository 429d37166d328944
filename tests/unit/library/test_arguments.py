from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bson import ObjectId, encode
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.audit.audit_database import as_id, as_key
from tests.support.stored_plans import IDS

SORTED: list[st.SearchStrategy[Any]] = [
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1).map(Int64),
    st.floats(0, allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC)),
]


@given(IDS | st.one_of(SORTED).map(lambda value: encode({"_id": value})))
def test_a_key_gives_its_id_back(given_id: bytes) -> None:
    assert as_id(as_key(given_id)) == given_id


@given(st.sets(IDS))
def test_different_ids_have_different_keys(ids: set[bytes]) -> None:
    assert len({as_key(one) for one in ids}) == len(ids)


@given(st.one_of(st.lists(values, max_size=9) for values in SORTED))
def test_keys_sort_as_ids_of_one_type_do_on_the_server(values: list[Any]) -> None:
    def in_order(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value

    ids = [encode({"_id": value}) for value in sorted(values, key=in_order)]
    assert [as_key(one) for one in ids] == sorted(map(as_key, ids))
