"""A group: a kept record and all that it stands for, with the differences of their texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dedup_job.commands.context import Context
from dedup_job.commands.keeper_texts import duplicates, keepers, ledger_of, portions
from dedup_job.commands.named import record_named
from dedup_job.errors import UsageError
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows import keeper_of_row
from dedup_job.ledger.selection import Decided, Selection
from dedup_job.mongo.shown_ids import extended, readings, with_equals
from dedup_job.report.differences import differences, excerpt
from dedup_job.report.listed import Keeper, Member
from dedup_job.report.terminal import id_text

AROUND, MOST = 20, 400  # characters that are shown beside a difference, and of a text


def group(context: Context, given: str) -> tuple[Keeper, Iterator[list[Member]]]:
    """Return a keeper, and what yields the records that it stands for, least similar first.

    Raises ConfigError where nothing was decided yet, UsageError when nobody knows the keeper, or it was
    dropped itself.
    """
    reader = ledger_of(context)
    selection, size = _selected(reader, given)
    if not size:
        _check_kept(context, reader, given)
        selection = Selection(keeper=record_named(context, given).id)
    assert selection.keeper is not None
    text = dict(keepers(context, [selection.keeper])).get(selection.keeper)
    is_there = not context.target.absent([selection.keeper])
    return Keeper(selection.keeper, size, is_there, text), _members(context, reader, selection, text)


def _selected(reader: LedgerReader, given: str) -> tuple[Selection, int]:
    """Return the rows that name a keeper, which the command line may mean in several ways."""
    for raw_id in readings(given):
        selection = Selection(keeper=raw_id, order="similarity")
        if size := reader.count(selection):
            first = next(reader.selected(selection))[0]
            return Selection(keeper=keeper_of_row(first), order="similarity"), size
    return Selection(), 0


def _check_kept(context: Context, reader: LedgerReader, given: str) -> None:
    row = reader.row("dropped", with_equals(readings(given)))
    if row is not None:
        keeper = id_text(extended(keeper_of_row(row)))
        raise UsageError(f"{given} was dropped itself; its keeper is {keeper}: dedup-job group '{keeper}'")


def _members(
    context: Context, reader: LedgerReader, selection: Selection, text: str | None
) -> Iterator[list[Member]]:
    for rows in portions(reader.selected(selection)):
        yield _compared(context, rows, text)


def _compared(context: Context, rows: Sequence[Decided], text: str | None) -> list[Member]:
    """Compare the texts of these records with their keeper's, each while it is at hand."""
    parts = {
        raw_id: excerpt(differences(text, other), AROUND, MOST) if other != text else []
        for raw_id, other in duplicates(context, [row.id for row in rows])
        if text is not None
    }
    return [Member(row, parts.get(row.id)) for row in rows]
