"""What is told of an undo and a restore, and of where a ledger stands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dedup_job.records import Counts
from dedup_job.report.undo_and_restore_results import RestoreResult, UndoResult

NUMBERS = st.integers(0, 10**6)
REASONS = st.dictionaries(st.sampled_from(["empty", "null", "changed"]), st.integers(1, 99))
COUNTS = st.builds(Counts, NUMBERS, NUMBERS, NUMBERS, REASONS, REASONS)


@given(COUNTS, COUNTS)
def test_counts_that_were_added_can_be_taken_off_again(one: Counts, other: Counts) -> None:
    assert one + other - other == one


def test_an_undo_says_what_is_undecided_again_and_what_stays() -> None:
    counts = Counts(70, 20, 5, {"empty": 4}, {"validator": 1})

    whole = UndoResult("u", "r", 2, counts, {}, 0, 1.0)
    assert whole.exit_code == 0
    assert "undecided again               100\n  removed from target            74\n" in whole.as_text()

    partial = UndoResult("u", "r", 2, counts, {"vanished": 1, "altered": 2}, 0, 1.0)
    assert partial.exit_code == 3
    assert "removed from target            71\n" in partial.as_text()
    assert "3  altered 2, vanished 1; listed in dedup.left" in partial.as_text()
    assert UndoResult("u", "r", already=True).as_text() == "run r was already undone by u"


def test_a_restore_names_each_record_as_the_command_line_takes_it() -> None:
    shown = RestoreResult("x", [{"$oid": "65920080000000000100002a"}, "42"], 3, ["42"]).as_text()
    assert shown.splitlines() == [
        "65920080000000000100002a is in the target again",
        '"42" is in the target again, in the source\'s present version, which differs from the dropped one',
        "already in the target: 1 of 3 named records",
    ]
