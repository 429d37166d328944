"""`export`: write the groups of duplicates to a file, for people who work on them elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dedup_job.commands.record_lookup import open_ledger_reader, read_portions
from dedup_job.ledger.rows_on_records import DecisionRow, Selection
from dedup_job.pipeline.command_context import Context
from dedup_job.report.progress import Advance
from dedup_job.report.table_file import Row, TableFile

COLUMNS = {"id": str, "keeper": str, "reason": str, "similarity": float}
# The reason in the row of a keeper itself.
KEEPER = "keeper"


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an export.

    Attributes:
        path: The file.
        groups: Number of groups.
        records: Number of records in them, keepers included.
        seconds: How long it took.
    """

    path: Path
    groups: int
    records: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "clusters": str(self.path),
            "groups": self.groups,
            "records": self.records,
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the result as text."""
        return f"groups {self.groups:,}, records {self.records:,} in {self.path}; {self.seconds:,.1f} s"


def export_clusters(context: Context, path: Path, advance: Advance) -> ExportResult:
    """Write a row for every record that is in a group, group by group, each keeper first.

    Memory is bounded: the server sorts the rows, on its disk if necessary.

    Args:
        context: The open connections.
        path: The file; its suffix says the format.
        advance: Called with the number of duplicates that were written since the last call.

    Raises:
        UsageError: If the file cannot be created, or has another suffix.
        ConfigError: If nothing was decided yet.
    """
    started, groups = time.monotonic(), 0
    with TableFile(path, COLUMNS, "--clusters") as table:
        rows = open_ledger_reader(context).select_rows(Selection(order="keeper"))
        last = None
        for portion in read_portions(rows):
            lines = list(_with_keepers(portion, last, table.show_id))
            table.write(lines)
            groups += len(lines) - len(portion)
            last = portion[-1].keeper
            advance(len(portion))
    return ExportResult(path, groups, table.count, time.monotonic() - started)


def _with_keepers(
    rows: Iterable[DecisionRow], last: bytes | None, show: Callable[[bytes], Any]
) -> Iterator[Row]:
    """Yield the lines of rows that are sorted by keeper, with a line for each new keeper.

    Args:
        rows: The rows.
        last: The keeper of the row before the first.
        show: Returns a raw id as the table has it.
    """
    for row in rows:
        assert row.keeper is not None
        keeper = show(row.keeper)
        if row.keeper != last:
            yield keeper, keeper, KEEPER, 1.0
        last = row.keeper
        yield show(row.id), keeper, row.reason, row.similarity
