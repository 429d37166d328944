from __future__ import annotations

from dedup_job.report.changes_and_sync_results import OutdatedCounts

DUE = OutdatedCounts(
    renewed=1, changed=2, handed_on=3, refused=0, failed=0, kept=4, others=5, occupied=6, undecided=7
)


def lines(text: str) -> list[str]:
    """Return the lines with one space between words."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_preview_says_what_leaves_the_target() -> None:
    told = lines(DUE.as_text("shop.unique", has_copies=True))
    assert told[0] == "sync would bring shop.unique up to date:"
    assert told[6:9] == [
        "vanished 4 will be removed from the target",
        "5 are not in the target",
        "still refused 6 the target has another record with the same _id",
    ]


def test_without_copies_a_preview_speaks_of_decisions_and_of_no_target() -> None:
    told = lines(DUE.as_text("shop.pages", has_copies=False))
    assert told[0] == "sync would bring the decisions on shop.pages up to date:"
    assert "target" not in " ".join(told)
    assert told[6:] == ["vanished 9 are no longer in the source", "decided 7 new, or missed by runs"]
