"""A dry run names the commands that could follow, and each of them is a command."""

from __future__ import annotations

import pytest

from dedup_job.report.next_steps import next_step_lines, next_steps
from dedup_job.report.terminal import display_width


@pytest.mark.parametrize(
    ("mode", "target", "commands"),
    [
        ("report (backfill)", "shop.unique", ["backfill", "promote", "mark", "sweep"]),
        ("report (run)", "shop.unique", ["run", "promote", "mark", "sweep"]),
        ("report (backfill)", None, ["backfill", "mark", "sweep"]),
        ("report (run)", None, ["run", "mark", "sweep"]),
    ],
)
def test_each_step_is_a_command_and_what_it_does(mode: str, target: str | None, commands: list[str]) -> None:
    steps = next_steps(mode, "shop.pages", target)
    assert [command.split()[1] for command, _ in steps] == commands
    lines = list(next_step_lines(steps))
    assert all(display_width(line) <= 110 for line in lines)
    assert any("promote" in line for line in lines) == (target is not None)
