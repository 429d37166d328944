"""A dry run names the commands that could follow, and each of them is a command."""

from __future__ import annotations

import pytest

from dedup_job.records import Counts
from dedup_job.report.run_summary import RunSummary
from dedup_job.report.steps_after_dry_run import next_step_lines, next_steps
from dedup_job.report.terminal_text import display_width


def dry_run(mode: str, counts: Counts) -> RunSummary:
    return RunSummary("", mode, counts, 1.0, "f" * 64)


@pytest.mark.parametrize(
    ("mode", "target", "commands"),
    [
        ("report (backfill)", "shop.unique", ["backfill", "promote", "mark", "sweep"]),
        ("report (run)", "shop.unique", ["run", "promote", "mark", "sweep"]),
        ("report (backfill)", None, ["backfill", "mark", "sweep"]),
        ("report (run)", None, ["run", "mark", "sweep"]),
    ],
)
def test_each_step_is_a_comment_and_a_command(mode: str, target: str | None, commands: list[str]) -> None:
    steps = next_steps(dry_run(mode, Counts(unique=2, exact=1)), "shop.pages", target, has_page=True)
    assert [command.split()[1] for command, _ in steps] == commands
    empty, head, *lines = next_step_lines(steps)
    assert (empty, head) == ("", "  what could follow")
    assert all(display_width(line) <= 110 for line in lines)
    shown = [line.strip() for line in lines]
    assert [line for line in shown if not line.startswith("# ")] == [command for command, _ in steps]


def test_a_page_comes_first_where_none_was_written() -> None:
    summary = dry_run("report (backfill)", Counts(unique=2, exact=1))
    commands = [command for command, _ in next_steps(summary, "s.p", "s.u", has_page=False)]
    assert commands[:2] == ["dedup-job report --html page.html", "dedup-job backfill"]


@pytest.mark.parametrize("counts", [Counts(unique=3), Counts(unchecked={"empty": 3})])
def test_nothing_follows_where_nothing_would_be_dropped(counts: Counts) -> None:
    assert (
        list(next_step_lines(next_steps(dry_run("report (backfill)", counts), "s.p", "s.u", has_page=False)))
        == []
    )
