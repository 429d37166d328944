"""`estimate`: try a sample, and forecast time, memory and disk of a backfill."""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from statistics import median

import numpy as np

from dedup_job.commands.context import Context
from dedup_job.commands.guard import FirstLook, Notes
from dedup_job.commands.sample import Sample, take
from dedup_job.commands.trial import Trial, decided, fingerprinted, reading
from dedup_job.document import Action, Fingerprints
from dedup_job.engine.resident import family, peak_bytes
from dedup_job.lab.forecast import Costs, Forecast, Limits, Machine, Sampled, Sizes
from dedup_job.lab.growth import grown
from dedup_job.lab.unseen import Copies
from dedup_job.ledger.stored_plan import COLUMNS, PlanId, StoredPlan, pack
from dedup_job.plan import BACKFILL, Plan
from dedup_job.report.progress import Advance

ROUND_TRIPS = 3
ROW_BYTES, ROW_IN_INDEX = 135, 32  # of a row in `dropped`
ROW_ON_DISK = 0.25  # compression of such rows: field names repeat


def estimate(context: Context, records: int | None, advance: Advance) -> Forecast:
    """Forecast a backfill of the whole collection, whatever the ledger says; writes nothing.

    Args:
        context: The open connections.
        records: Records to sample; None for a number that suits the collection.
        advance: Called with the number of sampled records that were worked on since the last call.

    Raises:
        ConfigError: If there is nothing to sample.
    """
    sample = take(context, records)
    read = reading(context, sample)
    with context.engine() as engine:
        fingerprints = fingerprinted(context, engine, sample, advance)
        warnings = _warnings_about_first_records(context, sample, fingerprints.prints)
        trial = decided(context, engine, sample, fingerprints.prints)
        # Measured while the workers live: the peak of a process is gone with it.
        worker = _worker_bytes(context.settings.engine.workers)
        statistics = _sample_statistics(context, sample, trial)
        growth = grown(context.keepers(context.source, engine), trial.plans, statistics.texts)
    return Forecast(
        sampled=statistics,
        machine=Machine(
            context.settings.engine.workers, os.cpu_count() or 1, context.source.is_on_this_machine()
        ),
        costs=Costs(
            start=fingerprints.start,
            read=read,
            alone=fingerprints.alone,
            together=fingerprints.together,
            ship=fingerprints.ship,
            decide=trial.seconds + growth.look_up,
            round_trip=_measure_round_trip(context),
        ),
        sizes=Sizes(
            record=sample.batch.nbytes / len(sample),
            stored=_bytes_on_disk(sample),
            plan=_plan_bytes(trial.plans),
            dropped=ROW_BYTES * ROW_ON_DISK + ROW_IN_INDEX,
            shingles=fingerprints.prints.shingles.values.nbytes / len(fingerprints.prints),
            process=trial.process,
            worker=worker,
            keepers=growth.nbytes,
        ),
        limits=_resource_limits(context, sample),
        warnings=warnings,
    )


def _warnings_about_first_records(context: Context, sample: Sample, prints: Fingerprints) -> list[str]:
    """Return the warnings of the guard of the first records: whether too few records can be judged."""
    warnings = Notes()
    guard = FirstLook(context.settings.limits.max_unjudged_share, warnings, least=1)
    guard.add(sample.batch.raws, prints.reasons)
    guard.finish()
    return warnings.messages


def _sample_statistics(context: Context, sample: Sample, trial: Trial) -> Sampled:
    """Return the statistics of the sample that the forecast needs."""
    stretches: list[list[bytes]] = [[] for _ in range(max(sample.stretch) + 1)]
    kinds = Counter(verdict.reason for verdict in trial.verdicts if verdict.action is Action.DUPLICATE)
    for raw_id, number, verdict in zip(sample.batch.ids, sample.stretch, trial.verdicts, strict=True):
        if verdict.action is not Action.UNJUDGED:
            stretches[number].append(verdict.match.keeper if verdict.match else raw_id)
    judged = sum(map(len, stretches)) / len(sample)
    return Sampled(
        source=context.source_name,
        records=sample.count,
        read=len(sample),
        stretches=len(stretches),
        judged=judged,
        copies=Copies.of(round(sample.count * judged), stretches),
        near=kinds["near"] / kinds.total() if kinds else 0.5,
        wrong=_false_positive_rate(trial),
    )


def _false_positive_rate(trial: Trial) -> float:
    """Return the probability that a keeper is a candidate for a kept record.

    Such a candidate is a false positive: it is compared and is no duplicate.  Each is counted once, as the
    shingles of a frequent candidate stay cached.
    """
    kept, candidates_met = 0, set[int]()
    for texts in (plan.texts for plan in trial.plans):
        # Entering the texts again adds nothing, and returns their numbers.
        own = trial.keepers.enter(texts.ids, texts).texts[texts.is_kept]
        candidates = trial.keepers.candidates(own, texts.keys[texts.is_kept])
        is_earlier = candidates.texts < np.repeat(own, np.diff(candidates.offsets))
        earlier = candidates.texts[is_earlier]
        candidates_met |= set(earlier[trial.keepers.standing(earlier)].tolist())
        kept += int(texts.is_kept.sum())
    # n records form n * (n - 1) / 2, so about n ** 2 / 2, pairs.
    return 2 * len(candidates_met) / max(1, kept) ** 2


def _worker_bytes(workers: int) -> int | None:
    """Return the peak bytes of a worker, with its share of the fork server; None where nothing says."""
    peaks = [nbytes for pid in family() if (nbytes := peak_bytes(pid))]
    return sum(peaks) // workers if peaks else None


def _plan_bytes(plans: Sequence[Plan]) -> float:
    """Return the bytes per record that plans take on disk, compressed about as well as by a server."""
    nbytes = 0
    for number, plan in enumerate(plans):
        columns = pack(StoredPlan(PlanId(number, 0), None, "", BACKFILL, datetime.now(UTC), plan))
        nbytes += len(zlib.compress(b"".join(columns[name] for name in COLUMNS), 1))
    return nbytes / sum(map(len, plans))


def _bytes_on_disk(sample: Sample) -> float:
    """Return the bytes per record on disk, compressed as in the source, with its entry in the `_id` index."""
    storage = sample.storage
    record = sample.batch.nbytes / len(sample)
    return record * storage.stored / max(1, storage.nbytes) + storage.ids / max(1, storage.records)


def _measure_round_trip(context: Context) -> float:
    """Return the seconds of a command that does nothing, the median of three."""
    times = []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        context.source.now()
        times.append(time.perf_counter() - began)
    return median(times)


def _resource_limits(context: Context, sample: Sample) -> Limits:
    limits = context.settings.limits
    # A batch is bounded by records and by bytes; with a rate limit, also by one second's worth.
    chunk_bytes = (limits.batch_mb << 20) / (sample.batch.nbytes / len(sample))
    return Limits(
        chunk=max(1, int(min(limits.batch_records, chunk_bytes, limits.max_docs_per_second or inf))),
        in_flight=limits.in_flight_mb << 20,
        cache=context.settings.match.cache_mb << 20,
        records_per_second=limits.max_docs_per_second or inf,
        bytes_per_second=(limits.max_mb_per_second or inf) * (1 << 20),
    )
