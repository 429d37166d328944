"""What became of the source's indexes on the target, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dedup_job.mongo.indexes import Copied
from dedup_job.report.terminal import json_line, wrapped


def as_json(copied: Copied) -> dict[str, Any]:
    """Return it as JSON values; `expiry_held_back` has the seconds by index."""
    return {
        "built": list(copied.built),
        "there": list(copied.there),
        "refused": dict(copied.refused),
        "expiry_held_back": dict(copied.expiries),
    }


def as_lines(copied: Copied) -> Iterator[str]:
    """Yield it in lines, with what to do."""
    yield f"  indexes of the source: {len(copied.built)} built, {len(copied.there)} there before"
    if copied.built:
        yield from wrapped(f"built: {', '.join(copied.built)}", "    ")
    for name, reason in copied.refused.items():
        yield from wrapped(f"index NOT built: {name}: {reason}", "  ")
    for name, seconds in copied.expiries.items():
        yield from wrapped(
            f"index {name} built so that no record expires by it yet: the server would delete kept records, "
            "and what they stand for would be nowhere. When the target takes the source's place:",
            "  ",
        )
        index = json_line({"name": name, "expireAfterSeconds": seconds})
        yield f"    db.runCommand({{collMod: {json_line(copied.target)}, index: {index}}})"
