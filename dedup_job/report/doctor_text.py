"""`doctor` as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dedup_job.report.terminal import fit_cell, hang, wrap_text

STATES = {"ok": "ok", "warning": "warning", "fault": "FAULT"}
LACKS = "the user lacks the right to "
# Columns of a field's path.
PATH_WIDTH = 26


def doctor_text(shown: Mapping[str, Any]) -> str:
    """Return the checks and their results, in lines of at most 110 columns.

    Args:
        shown: The JSON object that `doctor --json` prints.
    """
    versions = ", ".join(f"{name} {number}" for name, number in shown["versions"].items())
    lines = [f"doctor: from {shown['source']} to {shown['target']}", f"  {versions}"]
    for check in shown["checks"]:
        lines += hang(f"  {STATES[check['state']]:<8} {check['about']:<14} ", check["message"])
    lines += _command_lines(shown["commands"])
    lines += _field_lines(shown.get("fields"))
    if shown["exit_code"]:
        # A run ends at its first problem, so this is the exit code of the run, too.
        first = next(check for check in shown["checks"] if check["exit_code"])
        result = f"a run would end with {shown['exit_code']}: {first['about']}, see above"
    else:
        result = "no problem was found: a run can start"
    return "\n".join([*lines, "", result])


def _command_lines(commands: list[Mapping[str, Any]]) -> Iterator[str]:
    if commands:
        yield from ("", "commands that these users may run")
    for row in commands:
        yield from wrap_text(f"{'yes' if row['allowed'] else 'no '}  {row['commands']}", "  ")
        for lack in row["lacking"]:
            yield from wrap_text(f"lacks {lack.removeprefix(LACKS)}", "         ")


def _field_lines(fields: Mapping[str, Any] | None) -> Iterator[str]:
    if not fields:
        return
    yield from ("", f"fields of {fields['records']:,} records; * has the text")
    for mark, paths in (("*", fields["of_settings"]), (" ", fields["others"])):
        for path, kinds in paths.items():
            shares = ", ".join(f"{kind} {count:,}" for kind, count in kinds.items())
            yield f"  {mark} {fit_cell(path, PATH_WIDTH)} {shares}"
