from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from bson import ObjectId, encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.records import UNIQUE, Action, KeeperMatch, Plan, Verdict
from dedup_job.report import sampled_pairs_and_groups as module
from dedup_job.report.sampled_pairs_and_groups import (
    MEMBERS,
    Evidence,
    LargestGroups,
    evidence_json,
    evidence_text,
)


def near(keeper: bytes, similarity: float | None = 0.9) -> Verdict:
    return Verdict(Action.DUPLICATE, "near", KeeperMatch(keeper, 2, similarity))


def exact(keeper: bytes) -> Verdict:
    return Verdict(Action.DUPLICATE, "exact", KeeperMatch(keeper, 0, 1.0))


def observed(
    evidence: Evidence, verdicts: Sequence[Verdict], first: int = 0, ids: Sequence[bytes] = ()
) -> Evidence:
    n = len(verdicts)
    ids, column = ids or [b"%d" % (first + row) for row in range(n)], np.zeros((n, 2), np.uint64)
    plan = Plan(ids, verdicts, column, np.ones(n, bool), np.ones((n, 8), np.uint32), column, column)
    evidence.observe(plan)
    return evidence


@given(st.integers(0, 5), st.integers(0, 40))
def test_a_sample_is_of_the_size_asked_for(samples: int, seen: int) -> None:
    evidence = observed(Evidence(samples, 0), [near(b"k")] * seen)
    pairs = evidence.pairs()
    assert len(pairs) == min(samples, seen)
    assert len({pair.duplicate for pair in pairs}) == len(pairs)


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=6))
def test_the_sample_is_in_the_order_of_decision(samples: int, chunks: list[int]) -> None:
    evidence, first = Evidence(samples, 0), 0
    for n in chunks:
        observed(evidence, [near(b"k")] * n, first)
        first += n
    numbers = [int(pair.duplicate) for pair in evidence.pairs()]
    assert numbers == sorted(numbers)


def test_every_pair_is_as_likely_to_be_in_the_sample() -> None:
    """400 runs of 1 sample out of 10: each is drawn 40 times on average, 6 standard deviations are 36."""
    drawn = np.zeros(10, int)
    for seed in range(400):
        evidence = Evidence(1, 0)
        evidence._near._random.seed(seed)
        drawn[int(observed(evidence, [near(b"k")] * 10).pairs()[0].duplicate)] += 1
    assert drawn.sum() == 400
    assert drawn.min() > 4
    assert drawn.max() < 76


def test_two_dry_runs_show_the_same_sample() -> None:
    first, second = (observed(Evidence(3, 3), [near(b"k%d" % i) for i in range(50)]) for _ in range(2))
    assert first.pairs() == second.pairs()


def test_what_was_not_dropped_is_no_evidence() -> None:
    evidence = observed(
        Evidence(5, 5), [UNIQUE, Verdict(Action.UNCHECKED, "empty"), Verdict(Action.REFUSED, "x")]
    )
    assert (evidence.pairs(), evidence.groups()) == ([], [])


def test_groups_are_the_keepers_of_the_most_duplicates() -> None:
    verdicts = [exact(b"a"), near(b"b"), near(b"b"), exact(b"c"), exact(b"b"), exact(b"c")]
    assert observed(Evidence(0, 2), verdicts).groups() == [(b"b", 3), (b"c", 2)]


def test_a_great_group_is_found_among_more_keepers_than_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_COUNT", 10)
    evidence = Evidence(0, 1)
    for number in range(100):
        observed(evidence, [exact(b"great"), exact(b"small%d" % number)])
    assert evidence.groups() == [(b"great", 100)]
    assert len(evidence.largest._sizes) <= 10


