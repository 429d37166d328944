"""Colours of results on a terminal; none elsewhere, or with NO_COLOR (https://no-color.org)."""

from __future__ import annotations

import os
import re
import sys

RED, GREEN, YELLOW, RESET = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
# What only one of two texts has, and the two lines of a pair; then problems, most severe first.
RULES = (
    (re.compile(r"\[-.*?-\]", re.DOTALL), RED),
    (re.compile(r"\{\+.*?\+\}", re.DOTALL), GREEN),
    (re.compile(r"^    - .*$", re.MULTILINE), RED),
    (re.compile(r"^    \+ .*$", re.MULTILINE), GREEN),
    (re.compile(r"^  FAULT\b", re.MULTILINE), RED),
    (re.compile(r"^  (?:WARNING|warning)\b", re.MULTILINE), YELLOW),
)


def has_colours() -> bool:
    """Return whether stdout is a terminal on which colours are wanted."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def colour_text(text: str) -> str:
    """Colour the differences of texts, and the words for problems.

    >>> colour_text("at 2.[-40-]{+90+} a kilo")
    'at 2.\\x1b[31m[-40-]\\x1b[0m\\x1b[32m{+90+}\\x1b[0m a kilo'
    """
    for pattern, colour in RULES:
        text = pattern.sub(f"{colour}\\g<0>{RESET}", text)
    return text
