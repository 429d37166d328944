from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from bson import decode, encode
from bson.codec_options import CodecOptions
from bson.objectid import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.errors import StateError
from dedup_job.ledger.plan_format import (
    COLUMNS,
    Before,
    PlanId,
    StoredPlan,
    _raw_ids,
    pack,
    unpack,
    unpack_columns,
)
from dedup_job.mongo.ids import document
from dedup_job.records import UNIQUE, Action, Counts, KeeperMatch, Plan, PlanTexts, RawIds, Verdict
from tests.support.stored_plans import IDS, example, stored_plans

TIMED: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)


def as_values(stored: StoredPlan) -> tuple[Any, ...]:
    """A plan as values that can be compared."""
    plan = stored.plan
    arrays = (plan.bits, plan.has_fingerprint, plan.digests, plan.hashes, plan.keys)
    columns = [(array.dtype, array.tolist()) for array in arrays]
    place = (stored.id, stored.previous, stored.run, stored.mode, stored.at)
    return (*place, list(plan.ids), list(plan.verdicts), columns)


@given(stored_plans())
def test_a_plan_comes_back_from_the_ledger_as_it_went_in(stored: StoredPlan) -> None:
    packed = decode(encode(pack(stored)), CodecOptions(tz_aware=True))
    assert as_values(unpack(packed)) == as_values(stored)


@given(stored_plans())
def test_the_columns_of_a_plan_are_those_of_its_texts(stored: StoredPlan) -> None:
    columns, plan = unpack_columns(pack(stored)), stored.plan
    assert (columns.id, columns.previous, columns.mode) == (stored.id, stored.previous, stored.mode)
    assert list(columns.ids) == list(plan.ids)
    assert as_columns(columns.texts) == as_columns(plan.texts)


FIRST = st.binary(min_size=1, max_size=4)


def as_columns(texts: PlanTexts) -> tuple[Any, ...]:
    arrays = (texts.bits, texts.has_fingerprint, texts.keys, texts.digests, texts.is_kept)
    arrays += () if texts.ranks is None else (texts.ranks,)
    return list(texts.ids), [(array.dtype, array.shape, array.tolist()) for array in arrays]


def test_what_could_not_be_judged_is_no_text() -> None:
    column, keys = np.arange(6, dtype=np.uint64).reshape(3, 2), np.ones((3, 1), np.uint32)
    digests = np.array([[1, 0], [0, 0], [2, 2]], np.uint64)
    verdicts = [Verdict(Action.REFUSED, "validator"), Verdict(Action.UNCHECKED, "empty"), UNIQUE]
    plan = Plan([b"a", b"b", b"c"], verdicts, column, np.ones(3, bool), keys, digests, column)
    assert (list(plan.texts.ids), plan.texts.is_kept.tolist()) == ([b"a", b"c"], [False, True])


@given(st.lists(IDS | st.binary(min_size=12, max_size=12).map(lambda raw: encode({"_id": ObjectId(raw)}))))
def test_ids_that_are_joined_are_found_again(ids: list[bytes]) -> None:
    assert list(_raw_ids(b"".join(ids), len(ids))) == ids


def test_ids_of_many_lengths_whose_mean_is_that_of_the_first_are_found_again() -> None:
    ids = [document(b"\x02_id\0\x04\0\0\0abc\0"), document(b"\x10_id\0" + bytes(4))]
    ids.append(document(b"\x02_id\0\x07\0\0\0abcdef\0"))
    ids = [ids[0], *ids, ids[1]]
    assert list(_raw_ids(b"".join(ids), len(ids))) == ids


@given(st.lists(st.binary(min_size=3, max_size=3) | st.binary(max_size=4), max_size=6), FIRST)
def test_ids_sort_by_their_bytes(ids: list[bytes], first: bytes) -> None:
    alike = [raw_id for raw_id in ids if len(raw_id) == len(first)]
    for some in (ids, alike):
        assert list(RawIds.of(some).not_before(first)) == [raw_id for raw_id in some if raw_id >= first]


@given(stored_plans())
def test_packing_again_gives_the_same_document(stored: StoredPlan) -> None:
    packed = pack(stored)
    assert pack(unpack(packed)) == packed