def test_a_group_that_begins_late_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the keepers that are counted all have two duplicates, a new one must still get its chance."""
    monkeypatch.setattr(module, "LARGEST_COUNT", 10)
    evidence = observed(Evidence(0, 1), [exact(b"early%d" % (i // 2)) for i in range(40)])
    observed(evidence, [exact(b"late")] * 50, first=100)
    assert evidence.groups()[0][0] == b"late"


ID, KEEPER = encode({"_id": {"page": "0"}}), encode({"_id": ObjectId("0123456789abcdef01234567")})
TEXTS = {ID: "copy text", KEEPER: "keeper text"}


def shown(*verdicts: Verdict, samples: int = 1, groups: int = 1) -> dict:
    evidence = observed(Evidence(samples, groups), verdicts, ids=[ID] * len(verdicts))
    return evidence_json(evidence, lambda ids: {raw_id: TEXTS[raw_id] for raw_id in ids if raw_id in TEXTS})


def test_json_shows_both_texts_of_a_pair() -> None:
    assert shown(near(KEEPER, 0.912345)) == {
        "pairs": [
            {
                "duplicate": {"page": "0"},
                "keeper": {"$oid": "0123456789abcdef01234567"},
                "reason": "near",
                "distance": 2,
                "similarity": 0.9123,
                "duplicate_text": "copy text",
                "keeper_text": "keeper text",
            }
        ],
        "groups": [{"keeper": {"$oid": "0123456789abcdef01234567"}, "duplicates": 1, "text": "keeper text"}],
    }


def test_people_read_the_same() -> None:
    lines = evidence_text(shown(near(KEEPER))).splitlines()
    assert '  {"page": "0"} for 0123456789abcdef01234567: distance 2, similarity 0.90' in lines
    assert "    - copy text" in lines
    assert "    + keeper text" in lines
    assert "  0123456789abcdef01234567 is the keeper of 1 more: keeper text" in lines


def test_texts_that_were_not_compared_have_no_similarity() -> None:
    values = shown(near(KEEPER, None), groups=0)
    assert values["pairs"][0]["similarity"] is None
    assert "similarity" not in evidence_text(values)


def test_a_match_that_was_found_by_its_text_alone_has_no_distance() -> None:
    text = evidence_text(shown(Verdict(Action.DUPLICATE, "near", KeeperMatch(KEEPER, None, 0.9)), groups=0))
    assert "for 0123456789abcdef01234567" in text
    assert "similarity 0.90" in text
    assert "None" not in text


def test_a_record_that_is_gone_is_shown_without_its_text() -> None:
    values = shown(near(encode({"_id": "gone"})))
    assert values["pairs"][0]["keeper_text"] == values["groups"][0]["text"] == ""


def test_nothing_dropped_leaves_nothing_to_show() -> None:
    assert evidence_text(shown(samples=5, groups=5)) == ""


def counted(most: int, keepers: Iterable[bytes]) -> LargestGroups[int]:
    largest: LargestGroups[int] = LargestGroups(most)
    for number, keeper in enumerate(keepers):
        largest.add(keeper, number)
    return largest


def test_some_duplicates_of_the_largest_groups_are_remembered() -> None:
    largest = counted(1, [b"a", b"b", b"b", b"a", b"b"])
    assert largest.sizes() == [(b"b", 3)]
    assert largest.members(b"b") == [1, 2, 4]


def test_no_group_has_more_of_them_than_are_shown() -> None:
    assert counted(1, [b"a"] * 100).members(b"a") == list(range(MEMBERS))


def test_those_of_small_groups_are_forgotten() -> None:
    largest = counted(2, [b"great"] * 5 + [b"small %d" % number for number in range(1_000)])
    assert len(largest._members) <= 8
    assert largest.members(b"great") == [0, 1, 2, 3, 4]


def test_a_group_that_grows_late_has_members_too() -> None:
    keepers = [b"small %d" % (number // 3) for number in range(300)] + [b"late"] * 10
    largest = counted(2, keepers)
    assert largest.sizes()[0] == (b"late", 10)
    assert largest.members(b"late")
    assert {keepers[number] for number in largest.members(b"late")} == {b"late"}
