from __future__ import annotations

import sys

import pytest

from dedup_job.report.terminal_text import (
    GREEN,
    RED,
    RESET,
    YELLOW,
    colour_text,
    format_bytes,
    format_duration,
    format_id,
    has_colours,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"$oid": "65920080000000000100002a"}, "65920080000000000100002a"), (42, "42"), ("42", '"42"')],
)
def test_ids_are_shown_as_the_command_line_takes_them(value: object, shown: str) -> None:
    assert format_id(value) == shown


def test_sizes_and_times_are_told_in_words() -> None:
    assert [format_bytes(size) for size in (0, 512, 3 << 20, 2.5 * (1 << 30))] == [
        "0 bytes",
        "512 bytes",
        "3 MB",
        "2.5 GB",
    ]
    assert [format_duration(seconds) for seconds in (0.4, 40, 600, 9_000, 86_400 * 3)] == [
        "0 seconds",
        "40 seconds",
        "10 minutes",
        "2 hours",
        "3 days",
    ]


@pytest.mark.parametrize(
    ("plain", "colour"),
    [
        ("[-only in one-]", RED),
        ("{+only in the other+}", GREEN),
        ("    - a dropped text", RED),
        ("    + a kept text", GREEN),
        ("  FAULT", RED),
        ("  WARNING", YELLOW),
    ],
)
def test_differences_and_problems_are_coloured_and_nothing_else(plain: str, colour: str) -> None:
    text = f"12 for 4: near\n{plain}\n  read  24  100.0 %"
    assert colour_text(text) == text.replace(plain, f"{colour}{plain}{RESET}")


@pytest.mark.parametrize(
    ("variables", "is_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_terminal: bool, expected: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert has_colours() is expected
