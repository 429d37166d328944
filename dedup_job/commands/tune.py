"""`tune`: show which near duplicates of the collection other band shapes and thresholds would find."""

from __future__ import annotations

from dataclasses import replace

from dedup_job.analysis import settings_trials
from dedup_job.analysis.scores import TunedSettings
from dedup_job.analysis.tune_tables import TuneTables
from dedup_job.errors import ConfigError
from dedup_job.mongo.id_window import Window
from dedup_job.pipeline.context import Context, first_records
from dedup_job.records import Fingerprints
from dedup_job.report.progress import Advance

# Shingles of a sample; bounds its memory, whatever the size of the texts.
MOST_SHINGLES = 20_000_000


def tune(context: Context, records: int, at: float, advance: Advance) -> TuneTables:
    """Try bands of several shapes, and several thresholds, on the first records of the source.

    Args:
        context: The open connections.
        records: Records to read.
        at: Least similarity of two texts that count as near duplicates.
        advance: Called with the number of records that were read since the last call.

    Raises:
        ConfigError: If the source has no records with text.
    """
    sample = _read_sample(context, records, advance)
    present, pairs = (
        TunedSettings.of(context.recipe.matching),
        settings_trials.count_near_duplicates(sample, at),
    )
    tried = settings_trials.bands_to_try(replace(present, min_similarity=at), sample.width)
    return TuneTables(
        sample=sample,
        at=at,
        present=present,
        records=context.source.estimated_count(),
        pairs=pairs,
        rows=list(settings_trials.try_bands(sample, tried, pairs)),
        levels=list(settings_trials.try_thresholds(sample, present, at, pairs)),
    )


def _read_sample(context: Context, records: int, advance: Advance) -> settings_trials.TextSample:
    """Read and fingerprint the first records, within a bounded number of shingles."""
    parts: list[Fingerprints] = []
    shingles = 0
    with context.engine() as engine:
        for _, prints in engine.fingerprint_batches(first_records(context.source.batches(Window()), records)):
            parts.append(prints)
            advance(len(prints))
            shingles += len(prints.shingles.values)
            if shingles >= MOST_SHINGLES:
                break
    if not parts:
        raise ConfigError(f"{context.source_name} has no records to try settings on")
    sample = settings_trials.TextSample.of(Fingerprints.join(parts))
    if not len(sample):
        reasons = ", ".join(sorted({reason for prints in parts for reason in prints.reasons}))
        raise ConfigError(f"no text in the first {sample.read:,} records ({reasons}); see [source] fields")
    return sample
