"""Explain: why two records match or not, and where their texts differ."""

from __future__ import annotations

from typing import Any

from dedup_job.commands.context import Context
from dedup_job.commands.named import record_named
from dedup_job.errors import UsageError
from dedup_job.lab import explanation
from dedup_job.ledger.fitting import check_fits
from dedup_job.mongo.shown_ids import extended
from dedup_job.report.differences import Gap, Piece, differences, excerpt

AROUND, LONGEST, MOST = 40, 300, 20_000  # characters beside a difference, of one, and of a text


def explain(context: Context, first: str, second: str, other_settings: str | None = None) -> dict[str, Any]:
    """Return as JSON values why two records match or not; raises UsageError when one is nowhere.

    other_settings  name of the file that they are explained by, if that is not to be the ledger's recipe
    """
    head = context.ledger_reader().head()
    if head and other_settings is None:
        check_fits(head, context.origin)
    one, other = (record_named(context, given) for given in (first, second))
    if one.id == other.id:
        raise UsageError(f"{first} and {second} are the same record; name two")
    with context.engine() as engine:
        prints = engine.fingerprint([one.raw, other.raw])
    # A record that killed its worker is not touched here.
    read = [
        "" if reason else context.recipe.reader.text(found.raw)
        for found, reason in zip((one, other), prints.reasons, strict=True)
    ]
    records = [
        explanation.Record(extended(found.id), found.place, text)
        for found, text in zip((one, other), read, strict=True)
    ]
    return {
        **explanation.as_json((records[0], records[1]), prints, context.recipe),
        "differences": None if any(prints.reasons) else compared(*read),
        "explained_by": {
            "settings": other_settings,
            "ledger_recipe": head.digest if head and not head.is_empty else None,
        },
    }


def compared(first: str, second: str) -> dict[str, Any]:
    """Return in how many places two texts differ, and each of these with what is around it."""
    pieces = differences(first, second)
    return {
        "places": sum(not piece.is_same for piece in pieces),
        "parts": [_part(part) for part in excerpt(pieces, AROUND, MOST, LONGEST)],
    }


def _part(part: Piece | Gap) -> dict[str, Any]:
    if isinstance(part, Gap):
        return {"left_out": [part.first, part.second], "same": part.is_same}
    return {"both": part.first} if part.is_same else {"first": part.first, "second": part.second}
