"""Records that the ledger has rows on, read again: their texts, one at a time, and who stands for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dedup_job.commands.context import Context, Records
from dedup_job.errors import ConfigError
from dedup_job.ledger.fitting import check_fits
from dedup_job.ledger.read_only import ReadOnlyTarget
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.selection import Decided

ROWS_AT_ONCE = 200  # whose texts are looked up together


def ledger_of(context: Context) -> LedgerReader:
    """Return the ledger; raises ConfigError where nothing was decided, or by another recipe or source."""
    reader = context.ledger_reader()
    head = reader.head()
    if head is None or head.is_empty:
        raise ConfigError(f"nothing was decided for {context.target_name} yet; run backfill first")
    check_fits(head, context.origin)
    return reader


def portions(pages: Iterator[list[bytes]]) -> Iterator[list[Decided]]:
    """Yield what raw rows say, so many at a time that their texts can be looked up together."""
    for page in pages:
        for first in range(0, len(page), ROWS_AT_ONCE):
            yield [Decided.read(row) for row in page[first : first + ROWS_AT_ONCE]]


def duplicates(context: Context, ids: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    """Yield the ids and texts of those source records that are there; in brackets why one has no text."""
    return _texts(context, context.source, ids)


def keepers(context: Context, ids: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    """Yield the ids and texts of those kept records that are there, from the target if it has them."""
    return _texts(context, ReadOnlyTarget(context.target, context.source), ids)


def _texts(context: Context, records: Records, ids: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    reader = context.recipe.reader
    for found in records.fetch(list(dict.fromkeys(ids)), reader.fields.names):
        texts, reasons = reader.texts([*found.values()])
        shown = [text or f"({reason})" for text, reason in zip(texts, reasons, strict=True)]
        yield from zip(found, shown, strict=True)
