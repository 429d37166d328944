"""Read ids from standard input, one per line."""

from __future__ import annotations

from dedup_job.commands.find import lines_of
from dedup_job.errors import UsageError


def ids_on(descriptor: int) -> list[str]:
    """Read ids from an open file, one per line, written as on a command line.

    Raises:
        UsageError: If a line is not UTF-8, or too long for an id.
    """
    lines = [line for batch in lines_of(descriptor) for line in batch]
    try:
        ids = [line.decode("utf-8-sig").strip() for line in lines if line is not None]
    except UnicodeDecodeError:
        raise UsageError("standard input is not in UTF-8") from None
    if len(ids) < len(lines):
        raise UsageError("standard input has a line that is too long for an id")
    return [given for given in ids if given]
