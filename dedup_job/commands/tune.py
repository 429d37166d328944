"""Tune: what bands of other shapes would find in the collection itself."""

from __future__ import annotations

from dataclasses import replace

from dedup_job.commands.context import Context, first_records
from dedup_job.document import Fingerprints
from dedup_job.errors import ConfigError
from dedup_job.lab import tuning
from dedup_job.lab.scoring import Setting
from dedup_job.lab.tune_page import Tuning
from dedup_job.mongo.window import Window
from dedup_job.report.progress import Advance

MOST_SHINGLES = 20_000_000  # in a sample: bounds its memory, whatever the size of the texts


def tune(context: Context, records: int, at: float, advance: Advance) -> Tuning:
    """Try bands of several shapes on the first records of the source; `advance` as in `Progress`."""
    sample = _sample(context, records, advance)
    present, pairs = Setting.of(context.recipe.matching), tuning.near_duplicates(sample, at)
    tried = tuning.grid(replace(present, min_similarity=at), sample.width)
    return Tuning(
        sample=sample,
        at=at,
        present=present,
        records=context.source.estimated_count(),
        pairs=pairs,
        rows=list(tuning.rows(sample, tried, pairs)),
        levels=list(tuning.levels(sample, present, at, pairs)),
    )


def _sample(context: Context, records: int, advance: Advance) -> tuning.Sample:
    """Fingerprint the first records, until they are enough."""
    taken: list[Fingerprints] = []
    shingles = 0
    with context.engine() as engine:
        for _, prints in engine.fingerprinted(first_records(context.source.batches(Window()), records)):
            taken.append(prints)
            advance(len(prints))
            shingles += len(prints.shingles.values)
            if shingles >= MOST_SHINGLES:
                break
    if not taken:
        raise ConfigError(f"{context.source_name} has no records to try settings on")
    sample = tuning.Sample.of(Fingerprints.join(taken))
    if not len(sample):
        reasons = ", ".join(sorted({reason for prints in taken for reason in prints.reasons}))
        raise ConfigError(f"no text in the first {sample.read:,} records ({reasons}); see [source] fields")
    return sample
