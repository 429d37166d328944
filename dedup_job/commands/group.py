"""`group`: show a kept record and its duplicates, with the differences between their texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dedup_job.commands.record_lookup import (
    fetch_duplicates,
    fetch_keepers,
    find_record,
    open_ledger_reader,
    read_portions,
)
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows_on_records import Selection, keeper_of_row
from dedup_job.mongo.ids import readings, with_equals
from dedup_job.pipeline.command_context import Context
from dedup_job.report.decision_lines import GroupKeeper, GroupMember
from dedup_job.report.differences import cut_excerpt, diff_texts, part_json

# Characters shown on each side of a difference.
AROUND = 20
# Characters shown of a text.
MOST = 400


def group(context: Context, given: str) -> tuple[GroupKeeper, Iterator[list[GroupMember]]]:
    """Return a keeper, and an iterator over its duplicates, least similar first.

    Args:
        context: The open connections.
        given: Id of the keeper, or of one of its duplicates, as on a command line.

    Raises:
        ConfigError: If nothing was decided yet.
        UsageError: If no record has the id.
    """
    reader = open_ledger_reader(context)
    keeper, size = _find_group(reader, given) or (find_record(context, given).id, 0)
    text = dict(fetch_keepers(context, [keeper])).get(keeper)
    is_there = not context.target.absent([keeper])
    members = _compare_members(context, reader, _members_of(keeper), text)
    return GroupKeeper(keeper, size, is_there, text), members


def _members_of(keeper: bytes) -> Selection:
    """Return the query for the rows of a group."""
    return Selection(keeper=keeper, order="similarity")


def _find_group(reader: LedgerReader, given: str) -> tuple[bytes, int] | None:
    """Return the keeper and the size of a group; tries each reading of the id in turn."""
    # A dropped record is in the group of its keeper.
    dropped = reader.row("dropped", with_equals(readings(given)))
    keepers = readings(given) if dropped is None else [keeper_of_row(dropped)]
    for raw_id in keepers:
        if size := reader.count(_members_of(raw_id)):
            # The server finds rows with 7.0 for 7; a row has the keeper's id in its stored type.
            return keeper_of_row(next(reader.select_rows(_members_of(raw_id)))[0]), size
    return None


def _compare_members(
    context: Context, reader: LedgerReader, selection: Selection, text: str | None
) -> Iterator[list[GroupMember]]:
    """Yield the duplicates with the differences of their texts from the keeper's, some at a time."""
    for rows in read_portions(reader.select_rows(selection)):
        # One text is in memory at a time; only excerpts of the differences stay.
        differences = {
            raw_id: _describe_differences(text, other)
            for raw_id, other in fetch_duplicates(context, [row.id for row in rows])
            if text is not None
        }
        yield [GroupMember(row, differences.get(row.id)) for row in rows]


def _describe_differences(keeper: str, duplicate: str) -> list[dict[str, Any]]:
    """Return the differences between two texts as JSON values; none if the texts are the same."""
    if keeper == duplicate:
        return []
    parts = cut_excerpt(diff_texts(keeper, duplicate), AROUND, MOST)
    return [part_json(part, "keeper", "duplicate") for part in parts]
