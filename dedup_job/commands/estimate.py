"""`estimate`: try a sample, and forecast time, memory and disk of a backfill."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median

from dedup_job.analysis.forecast import (
    DIGEST_BYTES,
    Forecast,
    ResourceLimits,
    Seconds,
    Sizes,
    dropped_share,
    index_bytes,
)
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.ledger.plan_format import COLUMNS, PlanId, StoredPlan, pack
from dedup_job.mongo.pages import Window
from dedup_job.mongo.source import Storage
from dedup_job.pipeline import job
from dedup_job.pipeline.command_context import Context, read_rates
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.pipeline.guards import FirstRecordsGuard, WarningList
from dedup_job.pipeline.measure_and_limit_memory import family, peak_bytes, resident_bytes
from dedup_job.pipeline.sample_source import CollectionSample, read_sample, sample_size
from dedup_job.records import BACKFILL, Action, Plan
from dedup_job.report.progress import Advance
from dedup_job.report.run_summary import peak_rss_mb

# Pieces per worker in each half of the sample, so that all workers finish at about the same time.
PIECES_PER_WORKER = 4
ROUND_TRIPS = 3


@dataclass(slots=True)
class Trial:
    """A sample, fingerprinted and decided.

    Attributes:
        start: Seconds to start the workers.
        seconds: Per record, with all workers.
        busy: Processor seconds of this process per record.
        plans: The decisions.
        reasons: Why each record cannot be compared; "" if it can.
        shingle_bytes: Bytes of all shingles.
    """

    start: float = 0.0
    seconds: float = 0.0
    busy: float = 0.0
    plans: list[Plan] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    shingle_bytes: int = 0


def estimate(context: Context, records: int | None, advance: Advance) -> Forecast:
    """Forecast a backfill of the whole collection, whatever the ledger says; writes nothing.

    Args:
        context: The open connections.
        records: Records to sample; None for a number that suits the collection.
        advance: Called with the number of sampled records that were worked on since the last call.

    Raises:
        ConfigError: If there is nothing to sample.
    """
    storage = context.source.storage()
    sample = read_sample(context, records or sample_size(storage), storage.records)
    read = measure_reading(context, sample)
    with context.engine() as engine:
        trial = try_sample(context, engine, sample, advance)
        process = resident_bytes(os.getpid()) or int(peak_rss_mb() * (1 << 20))
        # Measured while the workers live: the peak of a process is gone with it.
        peaks = [nbytes for pid in family() if (nbytes := peak_bytes(pid))]
    verdicts = [verdict for plan in trial.plans for verdict in plan.verdicts]
    stretches: list[list[bytes]] = [[] for _ in range(max(sample.stretch) + 1)]
    for raw_id, number, verdict in zip(sample.batch.ids, sample.stretch, verdicts, strict=True):
        if verdict.action is not Action.UNCHECKED:
            stretches[number].append(verdict.match.keeper if verdict.match else raw_id)
    has_no_text = sum(v.action is Action.UNCHECKED or v.reason == "exact" for v in verdicts)
    return Forecast(
        source=context.source_name,
        records=sample.count,
        sampled=len(sample),
        stretches=len(stretches),
        distinct=1 - has_no_text / len(sample),
        dropped=dropped_share(sample.count, stretches, len(sample)),
        seconds_each=Seconds(trial.start, read, trial.seconds, trial.busy, _measure_round_trip(context)),
        sizes=Sizes(
            record=sample.batch.nbytes / len(sample),
            stored=_bytes_on_disk(sample, storage),
            plan=_plan_bytes(trial.plans),
            shingles=trial.shingle_bytes / len(sample),
            text=_text_bytes(context.recipe, sample),
            process=max(0, process - sample.batch.nbytes - trial.shingle_bytes),
            worker=sum(peaks) // context.settings.engine.workers if peaks else None,
        ),
        limits=_resource_limits(context, sample),
        warnings=_warnings_about_first_records(context, sample, trial),
    )


def measure_reading(context: Context, sample: CollectionSample) -> float:
    """Return the seconds per record that reading takes, without waits for the rate limit."""
    rates = []
    for start in sample.pages:
        began, waited = time.perf_counter(), context.source.waited
        page = next(context.source.batches(Window(start=start)), None)
        if page:
            rates.append((time.perf_counter() - began - (context.source.waited - waited)) / len(page))
    # The median: one page may come from a cold disk.
    return median(rates) if rates else 0.0


def try_sample(
    context: Context, engine: FingerprintWorkers, sample: CollectionSample, advance: Advance
) -> Trial:
    """Fingerprint and decide a sample as a run does, and time the second half.

    Args:
        context: The open connections.
        engine: The engine, started here.
        sample: The records.
        advance: Called with the number of records that were decided since the last call.
    """
    workers, chunk = context.settings.engine.workers, context.settings.limits.batch_records
    pieces = list(sample.cut(min(chunk, -(-len(sample) // (2 * workers * PIECES_PER_WORKER)))))
    keepers, matching, trial = context.keepers(context.source, engine), context.recipe.matching, Trial()
    began = time.perf_counter()
    # The first record starts the workers.
    engine.fingerprint(sample.batch.raws[:1])
    trial.start = time.perf_counter() - began
    # In the first half, each worker fills its caches of words, and compiled code is loaded.
    middle = len(pieces) // 2
    for half in (pieces[:middle], pieces[middle:]):
        began, busy = time.perf_counter(), time.process_time()
        for batch, prints in engine.fingerprint_batches(half):
            trial.plans.append(job.decide_in_memory(batch, prints, matching, keepers))
            trial.reasons += prints.reasons
            trial.shingle_bytes += prints.shingles.values.nbytes
            advance(len(batch))
        count = max(1, sum(map(len, half)))
        trial.seconds = (time.perf_counter() - began) / count
        trial.busy = (time.process_time() - busy) / count
    return trial


def _warnings_about_first_records(context: Context, sample: CollectionSample, trial: Trial) -> list[str]:
    """Return the warnings of the guard of the first records."""
    warnings = WarningList()
    share = context.settings.limits.max_unchecked_share
    guard = FirstRecordsGuard(context.recipe, share, warnings, warnings, judges_few=True)
    guard.add(sample.batch.raws, trial.reasons)
    guard.finish()
    return warnings.messages


def _plan_bytes(plans: Sequence[Plan]) -> float:
    """Return the bytes per record that plans take on disk, compressed about as well as by a server."""
    nbytes = 0
    for number, plan in enumerate(plans):
        columns = pack(StoredPlan(PlanId(number, 0), None, "", BACKFILL, datetime.now(UTC), plan))
        nbytes += len(zlib.compress(b"".join(columns[name] for name in COLUMNS), 1))
    return nbytes / sum(map(len, plans))


def _bytes_on_disk(sample: CollectionSample, storage: Storage) -> float:
    """Return the bytes per record on disk, compressed as in the source, with its entry in the `_id` index."""
    record = sample.batch.nbytes / len(sample)
    return record * storage.stored / max(1, storage.nbytes) + storage.ids / max(1, storage.records)


def _text_bytes(recipe: Recipe, sample: CollectionSample) -> float:
    """Return the bytes of a text in the index: its digest, fingerprint and keys, and its keeper's id."""
    # An id is a document with one unnamed element, which has 10 bytes beside the value.
    ids = sum(map(len, sample.batch.ids)) / len(sample) - 10
    return DIGEST_BYTES + index_bytes(recipe.bits, recipe.matching) + ids


def _measure_round_trip(context: Context) -> float:
    """Return the seconds of a command that does nothing, the median of three."""
    times = []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        context.source.now()
        times.append(time.perf_counter() - began)
    return median(times)


def _resource_limits(context: Context, sample: CollectionSample) -> ResourceLimits:
    limits, rates = context.settings.limits, read_rates(context.settings)
    # A batch is bounded by records and by bytes; with a rate limit, also by one second's worth.
    chunk_bytes = (limits.batch_mb << 20) / (sample.batch.nbytes / len(sample))
    return ResourceLimits(
        workers=context.settings.engine.workers,
        chunk=max(1, int(min(limits.batch_records, chunk_bytes, rates.records))),
        in_flight=limits.in_flight_mb << 20,
        cache=context.settings.match.cache_mb << 20,
        records_per_second=rates.records,
        bytes_per_second=rates.nbytes,
    )
