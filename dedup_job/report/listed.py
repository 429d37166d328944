"""What was decided of records, one at a time: for scripts as JSON values, for people as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any

from dedup_job.ledger.selection import Decided
from dedup_job.mongo.shown_ids import extended
from dedup_job.report.differences import Gap, Piece, marked, omitted
from dedup_job.report.terminal import cell, id_text, wrapped

SHOWN, BEFORE = 80, 15  # characters of a text, and of those before the first difference of two
COLUMNS = 100
GONE = "(not there any more)"


@dataclass(frozen=True, slots=True)
class Listed:
    """A decided record, and how its text and its keeper's begin; None for a record that is gone."""

    row: Decided
    text: str | None = None
    keeper_text: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values; the texts from a little before they first differ."""
        text, keeper_text = self._shown
        about = {"text": text, **({} if self.row.keeper is None else {"keeper_text": keeper_text})}
        return {**_row_as_json(self.row), **about}

    def as_text(self) -> str:
        """Return it for people: the record, its text, and its keeper's."""
        text, keeper_text = self._shown
        lines = [_decided(self.row), f"    - {_line(text)}"]
        return "\n".join(lines if self.row.keeper is None else [*lines, f"    + {_line(keeper_text)}"])

    def as_id(self) -> str:
        """Return its id alone, as the command line takes it."""
        return id_text(extended(self.row.id))

    @property
    def _shown(self) -> tuple[str | None, str | None]:
        if self.text is None or self.keeper_text is None:
            return self.text and self.text[:SHOWN], self.keeper_text and self.keeper_text[:SHOWN]
        return since_they_differ(self.text, self.keeper_text)


@dataclass(frozen=True, slots=True)
class Keeper:
    """A kept record: how many it stands for, whether it is in the target, its text; None if it is nowhere."""

    id: bytes
    size: int
    is_in_target: bool
    text: str | None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        text = self.text and self.text[:SHOWN]
        about = {"duplicates": self.size, "in_target": self.is_in_target, "text": text}
        return {"keeper": extended(self.id), **about}

    def as_text(self) -> str:
        """Return it for people."""
        gone = "" if self.is_in_target else "; it is not in the target any more"
        number = f"{self.size:,} more record{'s' * (self.size != 1)}" if self.size else "no other record"
        return f"{_id(self.id)} stands for {number}{gone}\n    {_line(self.text and self.text[:SHOWN])}"


@dataclass(frozen=True, slots=True)
class Member:
    """A dropped record of a group; `parts` are the differences to its keeper's text, None if one is gone."""

    row: Decided
    parts: Sequence[Piece | Gap] | None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        parts = None if self.parts is None else [_part_as_json(one) for one in self.parts]
        return {**_row_as_json(self.row), "differences": parts}

    def as_text(self) -> str:
        """Return it for people, marked as by `wdiff`: what the keeper alone has, what this one alone has."""
        if self.parts is None:
            lines = [f"    {GONE}"]
        else:
            shown = "".join(map(_part_as_text, self.parts)) or "(the same text)"
            lines = list(wrapped(shown, "    "))
        return "\n".join([_decided(self.row), *lines])


def since_they_differ(first: str, second: str) -> tuple[str, str]:
    """Return two texts from a little before they first differ; where they do not, how they begin.

    >>> since_they_differ("they are the same for a while: one", "they are the same for a while: two")
    ('…e for a while: one', '…e for a while: two')
    """
    same = len(commonprefix([first, second]))  # noqa: RUF071 (of characters, as is meant)
    start = max(0, same - BEFORE)
    if start < BEFORE or same == max(len(first), len(second)):
        return first[:SHOWN], second[:SHOWN]
    return f"…{first[start : start + SHOWN]}", f"…{second[start : start + SHOWN]}"


def _row_as_json(row: Decided) -> dict[str, Any]:
    about = {"id": extended(row.id), "verdict": row.verdict, "reason": row.reason}
    if row.keeper is not None:
        match = {"distance": row.distance, "similarity": row.similarity}
        about |= {"keeper": extended(row.keeper), **match}
    return {**about, "run": row.run, "at": row.at.isoformat(timespec="seconds")}


def _decided(row: Decided) -> str:
    if row.keeper is None:
        return f"{_id(row.id)}: {row.verdict}, {row.reason}, run {row.run}"
    distance = "" if row.distance is None else f"distance {row.distance}"
    similarity = "" if row.similarity is None else f"similarity {row.similarity:.4f}"
    how = ", ".join(filter(None, (row.reason, distance, similarity, f"run {row.run}")))
    return f"{_id(row.id)} for {_id(row.keeper)}: {how}"


def _id(raw_id: bytes) -> str:
    return id_text(extended(raw_id))


def _line(text: str | None) -> str:
    return GONE if text is None else cell(text, COLUMNS).rstrip()


def _part_as_json(part: Piece | Gap) -> dict[str, Any]:
    if isinstance(part, Gap):
        return {"left_out": [part.first, part.second], "same": part.is_same}
    return {"both": part.first} if part.is_same else {"keeper": part.first, "duplicate": part.second}


def _part_as_text(part: Piece | Gap) -> str:
    if isinstance(part, Gap):
        return omitted(part.first, part.second, part.is_same)
    return part.first if part.is_same else marked(part.first, part.second)
