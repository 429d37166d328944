"""Explain: why two records match or not."""

from __future__ import annotations

from typing import Any

from dedup_job.commands.context import Context
from dedup_job.commands.named import record_named
from dedup_job.errors import UsageError
from dedup_job.lab import explanation
from dedup_job.ledger.fitting import check_fits
from dedup_job.mongo.ids import extended


def explain(context: Context, first: str, second: str) -> dict[str, Any]:
    """Return as JSON values why two records match or not; raises UsageError when one is nowhere."""
    head = context.ledger_reader().head()
    if head:
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
    return explanation.as_json((records[0], records[1]), prints, context.recipe)
