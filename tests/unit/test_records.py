from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.pipeline import job
from dedup_job.records import (
    COPYING_ACTIONS,
    UNIQUE,
    Action,
    Batch,
    Counts,
    Fingerprints,
    KeeperMatch,
    Plan,
    Promotions,
    Verdict,
    digests,
)

REASONS = st.sampled_from(["empty", "missing", "validator", "poison"])
VERDICTS = st.one_of(
    st.just(UNIQUE),
    st.sampled_from(["exact", "near"]).map(
        lambda why: Verdict(Action.DUPLICATE, why, KeeperMatch(b"k", 0, None))
    ),
    REASONS.map(lambda why: Verdict(Action.UNCHECKED, why)),
    REASONS.map(lambda why: Verdict(Action.REFUSED, why)),
)
COUNTS = st.lists(VERDICTS).map(Counts.of)


def test_a_batch_knows_its_records_and_their_bytes() -> None:
    batch = Batch([b"a", b"b"], [b"12345", b"678"])
    assert (len(batch), batch.nbytes) == (2, 8)


@given(st.lists(VERDICTS))
def test_every_verdict_is_counted_once(verdicts: list[Verdict]) -> None:
    counts = Counts.of(verdicts)
    unchecked, refused = sum(counts.unchecked.values()), sum(counts.refused.values())
    assert counts.read == len(verdicts) == counts.unique + counts.duplicate + unchecked + refused
    assert counts.unique == verdicts.count(UNIQUE)
    assert counts.near == sum(verdict.reason == "near" for verdict in verdicts)
    assert counts.exact == sum(verdict.reason == "exact" for verdict in verdicts)


def test_a_reason_is_counted_with_its_action() -> None:
    verdicts = [
        Verdict(Action.UNCHECKED, "empty"),
        Verdict(Action.REFUSED, "empty"),
        Verdict(Action.UNCHECKED, "empty"),
    ]
    counts = Counts.of(verdicts)
    assert (counts.unchecked, counts.refused) == ({"empty": 2}, {"empty": 1})


@given(st.lists(VERDICTS), st.lists(VERDICTS))
def test_counts_of_parts_add_up_to_the_counts_of_the_whole(
    first: list[Verdict], second: list[Verdict]
) -> None:
    assert Counts.of(first) + Counts.of(second) == Counts.of(first + second)


@given(COUNTS)
def test_no_counts_are_the_zero_of_addition(counts: Counts) -> None:
    assert counts + Counts() == Counts() + counts == counts


def test_joined_fingerprints_keep_every_column_in_order() -> None:
    parts = [Fingerprints.unchecked(reason, 2, 8, 0, reason.encode()) for reason in ("poison", "other")]
    joined = Fingerprints.join(parts)
    assert list(joined.reasons) == ["poison", "other"]
    assert (joined.bits.shape, joined.has_fingerprint.shape, len(joined.shingles)) == ((2, 2), (2,), 2)
    assert (joined.hashes == digests([b"poison", b"other"])).all()


def test_a_record_that_could_not_be_looked_at_takes_part_in_nothing() -> None:
    prints = Fingerprints.unchecked("poison", 1, 8, 0, b"raw")
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


REFUSED = Verdict(Action.REFUSED, "validator")
OLD = b"old"


def plan_of(texts: Sequence[int], verdicts: Sequence[Verdict]) -> Plan:
    """A plan of records 0, 1, 2 ... with these texts; equal numbers are equal texts."""
    n = len(texts)
    ids = [b"id%d" % row for row in range(n)]
    column = np.zeros((n, 1), np.uint64)
    texts_digests = digests(b"%d" % text for text in texts)
    return Plan(ids, verdicts, column, np.ones(n, bool), np.ones((n, 2), np.uint32), texts_digests, column)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans as `decide` makes them: duplicates point to an earlier unique record, or to an older plan's."""
    texts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    verdicts: list[Verdict] = []
    for row, text in enumerate(texts):
        kept = [earlier for earlier in range(row) if verdicts[earlier] is UNIQUE]
        same = [earlier for earlier in kept if texts[earlier] == text]
        choices = [
            Verdict(Action.UNCHECKED, "empty"),
            Verdict(Action.DUPLICATE, "near", KeeperMatch(OLD, 3, 0.9)),
        ]
        if same:
            choices = [Verdict(Action.DUPLICATE, "exact", KeeperMatch(b"id%d" % same[0], 0, 1.0))]
        else:
            choices += [UNIQUE] * 2
            choices += [
                Verdict(Action.DUPLICATE, "near", KeeperMatch(b"id%d" % keeper, 1, 0.9)) for keeper in kept
            ] * 2
        verdicts.append(draw(st.sampled_from(choices)))
    return plan_of(texts, verdicts)


