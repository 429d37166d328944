"""The result of copying the source's indexes, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dedup_job.mongo.indexes import Copied
from dedup_job.report.terminal import json_line, wrap_text


def indexes_as_json(copied: Copied) -> dict[str, Any]:
    """Return the result as JSON values; `expiry_held_back` has the seconds by index."""
    return {
        "built": list(copied.built),
        "there": list(copied.there),
        "refused": dict(copied.refused),
        "expiry_held_back": dict(copied.expiries),
    }


def index_lines(copied: Copied) -> Iterator[str]:
    """Yield the result as text, with the commands that turn on expiry."""
    yield f"  indexes of the source: {len(copied.built)} built, {len(copied.there)} already there"
    if copied.built:
        yield from wrap_text(f"built: {', '.join(copied.built)}", "    ")
    for name, reason in copied.refused.items():
        yield from wrap_text(f"index NOT built: {name}: {reason}", "  ")
    for name, seconds in copied.expiries.items():
        yield from wrap_text(
            f"index {name} built without its expiry: with it the server would delete kept records whose "
            "duplicates were dropped. To turn it on when the target replaces the source:",
            "  ",
        )
        index = json_line({"name": name, "expireAfterSeconds": seconds})
        yield f"    db.runCommand({{collMod: {json_line(copied.target)}, index: {index}}})"
