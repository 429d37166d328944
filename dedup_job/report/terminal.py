"""Text on a terminal: lines and cells of so many columns, and ids as the command line takes them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 110  # columns
WORD = re.compile(r" ?[!-~]{1,60}|.")  # Chinese lines may break anywhere


def id_text(value: Any) -> str:
    """Return an id, given as JSON values, in the form in which the command line takes it.

    >>> id_text({"$oid": "65920080000000000100002a"}), id_text(42), id_text("42")
    ('65920080000000000100002a', '42', '"42"')
    """
    if isinstance(value, dict) and value.keys() == {"$oid"}:
        return str(value["$oid"])
    return json_line(value)


def row_line(row: Mapping[str, Any]) -> str:
    """Return what is said of a record in a line, ids as the command line takes them.

    >>> row_line({"id": {"$oid": "65920080000000000100002a"}, "was": "kept"})
    '65920080000000000100002a  was kept'
    >>> row_line({"head_id": 41, "plans_id": "42"}), row_line({"records": 7})
    ('head 41  plans "42"', 'records 7')
    """
    return "  ".join(_named_value(name, value) for name, value in row.items())


def _named_value(name: str, value: Any) -> str:
    if name == "id":
        return id_text(value)
    if name.endswith("_id"):
        return f"{name.removesuffix('_id')} {id_text(value)}"
    return f"{name} {value if isinstance(value, str) else json_line(value)}"


def json_line(value: Any) -> str:
    """Return JSON in one line that can be printed anywhere: what a terminal might obey is escaped.

    >>> json_line({"text": "价格\x1b[31m\u202e\x9b"})
    '{"text": "价格\\\\u001b[31m\\\\u202e\\\\u009b"}'
    """
    written = json.dumps(value, ensure_ascii=False, default=str)
    if written.isprintable():
        return written
    # Outside of strings JSON is printable, and in them anything may be escaped.
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in written)


def wrapped(text: str, indent: str = "") -> Iterator[str]:
    """Yield lines of at most 110 columns; what cannot be printed becomes a space."""
    line, room = "", WIDTH - len(indent)
    for word in WORD.findall("".join(one if one.isprintable() else " " for one in text)):
        if line and columns(line + word) > room:
            yield indent + line.rstrip()
            line, word = "", word.lstrip()
        line += word
    yield (indent + line).rstrip()


def cell(text: str, width: int) -> str:
    """Return a text as a table's cell: cut off or filled up to its width."""
    line = next(wrapped(text))
    while columns(line) >= width:
        line = line.removesuffix("…")[:-1] + "…"
    return line + " " * (width - columns(line))


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: Chinese characters take two."""
    return sum(1 + (unicodedata.east_asian_width(one) in "WF") for one in text)