@st.composite
def plans_with_losses(draw: st.DrawFn) -> tuple[Plan, dict[int, Verdict]]:
    plan = draw(plans())
    kept = plan.rows(Action.UNIQUE, Action.UNCHECKED)
    lost = draw(st.sets(st.sampled_from(kept))) if kept else set()
    return plan, dict.fromkeys(lost, REFUSED)


def keeper_of(verdict: Verdict) -> bytes | None:
    return verdict.match.keeper if verdict.match else None


@given(plans_with_losses())
def test_nothing_points_to_a_lost_keeper(drawn: tuple[Plan, dict[int, Verdict]]) -> None:
    plan, failed = drawn
    lost = {plan.ids[row] for row in failed}
    assert not lost & {keeper_of(verdict) for verdict in plan.without(failed).verdicts}


@given(plans_with_losses())
def test_every_keeper_in_the_plan_is_unique_and_earlier(drawn: tuple[Plan, dict[int, Verdict]]) -> None:
    plan, failed = drawn
    after = plan.without(failed)
    for row, verdict in enumerate(after.verdicts):
        keeper = keeper_of(verdict)
        if keeper not in (None, OLD):
            place = list(after.ids).index(keeper)
            assert place < row
            assert after.verdicts[place] is UNIQUE


@given(plans_with_losses())
def test_only_the_failed_and_their_duplicates_change(drawn: tuple[Plan, dict[int, Verdict]]) -> None:
    plan, failed = drawn
    lost = {plan.ids[row] for row in failed}
    for row, (before, after) in enumerate(zip(plan.verdicts, plan.without(failed).verdicts, strict=True)):
        if row in failed:
            assert after is failed[row]
        elif keeper_of(before) not in lost:
            assert after is before


@given(plans_with_losses())
def test_the_first_of_each_orphaned_text_is_promoted(drawn: tuple[Plan, dict[int, Verdict]]) -> None:
    plan, failed = drawn
    lost = {plan.ids[row] for row in failed}
    first: dict[bytes, bytes] = {}
    for row, (before, after) in enumerate(zip(plan.verdicts, plan.without(failed).verdicts, strict=True)):
        if row not in failed and keeper_of(before) in lost:
            text = plan.digests[row].tobytes()
            if text in first:
                assert after == Verdict(Action.DUPLICATE, "exact", KeeperMatch(first[text], 0, 1.0))
            else:
                assert after is UNIQUE
                first[text] = plan.ids[row]


@given(plans_with_losses())
def test_the_counts_still_add_up(drawn: tuple[Plan, dict[int, Verdict]]) -> None:
    plan, failed = drawn
    after = plan.without(failed)
    assert after.counts.read == plan.counts.read == len(plan)
    assert sum(after.counts.refused.values()) == len(failed)


@given(plans())
def test_without_nothing_a_plan_is_the_same(plan: Plan) -> None:
    assert plan.without({}).verdicts == plan.verdicts


def test_a_promoted_record_that_is_lost_too_is_promoted_on() -> None:
    near = Verdict(Action.DUPLICATE, "near", KeeperMatch(b"id0", 1, 0.9))
    plan = plan_of([0, 1, 1, 2], [UNIQUE, near, near, near])
    once = plan.without({0: REFUSED})
    copy = Verdict(Action.DUPLICATE, "exact", KeeperMatch(b"id1", 0, 1.0))
    assert once.verdicts == [REFUSED, UNIQUE, copy, UNIQUE]
    assert once.without({1: REFUSED}).verdicts == [REFUSED, REFUSED, UNIQUE, UNIQUE]


def test_what_comes_before_a_lost_record_relied_on_an_earlier_one_of_its_id() -> None:
    """The target had a record of that id before, which was adopted."""
    copy = Verdict(Action.DUPLICATE, "exact", KeeperMatch(b"id1", 0, 1.0))
    plan = plan_of([0, 1, 1], [copy, UNIQUE, copy])
    assert plan.without({1: REFUSED}).verdicts == [copy, REFUSED, UNIQUE]


def test_the_plan_itself_is_left_as_it_was() -> None:
    plan = plan_of([0, 0], [UNIQUE, Verdict(Action.DUPLICATE, "exact", KeeperMatch(b"id0", 0, 1.0))])
    plan.without({0: REFUSED})
    assert plan.verdicts[0] is UNIQUE
    assert plan.counts == Counts(unique=1, exact=1)


def test_rows_are_those_with_one_of_the_actions() -> None:
    plan = plan_of([0, 1, 2], [UNIQUE, Verdict(Action.UNCHECKED, "empty"), REFUSED])
    assert plan.rows(Action.UNIQUE, Action.REFUSED) == [0, 2]
    assert plan.rows(Action.DUPLICATE) == []


