from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.mongo import id_set as module
from dedup_job.mongo.id_set import IdSet

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
