"""Fit IDF: how much each term says, learned from the collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dedup_job.commands.context import Context, first_records
from dedup_job.errors import ConfigError
from dedup_job.fingerprint.idf import learned_idf, write_idf
from dedup_job.fingerprint.recipe import Resource
from dedup_job.mongo.window import Window


@dataclass(frozen=True, slots=True)
class LearnedIdf:
    """An IDF table that was learned from the source."""

    texts: int
    terms: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def fit_idf(context: Context, output: Path, min_df: int, limit: int | None) -> LearnedIdf:
    """Count in how many texts each term is, and write the table; raises ConfigError where there is none."""
    texts, frequencies = 0, Counter[str]()
    with context.engine() as engine:
        for number, counted in engine.counted_terms(first_records(context.source.batches(Window()), limit)):
            texts += number
            frequencies += counted
    table = learned_idf(frequencies, texts, min_df)
    if not table:
        raise ConfigError(f"no term is in {min_df} texts of {context.source_name}; lower --min-df")
    write_idf(output, table, texts)
    return LearnedIdf(texts, len(table), Resource.at(output).sha256)
