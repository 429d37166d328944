from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.document import UNIQUE, Action, Batch, Counts, Fingerprints, Match, Verdict, digests

REASONS = st.sampled_from(["empty", "missing", "validator", "poison"])
VERDICTS = st.one_of(
    st.just(UNIQUE),
    st.sampled_from(["exact", "near"]).map(lambda why: Verdict(Action.DUPLICATE, why, Match(b"k", 0, None))),
    REASONS.map(lambda why: Verdict(Action.UNJUDGED, why)),
    REASONS.map(lambda why: Verdict(Action.REFUSED, why)),
)
COUNTS = st.lists(VERDICTS).map(Counts.of)


def test_a_batch_knows_its_records_and_their_bytes() -> None:
    batch = Batch([b"a", b"b"], [b"12345", b"678"])
    assert (len(batch), batch.nbytes) == (2, 8)


@given(st.lists(VERDICTS))
def test_every_verdict_is_counted_once(verdicts: list[Verdict]) -> None:
    counts = Counts.of(verdicts)
    unjudged, refused = sum(counts.unjudged.values()), sum(counts.refused.values())
    assert counts.read == len(verdicts) == counts.unique + counts.duplicate + unjudged + refused
    assert counts.unique == verdicts.count(UNIQUE)
    assert counts.near == sum(verdict.reason == "near" for verdict in verdicts)
    assert counts.exact == sum(verdict.reason == "exact" for verdict in verdicts)


def test_a_reason_is_counted_with_its_action() -> None:
    verdicts = [
        Verdict(Action.UNJUDGED, "empty"),
        Verdict(Action.REFUSED, "empty"),
        Verdict(Action.UNJUDGED, "empty"),
    ]
    counts = Counts.of(verdicts)
    assert (counts.unjudged, counts.refused) == ({"empty": 2}, {"empty": 1})


@given(st.lists(VERDICTS), st.lists(VERDICTS))
def test_counts_of_parts_add_up_to_the_counts_of_the_whole(
    first: list[Verdict], second: list[Verdict]
) -> None:
    assert Counts.of(first) + Counts.of(second) == Counts.of(first + second)


@given(COUNTS)
def test_no_counts_are_the_zero_of_addition(counts: Counts) -> None:
    assert counts + Counts() == Counts() + counts == counts


def test_joined_fingerprints_keep_every_column_in_order() -> None:
    parts = [Fingerprints.unjudged(reason, 2, 8, reason.encode()) for reason in ("poison", "other")]
    joined = Fingerprints.join(parts)
    assert list(joined.reasons) == ["poison", "other"]
    assert (joined.bits.shape, joined.has_fingerprint.shape, len(joined.shingles)) == ((2, 2), (2,), 2)
    assert (joined.hashes == digests([b"poison", b"other"])).all()


def test_a_record_that_could_not_be_looked_at_takes_part_in_nothing() -> None:
    prints = Fingerprints.unjudged("poison", 1, 8, b"raw")
    assert not prints.has_fingerprint.any()
    assert not prints.bits.any()
    assert len(prints.shingles[0]) == 0


@given(st.lists(st.binary()))
def test_digests_are_the_blake2b_of_each_value(values: list[bytes]) -> None:
    rows = digests(values)
    assert (rows.shape, rows.dtype) == ((len(values), 2), np.uint64)
    assert [row.tobytes() for row in rows] == [
        hashlib.blake2b(value, digest_size=16).digest() for value in values
    ]


def test_the_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        UNIQUE.reason = "near"  # type: ignore[misc]
