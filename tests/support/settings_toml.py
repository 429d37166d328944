"""Settings as the text of a settings file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def settings_toml(tables: Mapping[str, Any]) -> str:
    """Return tables by section as TOML; a list of tables is a section that comes several times."""
    lines = []
    for section, values in tables.items():
        for table in values if isinstance(values, list) else [values]:
            lines.append(f"[[{section}]]" if isinstance(values, list) else f"[{section}]")
            lines += [f"{key} = {_in_a_line(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _in_a_line(value: Any) -> str:
    # A table in a table, such as [engine.conf], becomes an inline table.
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {_in_a_line(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_in_a_line, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