def without(plan: Plan, failed: Mapping[int, Verdict]) -> Plan:
    """The contract of one round, record by record."""
    lost, verdicts, promoted = set[bytes](), list(plan.verdicts), dict[bytes, bytes]()
    for row, verdict in enumerate(plan.verdicts):
        text = plan.digests[row].tobytes()
        if row in failed:
            verdicts[row] = failed[row]
            lost.add(plan.ids[row])
        elif keeper_of(verdict) in lost and text in promoted:
            verdicts[row] = Verdict(Action.DUPLICATE, "exact", KeeperMatch(promoted[text], 0, 1.0))
        elif keeper_of(verdict) in lost:
            promoted[text] = plan.ids[row]
            verdicts[row] = UNIQUE
    return replace(plan, verdicts=verdicts)


class Refusing:
    """A target that refuses some rows, and of those with one value all but the first that it takes."""

    def __init__(self, bad: set[int], values: Sequence[int]) -> None:
        self.bad, self.values = bad, values
        self.held: dict[int, int] = {}

    def insert(self, rows: Iterable[int]) -> dict[int, Verdict]:
        failed = {}
        for row in rows:
            if row in self.bad or self.held.setdefault(self.values[row], row) != row:
                failed[row] = REFUSED
        return failed


VALUES = st.lists(st.integers(0, 30), min_size=12, max_size=12)


@given(plans(), st.sets(st.integers(0, 11)), VALUES, st.sets(st.integers(0, 11)))
def test_trying_what_is_promoted_ends_as_inserting_the_whole_plan_again_in_each_round(
    plan: Plan, bad: set[int], values: list[int], gone_first: set[int]
) -> None:
    gone = {row: REFUSED for row in plan.rows(*COPYING_ACTIONS) if row in gone_first}
    whole, target = without(plan, gone), Refusing(bad, values)
    while failed := target.insert(whole.rows(*COPYING_ACTIONS)):
        whole = without(whole, failed)

    promotions, again = Promotions(plan), Refusing(bad, values)
    rows = sorted([row for row in plan.rows(*COPYING_ACTIONS) if row not in gone] + promotions.lose(gone))
    while failed := again.insert(rows):
        behind = promotions.next_candidates(rows)
        rows = promotions.lose(failed)
        assert not set(behind) & set(again.held.values())

    assert promotions.verdicts == list(whole.verdicts)
    assert again.held == target.held


@given(plans_with_losses())
def test_one_round_is_that_of_the_contract(drawn: tuple[Plan, dict[int, Verdict]]) -> None:
    plan, failed = drawn
    assert plan.without(failed).verdicts == without(plan, failed).verdicts


def test_a_round_looks_at_nothing_but_what_it_promotes() -> None:
    n = 5_000
    copy = Verdict(Action.DUPLICATE, "exact", KeeperMatch(b"id0", 0, 1.0))
    promotions = Promotions(plan_of([0] * n, [UNIQUE] + [copy] * (n - 1)))
    with mock.patch("dedup_job.records.Verdict", side_effect=Verdict) as made:
        for row in range(n - 1):
            assert promotions.lose({row: REFUSED}) == [row + 1]
        assert not made.called
        assert promotions.lose({n - 1: REFUSED}) == []
    assert promotions.verdicts == [REFUSED] * n


@given(plans(), st.sets(st.integers(0, 11)), st.integers(1, 60))
def test_a_plan_that_is_carried_out_in_parts_ends_as_one_that_is_carried_out_whole(
    plan: Plan, bad: set[int], nbytes: int
) -> None:
    refused = {b"id%d" % row for row in bad}
    parts: list[Plan] = []

    def commit(part: Plan, _: Sequence[bytes]) -> Plan:
        while failed := {row: REFUSED for row in part.rows(Action.UNIQUE) if part.ids[row] in refused}:
            part = part.without(failed)
        parts.append(part)
        return part

    raws = [b""] * len(plan)
    whole = commit(plan, raws)
    parts.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "PLAN_BYTES", nbytes)
        ended = job.commit_in_parts(plan, raws, commit)

    assert list(ended.verdicts) == list(whole.verdicts)
    assert [verdict for part in parts for verdict in part.verdicts] == list(whole.verdicts)
    assert [raw_id for part in parts for raw_id in part.ids] == list(plan.ids)
    for start, stop in plan.bounds(nbytes):
        assert stop - start == 1 or len(plan.part(start, stop).bounds(nbytes)) == 1


@pytest.mark.parametrize("nbytes", [1, 100])
def test_what_was_refused_beforehand_takes_nothing_from_the_adopted_record_of_its_id(nbytes: int) -> None:
    copy = Verdict(Action.DUPLICATE, "exact", KeeperMatch(b"id1", 0, 1.0))
    plan = plan_of([0, 1, 0], [copy, REFUSED, copy])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "PLAN_BYTES", nbytes)
        ended = job.commit_in_parts(plan, [b""] * 3, lambda part, _: part)
    assert list(ended.verdicts) == [copy, REFUSED, copy]
