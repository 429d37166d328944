from __future__ import annotations

import numpy as np
import pytest
from bson import encode

from dedup_job.commands.compare_numbers_in_pairs import NearPairs, NumberDifferences
from dedup_job.records import UNIQUE, Action, KeeperMatch, Plan, Verdict
from dedup_job.report.sampled_pairs_and_groups import DuplicatePair

FIRST, SECOND = encode({"_id": 1}), encode({"_id": 2})
PAIR = DuplicatePair(SECOND, "near", KeeperMatch(FIRST, 3, 0.9))


def test_only_near_duplicates_are_drawn_and_all_are_counted() -> None:
    near = Verdict(Action.DUPLICATE, "near", KeeperMatch(FIRST, 2, 0.9))
    exact = Verdict(Action.DUPLICATE, "exact", KeeperMatch(FIRST, 0, 1.0))
    verdicts = [UNIQUE, near, exact, near, Verdict(Action.UNCHECKED, "empty"), near]
    ids = [encode({"_id": number}) for number in range(len(verdicts))]
    column = np.zeros((len(ids), 2), np.uint64)
    pairs = NearPairs(2)
    pairs.observe(Plan(ids, verdicts, column, column[:, 0] > 0, column, column, column))
    assert (pairs.seen, len(pairs.drawn)) == (3, 2)
    assert {pair.reason for pair in pairs.drawn} == {"near"}


def test_where_all_pairs_were_compared_the_numbers_are_exact() -> None:
    text = NumberDifferences(4, 4, 2, 1, [(PAIR, "costs 4", "costs 5")]).as_text()
    assert "2 of 4 near duplicates differ from their kept record in a number, 1 of them in numbers alone" in (
        " ".join(text.split())
    )
    assert '[match] numbers = "distinguish"' in text
    assert text.splitlines()[-3:] == [
        "  2 for 1: distance 3, similarity 0.90",
        "    - costs 4",
        "    + costs 5",
    ]


@pytest.mark.parametrize(
    ("differing", "estimate"), [(600, "about 6,000 of 10,000"), (1, "about 10 of 10,000")]
)
def test_of_a_sample_the_numbers_are_estimates(differing: int, estimate: str) -> None:
    text = " ".join(NumberDifferences(10_000, 1_000, differing, 0).as_text().split())
    assert f"{estimate} near duplicates" in text
    assert "(estimated from 1,000)" in text


def test_where_no_number_differs_nothing_is_said() -> None:
    assert NumberDifferences(4, 4, 0, 0).as_text() == ""
