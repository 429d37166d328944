"""Text for terminals: lines of limited width, rows of counts, ids as the command line takes them, colours."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

# Columns.
WIDTH = 110
UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
MB, GB = 1 << 20, 1 << 30
# Lines of Chinese may break anywhere.
WORD = re.compile(r" ?[!-~]{1,60}|.")
RED, GREEN, YELLOW, RESET = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
# What only one of two texts has, and the two lines of a pair; then problems, most severe first.
COLOURED = (
    (re.compile(r"\[-.*?-\]", re.DOTALL), RED),
    (re.compile(r"\{\+.*?\+\}", re.DOTALL), GREEN),
    (re.compile(r"^    - .*$", re.MULTILINE), RED),
    (re.compile(r"^    \+ .*$", re.MULTILINE), GREEN),
    (re.compile(r"^  FAULT\b", re.MULTILINE), RED),
    (re.compile(r"^  (?:WARNING|warning)\b", re.MULTILINE), YELLOW),
)


def format_id(value: Any) -> str:
    """Return an id as the command line takes it, given as a JSON value.

    >>> format_id({"$oid": "65920080000000000100002a"}), format_id(42), format_id("42")
    ('65920080000000000100002a', '42', '"42"')
    """
    if isinstance(value, dict) and value.keys() == {"$oid"}:
        return str(value["$oid"])
    return to_json_line(value)


def format_row(row: Mapping[str, Any]) -> str:
    """Return the fields of a row in one line, ids as the command line takes them.

    >>> format_row({"id": {"$oid": "65920080000000000100002a"}, "was": "kept"})
    '65920080000000000100002a  was kept'
    >>> format_row({"head_id": 41, "plans_id": "42"}), format_row({"records": 7})
    ('head 41  plans "42"', 'records 7')
    """
    return "  ".join(_format_field(name, value) for name, value in row.items())


def _format_field(name: str, value: Any) -> str:
    if name == "id":
        return format_id(value)
    if name.endswith("_id"):
        return f"{name.removesuffix('_id')} {format_id(value)}"
    return f"{name} {value if isinstance(value, str) else to_json_line(value)}"


def to_json_line(value: Any) -> str:
    """Return JSON in one line that is safe to print: control characters are escaped.

    >>> to_json_line({"text": "价格\x1b[31m\u202e\x9b"})
    '{"text": "价格\\\\u001b[31m\\\\u202e\\\\u009b"}'
    """
    line = json.dumps(value, ensure_ascii=False, default=str)
    if line.isprintable():
        return line
    # JSON is printable outside of strings, and inside of strings any character may be escaped.
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def count_row(label: str, count: int, note: str = "", width: int = 20) -> str:
    """Return an indented row: a label, a right-aligned number, and a note.

    Args:
        label: The name of the number, empty for another row under the same label.
        count: The number.
        note: The meaning of the number.
        width: Columns of the label.

    >>> count_row("removed", 1234, "from the target", width=10)
    '  removed           1,234  from the target'
    """
    return f"  {label:<{width}}{count:>13,}  {note}".rstrip()


def join_counts(counts: Mapping[str, int]) -> str:
    """Return names with their numbers, in alphabetical order.

    >>> join_counts({"vanished": 1, "altered": 2000})
    'altered 2,000, vanished 1'
    """
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def more_row(total: int, shown: int, indent: str, hint: str = "") -> list[str]:
    """Return a line that says how many rows of a list are not shown; none if all are.

    >>> more_row(7, 5, "    ", "--json lists all"), more_row(5, 5, "    ")
    (['    and 2 more: --json lists all'], [])
    """
    return [f"{indent}and {total - shown:,} more" + (f": {hint}" if hint else "")] if total > shown else []


def hang(lead: str, text: str) -> Iterator[str]:
    """Yield a text wrapped behind a lead: the first line follows it, the others align with the first.

    >>> list(hang("  radius  ", "3 bits"))
    ['  radius  3 bits']
    """
    lines = wrap_text(text, " " * display_width(lead))
    yield lead + next(lines).strip()
    yield from lines


def wrap_text(text: str, indent: str = "") -> Iterator[str]:
    """Yield indented lines of at most 110 columns; unprintable characters become spaces."""
    line, room = "", WIDTH - len(indent)
    for word in WORD.findall("".join(char if char.isprintable() else " " for char in text)):
        if line and display_width(line + word) > room:
            yield indent + line.rstrip()
            line, word = "", word.lstrip()
        line += word
    yield (indent + line).rstrip()


def fit_cell(text: str, width: int) -> str:
    """Return a text as a table cell: cut off, or padded, to a width in columns."""
    line = next(wrap_text(text))
    while display_width(line) >= width:
        line = line.removesuffix("…")[:-1] + "…"
    return line + " " * (width - display_width(line))


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes: Chinese characters take two."""
    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def format_duration(seconds: float) -> str:
    """Return a time in the largest unit with a value of at least two.

    >>> [format_duration(seconds) for seconds in (5, 119, 120, 200_000)]
    ['5 seconds', '119 seconds', '2 minutes', '2 days']
    """
    name, size = next((unit for unit in UNITS if seconds >= 2 * unit[1]), UNITS[-1])
    return f"{seconds / size:.0f} {name}"


def format_bytes(nbytes: float) -> str:
    """Return a number of bytes as text: GB, MB or bytes."""
    if nbytes >= GB:
        return f"{nbytes / GB:,.1f} GB"
    return f"{nbytes / MB:,.0f} MB" if nbytes >= MB else f"{nbytes:,.0f} bytes"


def has_colours() -> bool:
    """Return whether stdout is a terminal on which colours are wanted: see https://no-color.org."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def colour_text(text: str) -> str:
    """Colour the differences of texts, and the words for problems.

    >>> colour_text("at 2.[-40-]{+90+} a kilo")
    'at 2.\\x1b[31m[-40-]\\x1b[0m\\x1b[32m{+90+}\\x1b[0m a kilo'
    """
    for pattern, colour in COLOURED:
        text = pattern.sub(f"{colour}\\g<0>{RESET}", text)
    return text
