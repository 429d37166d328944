"""`why` as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dedup_job.report.terminal import id_text, wrap_text


def as_text(shown: Mapping[str, Any]) -> str:
    """Return the ledger's decision about one record, a line for each known fact.

    Args:
        shown: The JSON object that `why --json` prints.
    """
    verdict = "not decided yet" if shown["verdict"] == "undecided" else shown["verdict"]
    lines = [f"{id_text(shown['id'])}: {verdict}"]
    for name, value in shown.items():
        if name in ("id", "verdict") or value is None:
            continue
        if name == "keeper":
            value = id_text(value)
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        lines.append(f"  {name.replace('_', ' '):<16} {value}")
    return "\n".join(part for line in lines for part in wrap_text(line))
