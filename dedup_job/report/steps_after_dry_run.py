"""What could follow a dry run: a copy, marks in the source, or duplicates moved out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dedup_job.pasteable_command import command_line
from dedup_job.report.run_summary import RunSummary
from dedup_job.report.terminal_text import wrap_text

# A command, and its effect.
NextStep = tuple[str, str]


def next_steps(dry_run: RunSummary, source: str, target: str | None, has_page: bool) -> Sequence[NextStep]:
    """Return the commands that could follow a dry run; none if it would drop no record.

    Args:
        dry_run: The summary, with the mode "report (backfill)" or "report (run)".
        source: Full name of the source.
        target: Full name of the target; None without copies.
        has_page: Whether the dry run has written an HTML page.
    """
    if not dry_run.counts.duplicate:
        return []
    command = "run" if dry_run.mode == "report (run)" else "backfill"
    mark = "marks the dropped records in the source"
    sweep = "moves the dropped records out of the source"
    if target is None:
        steps = [
            (command, f"decides, and writes nothing to {source}"),
            ("mark", f"then {mark}"),
            ("sweep --archive NAME", f"or {sweep} into the collection NAME"),
        ]
    else:
        steps = [
            (command, f"copies the unique records to {target}; {source} is only read"),
            ("promote", f"then replaces {source} by {target}"),
            ("mark", f"or {mark}; no copy is needed for it: [target] copy = false"),
            ("sweep --archive NAME", f"or, without a copy, {sweep} into the collection NAME"),
        ]
    if not has_page:
        steps.insert(0, ("report --html page.html", "writes a page to review the decisions in a browser"))
    return [(command_line(command), meaning) for command, meaning in steps]


def next_step_lines(steps: Sequence[NextStep]) -> Iterator[str]:
    """Yield the steps as lines of text, behind an empty line."""
    if steps:
        yield from ("", "  what could follow")
    for command, meaning in steps:
        # A comment of the shell, so that the lines can be pasted.
        yield from wrap_text(meaning, "    # ")
        yield f"    {command}"
