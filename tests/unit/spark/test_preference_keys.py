from __future__ import annotations

import numpy as np
import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.preference_ranks import BEST, best_first

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
from dedup_job.spark.preference_keys import preference_keys, ranks_in

IDS = st.one_of(st.integers(-5, 5), st.floats(-2, 2), st.text(max_size=2), st.binary(max_size=2))
RANKS = st.tuples(*[st.sampled_from([0, 1, 2, 255, 256, BEST - 1])] * 2)


@given(st.lists(st.tuples(IDS, RANKS), max_size=12, unique_by=lambda one: encode({"_id": one[0]})))
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
