"""`compare`: show why two records match or not, and where their texts differ."""

from __future__ import annotations

from typing import Any

from dedup_job.analysis.pair_explanation import ComparedRecord, explanation_json
from dedup_job.commands.record_lookup import find_record, group_json
from dedup_job.errors import UsageError
from dedup_job.ledger.settings_fit_ledger import check_fits
from dedup_job.mongo.ids import extended
from dedup_job.pipeline.command_context import Context
from dedup_job.report.differences import cut_excerpt, diff_texts, part_json

# Characters shown on each side of a difference.
AROUND = 40
# Characters shown of one difference.
LONGEST = 300
# Characters shown of a text.
MOST = 20_000


def compare(context: Context, first: str, second: str, other_settings: str | None = None) -> dict[str, Any]:
    """Compare two records: why they match or not, as JSON values.

    Args:
        context: The open connections.
        first: Id of the earlier record.
        second: Id of the later record.
        other_settings: Name of the settings file whose recipe is used instead of the ledger's.

    Raises:
        UsageError: If one of the records does not exist, or both are the same record.
        ConfigError: If the settings do not fit the ledger, and no other file was named.
    """
    head = context.ledger_reader().head()
    if head and other_settings is None:
        check_fits(head, context.origin)
    named = (find_record(context, first), find_record(context, second))
    if named[0].id == named[1].id:
        raise UsageError(f"{first} and {second} are the same record; name two")
    with context.engine() as engine:
        prints = engine.fingerprint([record.raw for record in named])
    reader, records = context.recipe.reader, []
    for record, reason in zip(named, prints.reasons, strict=True):
        # A record that killed its worker must not be parsed in this process.
        text = "" if reason else reader.texts([record.raw])[0]
        group = {} if reason else group_json(reader.fields, record.raw)
        records.append(ComparedRecord(extended(record.id), record.place, text, group))
    texts = [record.text for record in records]
    return {
        **explanation_json(records, prints, context.recipe),
        "differences": None if any(prints.reasons) else describe_differences(*texts),
        "compared_by": {
            "settings": other_settings,
            "ledger_recipe": head.digest if head and not head.is_empty else None,
        },
    }


def describe_differences(first: str, second: str) -> dict[str, Any]:
    """Return the number of differences between two texts, and each difference with its surroundings."""
    pieces = diff_texts(first, second)
    return {
        "places": sum(not piece.is_same for piece in pieces),
        "parts": [part_json(part, "first", "second") for part in cut_excerpt(pieces, AROUND, MOST, LONGEST)],
    }
