"""The rules of `[match] prefer`; without compiled code, so that settings are read quickly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LENGTH: Final = "longest"
TIMES: Final = ("newest", "oldest")
NUMBERS: Final = ("descending", "ascending")


@dataclass(frozen=True, slots=True)
class PreferRule:
    """A rule that says which of two records is better.

    Attributes:
        order: "longest" (the cleaned text), "newest" or "oldest" (a date), "descending" or "ascending" (a
            number).
        field: Dotted path of the date or number; empty for the text, and for the time in an ObjectId.
    """

    order: str
    field: str = ""

    @property
    def wanted(self) -> str:
        """The kind of value that the rule compares, for messages."""
        if self.order == LENGTH:
            return "text"
        if self.order in NUMBERS:
            return "number"
        return "date" if self.field else "ObjectId"

    @property
    def name(self) -> str:
        """The place of the value, for messages."""
        return self.field or ("the text" if self.order == LENGTH else "_id")
