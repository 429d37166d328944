"""`fit-idf`: learn from the collection how rare each term is."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from typing import Any

from dedup_job.errors import ConfigError
from dedup_job.fingerprint.idf import format_idf
from dedup_job.mongo.pages import Window
from dedup_job.pipeline.command_context import Context, first_records
from dedup_job.report.output_files import replace_file
from dedup_job.report.progress import Advance


@dataclass(frozen=True, slots=True)
class LearnedIdf:
    """The size and digest of an IDF table that was learned from the source."""

    texts: int
    terms: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def fit_idf(
    context: Context, output: Path, min_df: int, limit: int | None, advance: Advance = lambda number: None
) -> LearnedIdf:
    """Count the texts that contain each term, and write the table of inverse document frequencies.

    Args:
        context: The open connections.
        output: The file to write.
        min_df: Terms in fewer texts are left out.
        limit: Most records to read; None for all.
        advance: Called with the number of records whose terms were counted since the last call.

    Raises:
        ConfigError: If no term is left.
    """
    texts, frequencies = 0, Counter[str]()
    with context.engine() as engine:
        for count, terms in engine.count_terms(first_records(context.source.batches(Window()), limit)):
            texts += count
            frequencies += terms
            advance(count)
    if not frequencies:
        raise ConfigError(f"{context.source_name} has no text with a term; check [source] fields and filter")
    table = compute_idf(frequencies, texts, min_df)
    if not table:
        raise ConfigError(f"no term is in {min_df} texts of {context.source_name}; lower --min-df")
    content = format_idf(table, texts)
    replace_file(output, [content])
    return LearnedIdf(texts, len(table), hashlib.sha256(content.encode()).hexdigest())


def compute_idf(frequencies: Counter[str], texts: int, at_least: int = 2) -> dict[str, float]:
    """Compute the smoothed IDF of each term: 1 + ln((1 + n) / (1 + df)).

    The formula is that of scikit-learn's `TfidfTransformer(smooth_idf=True)`: a term in all texts has 1.0.

    Args:
        frequencies: The number of texts that contain each term.
        texts: The number of all texts.
        at_least: Leave out terms in fewer texts.
    """
    return {
        term: 1 + log((1 + texts) / (1 + count))
        for term, count in sorted(frequencies.items())
        if count >= at_least
    }
