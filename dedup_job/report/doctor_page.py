"""What doctor found, as a page for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dedup_job.report.terminal import cell, wrapped

WORDS = {"ok": "ok", "warning": "warning", "fault": "FAULT"}
LACKS = "the user lacks the right to "
NAME = 26  # columns of a field's name


def as_text(shown: Mapping[str, Any]) -> str:
    """Return it in lines of at most 110 columns."""
    versions = ", ".join(f"{name} {number}" for name, number in shown["versions"].items())
    lines = [f"doctor: from {shown['source']} to {shown['target']}", f"  {versions}"]
    for check in shown["checks"]:
        lines += _lines(f"  {WORDS[check['state']]:<8} {check['about']:<14} ", check["message"])
    lines += _commands(shown)
    lines += _fields(shown)
    return "\n".join([*lines, "", _end(shown)])


def _end(shown: Mapping[str, Any]) -> str:
    if not shown["exit_code"]:
        return "no problem was found: a run can start"
    first = next(check for check in shown["checks"] if check["exit_code"])
    return f"a run would end with {shown['exit_code']}: {first['about']}, see above"


def _commands(shown: Mapping[str, Any]) -> Iterator[str]:
    if shown["commands"]:
        yield from ("", "commands that these users may run")
    for one in shown["commands"]:
        yield from wrapped(f"{'yes' if one['allowed'] else 'no '}  {one['commands']}", "  ")
        for lack in one["lacking"]:
            yield from wrapped(f"lacks {lack.removeprefix(LACKS)}", "         ")


def _fields(shown: Mapping[str, Any]) -> Iterator[str]:
    fields = shown.get("fields")
    if not fields:
        return
    yield from ("", f"fields of {fields['records']:,} records; * has the text")
    for mark, paths in (("*", fields["of_settings"]), (" ", fields["others"])):
        for path, kinds in paths.items():
            shares = ", ".join(f"{kind} {count:,}" for kind, count in kinds.items())
            yield f"  {mark} {cell(path, NAME)} {shares}"


def _lines(lead: str, text: str) -> Iterator[str]:
    """Yield a text in lines, the first behind a lead, the others below where it begins."""
    first, *others = wrapped(text, " " * len(lead))
    yield lead + first.strip()
    yield from others
