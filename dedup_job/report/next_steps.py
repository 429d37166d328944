"""What could follow a dry run: a copy, marks in the source, or duplicates moved out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dedup_job.report.terminal import hang

# A command, and its effect.
NextStep = tuple[str, str]
# Columns of the command.
WIDTH = 34


def next_steps(mode: str, source: str, target: str | None) -> Sequence[NextStep]:
    """Return the commands that could follow a dry run.

    Args:
        mode: The mode of the dry run, "report (backfill)" or "report (run)".
        source: Full name of the source.
        target: Full name of the target; None without copies.
    """
    command = f"dedup-job {'run' if mode == 'report (run)' else 'backfill'}"
    mark = "marks the dropped records in the source"
    sweep = "moves the dropped records out of the source"
    if target is None:
        return [
            (command, f"decides, and writes nothing to {source}"),
            ("dedup-job mark", f"then {mark}"),
            ("dedup-job sweep --archive NAME", f"or {sweep} into the collection NAME"),
        ]
    return [
        (command, f"copies the unique records to {target}; {source} is only read"),
        ("dedup-job promote", f"then puts {target} in the place of {source}"),
        ("dedup-job mark", f"or {mark}; no copy is needed for it: [target] copy = false"),
        ("dedup-job sweep --archive NAME", f"or, without a copy, {sweep} into the collection NAME"),
    ]


def next_step_lines(steps: Sequence[NextStep]) -> Iterator[str]:
    """Yield the steps as lines of text."""
    yield "  what could follow"
    for command, meaning in steps:
        # As a comment of the shell, so that the line can be pasted.
        yield from hang(f"    {command:<{WIDTH}}# ", meaning)
