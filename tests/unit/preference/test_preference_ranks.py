from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from bson import Decimal128, Int64, ObjectId, encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.preference.preference_ranks import (
    BEST,
    MISSING,
    best_first,
    count_kinds,
    pack_rank,
    preference_keys,
    rank_records,
    ranks_in,
    unpack_ranks,
)
from dedup_job.preference.preference_rule import PreferRule

NANS = [Decimal128("NaN"), Decimal128("sNaN"), Decimal128("-sNaN")]
LENGTH, SCORE = PreferRule("longest"), PreferRule("descending", "meta.score")
NUMBERS = st.one_of(
    st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.integers(-9, 9).map(lambda n: n / 4)
)


def rank_of(value: Any, rule: PreferRule) -> int:
    raw = encode({"_id": 1, "meta": {"score": value}})
    return int(rank_records([raw], [0], [rule])[0, 0])


@given(NUMBERS, NUMBERS)
def test_the_greater_number_is_better_and_with_ascending_the_smaller(one: float, other: float) -> None:
    better, worse = max(float(one), float(other)), min(float(one), float(other))
    ranks = [rank_of(value, SCORE) for value in (better, worse)]
    assert (ranks[0] > ranks[1]) == (better > worse)
    ascending = PreferRule("ascending", "meta.score")
    ranks = [rank_of(value, ascending) for value in (better, worse)]
    assert (ranks[0] < ranks[1]) == (better > worse)


def test_numbers_of_all_types_are_compared_by_value() -> None:
    values = [-1.5, Int64(-1), 0, Decimal128("0.5"), 1, Decimal128("7"), 2**40]
    ranks = [rank_of(value, SCORE) for value in values]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)
    assert rank_of(-0.0, SCORE) == rank_of(0, SCORE)


@pytest.mark.parametrize("order", ["descending", "ascending", "newest", "oldest"])
@pytest.mark.parametrize("value", [None, "7", True, float("nan"), *NANS, [1], {"a": 1}, b"x"])
def test_a_value_of_another_type_counts_as_missing_and_loses(order: str, value: Any) -> None:
    rule = PreferRule(order, "meta.score")
    assert rank_of(value, rule) == MISSING
    right = 0 if order in ("descending", "ascending") else datetime(1, 1, 1, tzinfo=UTC)
    assert MISSING < rank_of(right, rule) < BEST


def test_dates_and_the_times_of_object_ids_are_compared() -> None:
    early, late = datetime(1900, 5, 1, tzinfo=UTC), datetime(2024, 5, 1, tzinfo=UTC)
    newest, oldest = (PreferRule(order, "meta.score") for order in ("newest", "oldest"))
    assert rank_of(late, newest) > rank_of(early, newest)
    assert rank_of(late, oldest) < rank_of(early, oldest)
    assert rank_of(7, newest) == MISSING
    raws = [
        encode({"_id": ObjectId.from_datetime(time)}) for time in (datetime(2020, 1, 1), datetime(2024, 1, 1))
    ]
    ranks = rank_records([*raws, encode({"_id": 7})], [0] * 3, [PreferRule("newest")])[:, 0]
    assert ranks[1] > ranks[0] > ranks[2] == MISSING


def test_a_record_that_cannot_be_read_has_no_value() -> None:
    assert rank_records([b"\x05\0\0\0\0", b"broken"], [3, 4], [LENGTH, SCORE]).tolist() == [[3, 0], [4, 0]]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=9))
def test_records_are_sorted_by_the_first_rule_then_the_next_then_the_id(rows: list[tuple[int, int]]) -> None:
    ids = [encode({"_id": 300 - number}) for number in range(len(rows))]
    order = best_first(np.array(rows, np.uint64), ids).tolist()
    assert order == sorted(range(len(rows)), key=lambda row: (-rows[row][0], -rows[row][1], -row))


@given(st.lists(st.tuples(st.integers(0, BEST), st.integers(0, BEST)), max_size=5))
def test_packed_ranks_sort_like_ranks_and_are_unpacked(rows: list[tuple[int, int]]) -> None:
    ranks = np.array(rows, np.uint64).reshape(-1, 2)
    packed = [pack_rank(rank) for rank in ranks]
    assert sorted(packed) == [pack_rank(np.array(row, np.uint64)) for row in sorted(rows)]
    assert unpack_ranks(packed, 2).tolist() == ranks.tolist()


def test_kinds_are_counted_for_the_guard() -> None:
    raws = [encode({"_id": n, "meta": {"score": value}}) for n, value in enumerate((1, 2.5, "x", None, [1]))]
    counted = count_kinds([*raws, encode({"_id": 9})], SCORE)
    assert counted == Counter({"number": 2, "text": 1, "nothing": 2, "list": 1})


KEY_IDS = st.one_of(st.integers(-5, 5), st.floats(-2, 2), st.text(max_size=2), st.binary(max_size=2))
KEY_RANKS = st.tuples(*[st.sampled_from([0, 1, 2, 255, 256, BEST - 1])] * 2)


@given(st.lists(st.tuples(KEY_IDS, KEY_RANKS), max_size=12, unique_by=lambda one: encode({"_id": one[0]})))
def test_keys_sort_records_as_one_machine_does_and_hold_their_ranks(
    records: list[tuple[object, tuple[int, ...]]],
) -> None:
    ids = [encode({"_id": one}) for one, _ in records]
    ranks = np.array([rank for _, rank in records], np.uint64).reshape(-1, 2)
    keys = preference_keys(ids, ranks, 0)
    assert sorted(range(len(ids)), key=keys.__getitem__) == best_first(ranks, ids).tolist()
    assert ranks_in(keys, 2).tolist() == ranks.tolist()


def test_reference_records_come_first_in_the_order_in_which_they_are_read() -> None:
    ids = [encode({"_id": number}) for number in (3, 2, 1)]
    references = preference_keys(ids, np.full((3, 1), BEST, np.uint64), 7)
    others = preference_keys(ids, np.full((3, 1), BEST - 1, np.uint64), 1 << 40)
    assert sorted([*others, *references]) == [*references, *others[::-1]]


def test_without_rules_keys_are_empty_and_a_record_without_a_rank_has_zeros() -> None:
    assert preference_keys([b"a", b"b"], None, 0) == [b"", b""]
    assert ranks_in([b""], 2).tolist() == [[0, 0]]
