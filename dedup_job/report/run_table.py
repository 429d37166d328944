"""Past runs as a table, for `status` and `history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NUMBERS = ("read", "unique", "duplicate")
TABLE_HEADER = (
    f"  {'run':<21}{'mode':<10}{'seconds':>9}" + "".join(f"{name:>11}" for name in NUMBERS) + " exit"
)


def run_table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of the last runs, newest first, in 80 columns."""
    yield f"\n{TABLE_HEADER}"
    for run in runs:
        yield _numbers(run)
        yield from (f"    {note}" for note in _notes(run))
        if run["alike"]:
            result = "found nothing new" if run["exit_code"] in (0, 3) else "decided nothing either"
            yield f"    and {run['alike']:,} earlier run{'s' * (run['alike'] != 1)} {result}"


def run_line(run: Mapping[str, Any]) -> str:
    """Return a run as one line of the table."""
    return "  ".join([_numbers(run), *_notes(run)])


def _numbers(run: Mapping[str, Any]) -> str:
    seconds = "-" if run["seconds"] is None else f"{run['seconds']:,.1f}"
    numbers = "".join(f"{_format_number(run[name]):>11}" for name in NUMBERS)
    code = "-" if run["exit_code"] is None else run["exit_code"]
    return f"  {run['run']:<21}{run['mode']:<10}{seconds:>9}{numbers}{code:>5}"


def _notes(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the facts about a run that have no column."""
    if others := [f"{name} {_format_number(run[name])}" for name in ("unchecked", "refused") if run[name]]:
        yield ", ".join(others)
    if run["undone"]:
        yield f"undone {run['undone']}"
    if run["undid"]:
        yield f"undid {run['undid']}"


def _format_number(value: int | Mapping[str, int] | None) -> str:
    if value is None:
        return "-"
    return f"{value if isinstance(value, int) else sum_values(value):,}"


def sum_values(parts: Mapping[str, int]) -> int:
    """Return the sum of the numbers."""
    return sum(parts.values())
