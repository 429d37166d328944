"""Earlier decisions come back as they went in, and take little memory however many."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from bson import encode

from dedup_job import temporary_ids_and_tables
from dedup_job.errors import StorageFull
from dedup_job.ledger import decisions_to_replace_on_disk
from dedup_job.ledger.decisions_to_replace_on_disk import EarlierDecision, EarlierDecisions
from dedup_job.records import CONFLICT, UNIQUE, UNIQUE_INDEX, Action, Verdict
from dedup_job.report.counts_with_ids import MOST_LISTED, AffectedRecords

IDS = [encode({"_id": value}) for value in (7, "a", {"n": 1.0}, "b" * 3_000, b"\0")]
MISSING = Verdict(Action.UNCHECKED, "missing")


def filled() -> EarlierDecisions:
    decisions = EarlierDecisions()
    decisions.add(
        {IDS[0]: EarlierDecision(3, UNIQUE, b"x" * 16), IDS[1]: EarlierDecision(3, CONFLICT, None)}, [IDS[0]]
    )
    decisions.add(
        {IDS[2]: EarlierDecision(9, MISSING, b"y" * 16), IDS[3]: EarlierDecision(9, CONFLICT, None)}
    )
    return decisions


def test_decisions_are_found_by_id_and_come_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions_to_replace_on_disk, "PAGE", 1)
    monkeypatch.setattr(temporary_ids_and_tables, "AT_ONCE", 2)
    decisions = filled()
    assert len(decisions) == 4
    assert decisions.find(IDS) == {
        IDS[0]: EarlierDecision(3, UNIQUE, b"x" * 16),
        IDS[1]: EarlierDecision(3, CONFLICT, None),
        IDS[2]: EarlierDecision(9, MISSING, b"y" * 16),
        IDS[3]: EarlierDecision(9, CONFLICT, None),
    }
    assert decisions.among(IDS) == set(IDS[:4])
    assert decisions.moved(IDS) == {IDS[0]}
    assert list(decisions.absent()) == [[IDS[1]], [IDS[3]]]
    assert list(decisions.present()) == [[IDS[0]], [IDS[2]]]
    assert list(decisions.with_verdict(CONFLICT)) == [[IDS[1]], [IDS[3]]]
    assert list(EarlierDecisions().absent()) == []
    assert EarlierDecisions().among(IDS) == set()


def test_what_is_put_off_is_due_again_and_remembers_that_it_has_left() -> None:
    decisions = filled()
    for raw_id in (IDS[2], IDS[1]):
        decisions.put_off(raw_id, 12, UNIQUE_INDEX)
    assert list(decisions.due_again()) == [[IDS[1], IDS[2]]]
    assert decisions.find(IDS[1:3]) == {
        IDS[1]: EarlierDecision(12, UNIQUE_INDEX, None),
        IDS[2]: EarlierDecision(12, UNIQUE_INDEX, None, has_left=True),
    }
    decisions.put_off(IDS[2], 13, UNIQUE_INDEX)
    assert decisions.find(IDS[2:3])[IDS[2]].has_left


def test_json_names_the_first_of_many_records_and_counts_all() -> None:
    tally = AffectedRecords()
    tally.add((encode({"_id": n}), Action.DUPLICATE) for n in range(MOST_LISTED + 5))
    told = tally.as_json()
    assert (told["dropped"], len(told["records"]), told["records"][-1]["id"]) == (1_005, 1_000, 999)
    assert [row["id"] for row in tally.rows()] == list(range(1_005))


def fill_decisions(count: int) -> EarlierDecisions:
    decisions = EarlierDecisions()
    for first in range(0, count, 1_000):
        ids = (encode({"_id": n}) for n in range(first, first + 1_000))
        decisions.add({raw_id: EarlierDecision(first, UNIQUE, b"x" * 16) for raw_id in ids})
    return decisions


def fill_tally(count: int) -> AffectedRecords:
    tally = AffectedRecords()
    tally.add((encode({"_id": n}), Action.UNIQUE) for n in range(count))
    return tally


@pytest.mark.parametrize(("fill", "most"), [(fill_decisions, 2), (fill_tally, 2)])
def test_memory_does_not_grow_with_the_number_of_ids(fill: Callable[[int], object], most: float) -> None:
    """SQLite's own memory is not counted here; scripts/bench/sync_memory.py weighs the whole process."""

    def held(count: int) -> int:
        tracemalloc.start()
        kept = fill(count)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del kept
        return size

    held(1_000)
    assert (held(200_000) - held(100_000)) / 100_000 < most, "bytes for each record"


def test_a_disk_without_room_is_told_as_such() -> None:
    decisions = filled()
    decisions._tables.fetch("PRAGMA max_page_count = 1")
    with pytest.raises(StorageFull, match="TMPDIR"):
        decisions.add({encode({"_id": n}): EarlierDecision(1, UNIQUE, b"x" * 16) for n in range(10_000)})
