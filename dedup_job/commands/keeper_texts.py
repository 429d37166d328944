"""Look up the texts of dropped records and of their keepers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dedup_job.commands.context import Context, Records
from dedup_job.errors import ConfigError
from dedup_job.ledger.fitting import check_fits
from dedup_job.ledger.read_only import ReadOnlyTarget
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.selection import Decided

ROWS_AT_ONCE = 200  # ledger rows whose texts are fetched together


def ledger_of(context: Context) -> LedgerReader:
    """Return the ledger; raise ConfigError if nothing was decided, or with another recipe or source."""
    reader = context.ledger_reader()
    head = reader.head()
    if head is None or head.is_empty:
        raise ConfigError(f"nothing was decided for {context.target_name} yet; run backfill first")
    check_fits(head, context.origin)
    return reader


def portions(pages: Iterator[list[bytes]]) -> Iterator[list[Decided]]:
    """Decode raw rows; yield at most 200 at a time, so that their texts can be fetched together."""
    for page in pages:
        for first in range(0, len(page), ROWS_AT_ONCE):
            yield [Decided.read(row) for row in page[first : first + ROWS_AT_ONCE]]


def duplicates(context: Context, ids: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    """Yield the ids and texts of the source records that exist; "(reason)" for a record without a text."""
    return _fetch_texts(context, context.source, ids)


def keepers(context: Context, ids: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    """Yield the ids and texts of the kept records that exist, preferably from the target."""
    return _fetch_texts(context, ReadOnlyTarget(context.target, context.source), ids)


def _fetch_texts(context: Context, records: Records, ids: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    reader = context.recipe.reader
    for portion in records.fetch(list(dict.fromkeys(ids)), reader.fields.names):
        texts, reasons = reader.texts([*portion.values()])
        shown = [text or f"({reason})" for text, reason in zip(texts, reasons, strict=True)]
        yield from zip(portion, shown, strict=True)
