"""Ids that another program hands over, a line each."""

from __future__ import annotations

from dedup_job.commands.find import lines_of
from dedup_job.errors import UsageError


def ids_on(descriptor: int) -> list[str]:
    """Return the ids on an open file, one a line, as they would stand on a command line.

    Raises UsageError when one cannot be read.
    """
    lines = [line for some in lines_of(descriptor) for line in some]
    try:
        given = [line.decode("utf-8-sig").strip() for line in lines if line is not None]
    except UnicodeDecodeError:
        raise UsageError("standard input is not in UTF-8") from None
    if len(given) < len(lines):
        raise UsageError("standard input has a line that is too long for an id")
    return [one for one in given if one]
