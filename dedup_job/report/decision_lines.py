"""Decisions about single records: as JSON values, and as lines of text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from dedup_job.ledger.rows_on_records import RESTORED, DecisionRow
from dedup_job.mongo.ids import extended
from dedup_job.pasteable_command import command_line
from dedup_job.report.differences import count_same_at_start, part_text
from dedup_job.report.terminal_text import fit_cell, format_id, wrap_text

# Characters shown of a text, and of these before the first difference of two texts.
MAX_SHOWN, BEFORE = 80, 15
COLUMNS = 100
GONE = "(deleted)"
CSV_COLUMNS = ("id", "verdict", "reason", "keeper", "similarity", "distance", "run", "at")


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """A decided record.

    Attributes:
        row: The ledger's row about the record.
        text: The record's text, None if the record was deleted.
        keeper_text: The text of its keeper, None if the keeper was deleted or there is none.
        group: The values of the fields in `[match] within` by path, as JSON values.
    """

    row: DecisionRow
    text: str | None = None
    keeper_text: str | None = None
    group: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the decision as JSON values; the texts begin a little before their first difference."""
        text, keeper_text = self._cut_texts()
        texts = {"text": text, **({} if self.row.keeper is None else {"keeper_text": keeper_text})}
        group = {"within": self.group} if self.group else {}
        return {**_row_as_json(self.row), **group, **texts}

    def as_text(self) -> str:
        """Return the decision as text: the record, its text, and its keeper's text."""
        text, keeper_text = self._cut_texts()
        group = "".join(f", {path} {format_id(value)}" for path, value in self.group.items())
        lines = [f"{_row_as_text(self.row)}{group}", f"    - {_fit_line(text)}"]
        if self.row.keeper is not None:
            lines.append(f"    + {_fit_line(keeper_text)}")
        return "\n".join(lines)

    def as_csv(self) -> str:
        """Return the decision as a line of CSV with the columns `CSV_COLUMNS`, without texts.

        Ids are written as in `as_id`, so that tables of several commands can be joined.
        """
        values = _row_as_json(self.row)
        values |= {name: format_id(values[name]) for name in ("id", "keeper") if name in values}
        line = io.StringIO()
        csv.DictWriter(line, CSV_COLUMNS, extrasaction="ignore", lineterminator="").writerow(values)
        return line.getvalue()

    def as_id(self) -> str:
        """Return only the id, as the command line takes it."""
        return format_id(extended(self.row.id))

    def _cut_texts(self) -> tuple[str | None, str | None]:
        if self.text is None or self.keeper_text is None:
            return self.text and self.text[:MAX_SHOWN], self.keeper_text and self.keeper_text[:MAX_SHOWN]
        return cut_before_difference(self.text, self.keeper_text)


@dataclass(frozen=True, slots=True)
class GroupKeeper:
    """The kept record of a group.

    Attributes:
        id: The raw id.
        size: The number of its duplicates.
        is_in_target: Whether it is still in the target.
        text: Its text, None if it is neither in the source nor in the target.
    """

    id: bytes
    size: int
    is_in_target: bool
    text: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the keeper as JSON values."""
        text = self.text and self.text[:MAX_SHOWN]
        return {
            "keeper": extended(self.id),
            "duplicates": self.size,
            "in_target": self.is_in_target,
            "text": text,
        }

    def as_text(self) -> str:
        """Return the keeper as text."""
        number = f"{self.size:,} more record{'s' * (self.size != 1)}" if self.size else "no other record"
        gone = "" if self.is_in_target else "; it is no longer in the target"
        text = _fit_line(self.text and self.text[:MAX_SHOWN])
        return f"{format_id(extended(self.id))} is the keeper of {number}{gone}\n    {text}"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A dropped record of a group.

    Attributes:
        row: The ledger's row about the record.
        differences: The parts of both texts, the keeper's first, as `part_json` returns them; None if either
            record was deleted.
    """

    row: DecisionRow
    differences: Sequence[Mapping[str, Any]] | None

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return {**_row_as_json(self.row), "differences": self.differences}

    def as_text(self) -> str:
        """Return the record as text: [-only in the keeper-] {+only in this record+}, as `wdiff` marks it."""
        if self.differences is None:
            lines = [f"    {GONE}"]
        else:
            marked = "".join(map(part_text, self.differences)) or "(the same text)"
            lines = list(wrap_text(marked, "    "))
        return "\n".join([_row_as_text(self.row), *lines])


def cut_before_difference(first: str, second: str) -> tuple[str, str]:
    """Return two texts from a little before their first difference; equal texts from their beginning.

    >>> cut_before_difference("they are the same for a while: one", "they are the same for a while: two")
    ('…e for a while: one', '…e for a while: two')
    """
    same = count_same_at_start(first, second)
    start = max(0, same - BEFORE)
    if start < BEFORE or same == max(len(first), len(second)):
        return first[:MAX_SHOWN], second[:MAX_SHOWN]
    return f"…{first[start : start + MAX_SHOWN]}", f"…{second[start : start + MAX_SHOWN]}"


def _row_as_json(row: DecisionRow) -> dict[str, Any]:
    values = {"id": extended(row.id), "verdict": row.verdict, "reason": row.reason}
    if row.keeper is not None:
        match = {"distance": row.distance, "similarity": row.similarity}
        values |= {"keeper": extended(row.keeper), **match}
    if row.is_replaced:
        values["replaced"] = True
    return {**values, "run": row.run, "at": row.at.isoformat(timespec="seconds")}


def _row_as_text(row: DecisionRow) -> str:
    record = format_id(extended(row.id))
    if row.keeper is None:
        return f"{record}: {row.verdict}, {row.reason}, run {row.run}"
    distance = "" if row.distance is None else f"distance {row.distance}"
    similarity = "" if row.similarity is None else f"similarity {row.similarity:.4f}"
    replaced = "kept until then" if row.is_replaced else ""
    restored = row.verdict if row.verdict == RESTORED else ""
    facts = ", ".join(filter(None, (restored, row.reason, distance, similarity, replaced, f"run {row.run}")))
    return f"{record} for {format_id(extended(row.keeper))}: {facts}"


def _fit_line(text: str | None) -> str:
    return GONE if text is None else fit_cell(text, COLUMNS).rstrip()


def why_text(shown: Mapping[str, Any]) -> str:
    """Return the ledger's decision about one record, a line for each known fact.

    Args:
        shown: The JSON object that `why --json` prints.
    """
    verdict = "not decided yet" if shown["verdict"] == "undecided" else shown["verdict"]
    lines = [f"{format_id(shown['id'])}: {verdict}"]
    for name, value in shown.items():
        if name in ("id", "verdict") or value is None:
            continue
        if name == "keeper":
            value = format_id(value)
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        lines.append(f"  {name.replace('_', ' '):<16} {value}")
    lines = [part for line in lines for part in wrap_text(line)]
    if shown["verdict"] == "duplicate":
        lines.append(f"  to see the difference: {compare_command(shown['id'], shown['keeper'])}")
    return "\n".join(lines)


def compare_command(first: Any, second: Any) -> str:
    """Return the command that compares two records, as a line for a shell.

    Args:
        first: The id of a record, as a JSON value.
        second: The id of the other.

    >>> print(compare_command(12, "4"))
    dedup-job compare 12 '"4"'
    >>> print(compare_command(-1, 4))
    dedup-job compare -- -1 4
    """
    ids = [quote(format_id(shown_id)) for shown_id in (first, second)]
    # A negative number looks like an option.
    is_option_like = any(word.startswith("-") for word in ids)
    return command_line(" ".join(["compare", *["--"] * is_option_like, *ids]))
