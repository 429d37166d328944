"""`tune`: show which near duplicates of the collection other band shapes and thresholds would find."""

from __future__ import annotations

from dataclasses import replace

from dedup_job.analysis.sample_trials import TextSample, TunedSample
from dedup_job.errors import ConfigError
from dedup_job.pipeline.command_context import Context
from dedup_job.pipeline.sample_source import read_sample
from dedup_job.records import Fingerprints
from dedup_job.report.progress import Advance
from dedup_job.within.group_separation import mix_groups

# Shingles of a sample; bounds its memory, whatever the size of the texts.
MOST_SHINGLES = 20_000_000


def tune(context: Context, records: int, at: float, advance: Advance) -> TunedSample:
    """Try bands of several shapes, and several thresholds, on a sample of the whole source.

    Args:
        context: The open connections.
        records: Records to read.
        at: Least similarity of two texts that count as near duplicates.
        advance: Called with the number of records that were fingerprinted since the last call.

    Raises:
        ConfigError: If the source has no records with text.
    """
    drawn = read_sample(context, records, context.source.estimated_count())
    parts: list[Fingerprints] = []
    shingles = 0
    with context.engine() as engine:
        for _, prints in engine.fingerprint_batches(drawn.cut(context.settings.limits.batch_records)):
            parts.append(prints)
            advance(len(prints))
            shingles += len(prints.shingles.values)
            if shingles >= MOST_SHINGLES:
                break
    prints = Fingerprints.join(parts)
    # The trials make their own keys, from plain sets.
    prints = replace(prints, shingles=mix_groups(prints.shingles, context.recipe.group_words))
    sample = TextSample.of(prints)
    if not len(sample):
        reasons = ", ".join(sorted({reason for prints in parts for reason in prints.reasons}))
        raise ConfigError(f"no text in a sample of {sample.read:,} records ({reasons}); see [source] fields")
    stretches = max(drawn.stretch) + 1
    present = context.recipe.matching
    return TunedSample.of(context.source_name, sample, stretches, at, present, drawn.count)
