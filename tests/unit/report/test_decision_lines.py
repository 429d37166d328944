from __future__ import annotations

from dedup_job.report.decision_lines import why_text


def test_an_answer_has_a_line_for_each_thing_that_is_known() -> None:
    answer = {"id": 7, "verdict": "duplicate", "keeper": "k", "keeper_in_target": False, "distance": None}
    assert why_text(answer).splitlines() == [
        "7: duplicate",
        '  keeper           "k"',
        "  keeper in target no",
        """  to see the difference: dedup-job compare 7 '"k"'""",
    ]
    assert why_text({"id": 7, "verdict": "undecided"}) == "7: not decided yet"