@given(stored_plans(), st.data())
def test_a_flipped_bit_is_noticed(stored: StoredPlan, data: st.DataObject) -> None:
    packed = pack(stored)
    name = data.draw(st.sampled_from([name for name in COLUMNS if packed[name]]))
    place = data.draw(st.integers(0, len(packed[name]) - 1))
    damaged = bytearray(packed[name])
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(StateError, match="of the ledger is damaged"):
        unpack({**packed, name: bytes(damaged)})
    with pytest.raises(StateError, match="of the ledger is damaged"):
        unpack_columns({**packed, name: bytes(damaged)})


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_was_cut_short_is_noticed(name: str) -> None:
    packed = pack(example())
    with pytest.raises(StateError, match="damaged"):
        unpack({**packed, name: packed[name][:-1]})


@pytest.mark.parametrize("name", [*COLUMNS, "run", "mode", "at", "reason_names", "sha256"])
def test_a_part_that_is_lost_is_noticed(name: str) -> None:
    packed = pack(example())
    del packed[name]
    with pytest.raises(StateError, match="of the ledger is damaged"):
        unpack(packed)


def test_bytes_that_move_between_columns_are_noticed() -> None:
    packed = pack(example())
    moved = {"digests": packed["digests"] + packed["hashes"][:8], "hashes": packed["hashes"][8:]}
    with pytest.raises(StateError):
        unpack({**packed, **moved})


@pytest.mark.parametrize(
    "change", [{"reason_names": ["", "exact"]}, {"run": "another"}, {"mode": "sync"}, {"until": b""}]
)
def test_a_field_that_was_changed_is_noticed(change: dict[str, Any]) -> None:
    packed = pack(example())
    with pytest.raises(StateError):
        unpack({**packed, **change})


def test_a_plan_of_the_largest_batch_fits_into_one_document() -> None:
    n, verdict = 5_000, Verdict(Action.DUPLICATE, "near", KeeperMatch(encode({"_id": "k" * 1_000}), 64, 0.5))
    column = np.zeros((n, 2), np.uint64)
    ids, keys = [encode({"_id": "i" * 1_000})] * n, np.zeros((n, 20), np.uint32)
    plan = Plan(ids, [verdict] * n, column, np.ones(n, bool), keys, column, column)
    stored = StoredPlan(PlanId(0, 0), None, "run", "run", datetime(2026, 1, 2, tzinfo=UTC), plan)
    assert len(encode(pack(stored))) < 16 << 20


def test_plans_sort_by_their_number_first() -> None:
    assert list(PlanId(5, 2, 1).key) == ["number", "fence", "version"]
    assert PlanId.read(PlanId(5, 2, 1).key) == PlanId(5, 2, 1)


def test_a_plan_says_what_was_decided_of_its_records_before() -> None:
    stored = example()
    count = len(stored.plan)
    hashes = np.arange(2 * count, dtype=np.uint64).reshape(count, 2) * np.uint64(9)
    hashes[0] = 0
    before = Before(np.arange(count, dtype=np.uint32), hashes, Counts(unique=count))

    read = unpack(decode(encode(pack(replace(stored, before=before))), TIMED)).before

    assert read is not None
    assert (read.numbers.tolist(), read.hashes.tolist()) == (before.numbers.tolist(), hashes.tolist())
    assert (read.counts, read.hash_of(0), read.hash_of(1)) == (before.counts, None, hashes[1].tobytes())


def test_a_plan_without_some_of_its_records_still_says_how_far_it_went() -> None:
    stored = example()
    first, last = stored.plan.ids[0], stored.plan.ids[-1]

    rest = unpack(decode(encode(pack(stored.without({last}))), TIMED))
    nothing = unpack(decode(encode(pack(rest.without(set(stored.plan.ids)))), TIMED))

    assert (list(rest.plan.ids), rest.last_id) == (list(stored.plan.ids[:-1]), last)
    assert (list(nothing.plan.ids), nothing.last_id) == ([], last)
    assert len(unpack_columns(pack(nothing)).texts) == 0
    assert stored.without({b"another"}) is stored
    assert first in rest.plan.ids


def test_only_the_hash_that_is_expected_is_replaced() -> None:
    stored = example()
    old, new = stored.plan.hashes[0].tobytes(), bytes(range(16))
    ids = stored.plan.ids

    changed = stored.with_hashes({ids[0]: (old, new), ids[-1]: (new, old)})

    assert changed.plan.hashes[0].tobytes() == new
    assert changed.plan.hashes[1:].tolist() == stored.plan.hashes[1:].tolist()
