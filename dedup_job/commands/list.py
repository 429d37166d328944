"""`list`: ledger rows, filtered and sorted, with the texts of their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dedup_job.commands.compare_numbers_in_pairs import differ_in_numbers_only, summarize_texts
from dedup_job.commands.history import check_not_undone, find_run
from dedup_job.commands.record_lookup import (
    fetch_duplicates,
    fetch_groups,
    fetch_keepers,
    open_ledger_reader,
    read_portions,
)
from dedup_job.config import javascript_in, parse_filter
from dedup_job.errors import UsageError
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows_on_records import RESTORED, DecisionRow, Selection
from dedup_job.pipeline.command_context import Context
from dedup_job.report.decision_lines import ListedRecord


@dataclass(frozen=True, slots=True)
class ListingQuery:
    """The options of a listing.

    Attributes:
        selection: The rows of the ledger, and their order.
        where: A further query filter on the source's records.
        numbers_only: Whether to list only pairs whose texts differ in nothing but numbers.
        with_texts: Whether texts are shown.
        limit: Most records to list; None for all.
    """

    selection: Selection
    where: Mapping[str, Any] = field(default_factory=dict)
    numbers_only: bool = False
    with_texts: bool = True
    limit: int | None = None


def parse_where(given: str | None, allow_js: bool = False) -> Mapping[str, Any]:
    """Parse the value of --where.

    Args:
        given: A filter in extended JSON; None for no filter.
        allow_js: Whether the filter may run JavaScript on the server.

    Raises:
        UsageError: If the value is not a filter, or runs JavaScript without `allow_js`.
    """
    if given is None:
        return {}
    condition = parse_filter(given)
    if condition is None:
        raise UsageError('--where: expected a filter in extended JSON, as in \'{"site": "a.example"}\'')
    if (name := javascript_in(condition)) and not allow_js:
        raise UsageError(
            f"--where: {name} runs JavaScript on the server for each record; most conditions can be written "
            "with $expr, and --allow-js allows the others"
        )
    return condition


def list_decisions(context: Context, query: ListingQuery) -> Iterator[list[ListedRecord]]:
    """Yield the listed decisions, some at a time; memory is bounded, whatever the query.

    Raises:
        ConfigError: If nothing was decided yet.
        UsageError: If the server does not accept the filter, or the run is unknown or was undone.
    """
    reader = open_ledger_reader(context)
    is_of_restored = query.selection.verdict == RESTORED
    if query.selection.run is not None:
        row = find_run(reader, query.selection.run)
        # A restored record stays listed with its run after an undo of that run.
        if not is_of_restored:
            check_not_undone(row)
    # The ledger may apply the limit only if no row is filtered out afterwards.
    is_filtered_here = bool(query.where) or query.numbers_only or is_of_restored
    remaining = query.limit
    selected = reader.select_rows(query.selection, None if is_filtered_here else query.limit)
    for rows in read_portions(selected):
        if is_of_restored:
            outdated = _no_longer_restored(context, reader, [row.id for row in rows])
            rows = [row for row in rows if row.id not in outdated]
        if query.where:
            ids = [row.id for row in rows]
            matching = context.source.matching(ids, query.where)
            if context.archive_for_lookups is not None:
                matching |= context.archive_for_lookups.as_source().matching(ids, query.where)
            rows = [row for row in rows if row.id in matching]
        listed = list(islice(_add_texts(context, query, rows), remaining))
        if listed:
            yield listed
        if remaining is not None and not (remaining := remaining - len(listed)):
            return


def _no_longer_restored(context: Context, reader: LedgerReader, ids: Sequence[bytes]) -> set[bytes]:
    """Return the restored records that were decided again since, or that nobody has any longer."""
    # After an undo of the sync that found that a record had vanished, the ledger does not say so any more.
    return reader.with_rows(ids) | context.source.absent(context.target.absent(ids))


def _add_texts(context: Context, query: ListingQuery, rows: Sequence[DecisionRow]) -> Iterator[ListedRecord]:
    if not (query.with_texts or query.numbers_only):
        yield from map(ListedRecord, rows)
        return
    ids = [row.keeper for row in rows if row.keeper is not None]
    kept = summarize_texts(fetch_keepers(context, ids), query.numbers_only)
    dropped = summarize_texts(fetch_duplicates(context, [row.id for row in rows]), query.numbers_only)
    groups = fetch_groups(context, [row.id for row in rows]) if query.with_texts else {}
    for row in rows:
        text, keeper = dropped.get(row.id), kept.get(row.keeper or b"")
        if not query.numbers_only or differ_in_numbers_only(text, keeper):
            texts = [summary.beginning if summary else None for summary in (text, keeper)]
            yield ListedRecord(row, texts[0], texts[1], groups.get(row.id, {}))
