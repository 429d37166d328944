from __future__ import annotations

from collections.abc import Sequence

import pytest
from bson import encode
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup_job.fingerprint.recipe import Matching
from dedup_job.records import Action
from tests.support.preferred_world import (
    Killed,
    Ledger,
    Record,
    is_match,
    keep_best,
    load,
    match_of,
    matching_of,
    run,
)

SHINGLES = st.frozensets(st.integers(1, 6), min_size=1)


@st.composite
def collections(draw: st.DrawFn, rules: int = 2) -> list[Record]:
    """Records in the order in which they come, with few shingles and ranks so that most match some."""
    ids = draw(st.permutations(range(draw(st.integers(1, 14)))))
    ranks = st.tuples(*[st.integers(0, 3)] * rules)
    return [Record(encode({"_id": number}), draw(SHINGLES), draw(ranks)) for number in ids]


@st.composite
def histories(draw: st.DrawFn, records: Sequence[Record]) -> list[list[list[Record]]]:
    """The records cut into runs, and each run into batches."""
    runs: list[list[list[Record]]] = [[[]]]
    for record in records:
        step = draw(st.integers(0, 2))
        if step == 1:
            runs[-1].append([])
        elif step == 2:
            runs.append([[]])
        runs[-1][-1].append(record)
    return [[batch for batch in batches if batch] for batches in runs]


def check(ledger: Ledger, records: Sequence[Record], matching: Matching) -> None:
    by_id = {record.id: record for record in records}
    verdicts = ledger.verdicts()
    assert verdicts.keys() == by_id.keys()
    kept = sorted(raw_id for raw_id, verdict in verdicts.items() if verdict.action is Action.UNIQUE)
    assert kept == sorted(keep_best(records, matching)) == sorted(ledger.target)
    for raw_id, row in ledger.rows.items():
        assert match_of(verdicts[raw_id]).keeper == row.keeper
        assert row.keeper in ledger.target
        assert is_match(by_id[raw_id], by_id[row.keeper], matching)
        assert by_id[row.keeper].rank >= by_id[raw_id].rank
    assert sum(len(plan) for _, _, plan in ledger.plans) == len(records)


@settings(max_examples=60)
@given(st.data(), st.sampled_from([0.3, 0.5, 0.8]))
def test_every_history_of_runs_keeps_what_keep_first_keeps_of_the_records_sorted_best_first(
    data: st.DataObject, least: float
) -> None:
    records, matching = data.draw(collections()), matching_of(2, least)
    ledger = Ledger({record.id: record for record in records})
    for batches in data.draw(histories(records)):
        run(ledger, matching, batches)
    check(ledger, records, matching)


@settings(max_examples=60)
@given(st.data(), st.sampled_from([0.3, 0.5, 0.8]), st.booleans())
def test_runs_that_are_killed_at_any_write_end_like_undisturbed_runs(
    data: st.DataObject, least: float, has_copies: bool
) -> None:
    records, matching = data.draw(collections()), matching_of(2, least)
    ledger = Ledger({record.id: record for record in records}, has_copies=has_copies)
    for batches in data.draw(histories(records)):
        for _ in range(data.draw(st.integers(0, 3))):
            ledger.writes_left = data.draw(st.integers(0, 6))
            try:
                run(ledger, matching, undecided(ledger, batches))
            except Killed:
                continue
        ledger.writes_left = -1
        run(ledger, matching, undecided(ledger, batches))
    check(ledger, records, matching)


def test_a_record_that_was_to_leave_for_a_keeper_that_leaves_itself_is_decided_once_more() -> None:
    def record(rank: int, *shingles: int) -> Record:
        return Record(encode({"_id": rank}), frozenset(shingles), (rank,))

    # Each matches the next one only, and the greater rank is better.
    keeper, returning, between, last = record(8, 2, 3), record(7, 3, 4), record(6, 4, 5), record(5, 5, 6)
    best = record(9, 1, 2)
    records, matching = [keeper, returning, last, best, between], matching_of(1, 0.3)
    ledger = Ledger({one.id: one for one in records})

    run(ledger, matching, [records[:3]])
    assert ledger.target == {keeper.id, last.id}
    # `last` is to leave for `between`, which leaves in turn for `returning`.
    run(ledger, matching, [records[3:]])

    assert ledger.target == {best.id, returning.id, last.id}
    check(ledger, records, matching)


def test_a_killed_run_leaves_no_keeper_that_it_has_replaced() -> None:
    better, worse = (Record(encode({"_id": rank}), frozenset({1, 2}), (rank,)) for rank in (2, 1))
    matching, records = matching_of(1, 0.5), [worse, better]
    ledger = Ledger({one.id: one for one in records}, has_copies=False)
    run(ledger, matching, [[worse]])
    # After the plan that keeps the better record, and the plan that drops the worse one.
    ledger.writes_left = 2
    with pytest.raises(Killed):
        run(ledger, matching, [[better]])
    assert ledger.unsettled is not None

    keepers = load(ledger, matching)[0]

    assert len(keepers) == 1
    assert keepers.id(0) == better.id


def undecided(ledger: Ledger, batches: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """Return the batches without the records that a killed run has decided."""
    decided = ledger.verdicts()
    rest = ([record for record in batch if record.id not in decided] for batch in batches)
    return [batch for batch in rest if batch]
