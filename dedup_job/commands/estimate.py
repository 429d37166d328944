"""`estimate`: try a sample, and forecast time, memory and disk of a backfill."""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from statistics import median

import numpy as np

from dedup_job.analysis.duplicate_rate import SampledCopies
from dedup_job.analysis.forecast import Costs, Forecast, Machine, ResourceLimits, SampleStatistics, Sizes
from dedup_job.analysis.index_cost import measure_index_cost
from dedup_job.index.keepers import Keepers
from dedup_job.ledger.plan_format import COLUMNS, PlanId, StoredPlan, pack
from dedup_job.mongo.id_window import Window
from dedup_job.pipeline import job
from dedup_job.pipeline.context import Context
from dedup_job.pipeline.guards import UncheckedGuard, WarningList
from dedup_job.pipeline.local_engine import LocalEngine
from dedup_job.pipeline.process_memory import family, peak_bytes, resident_bytes
from dedup_job.pipeline.sample import CollectionSample, read_sample
from dedup_job.records import BACKFILL, Action, Batch, Fingerprints, Plan, Verdict, chunked
from dedup_job.report.progress import Advance
from dedup_job.report.run_summary import peak_rss_mb

# Pieces per worker when all work at once, so that they finish at about the same time.
PIECES_PER_WORKER = 8


@dataclass(frozen=True, slots=True)
class FingerprintedSample:
    """The fingerprints of a sample, and the seconds they took; see `Costs`.

    Attributes:
        prints: The fingerprints.
        start: Seconds to start the workers.
        alone: Seconds per record with one worker.
        together: Seconds per record with all workers.
        ship: Processor seconds of this process per record.
    """

    prints: Fingerprints
    start: float
    alone: float
    together: float
    ship: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A sample, decided.

    Attributes:
        plans: A plan for each chunk.
        keepers: The kept texts.
        seconds: Time to decide a record.
        process: Bytes of this process while it has few keepers.
    """

    plans: Sequence[Plan]
    keepers: Keepers
    seconds: float
    process: int

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts, in the order of the sample."""
        return [verdict for plan in self.plans for verdict in plan.verdicts]


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


def fingerprint_sample(
    context: Context, engine: LocalEngine, sample: CollectionSample, advance: Advance
) -> FingerprintedSample:
    """Fingerprint a sample: a quarter to warm up, a quarter by one worker alone, the rest by all workers.

    Args:
        context: The open connections.
        engine: The engine, started here.
        sample: The records. None is fingerprinted twice, as workers cache recent texts.
        advance: Called with the number of records that were fingerprinted since the last call.
    """
    workers, chunk = context.settings.engine.workers, context.settings.limits.batch_records
    pieces = list(sample.cut(min(chunk, -(-len(sample) // (workers * PIECES_PER_WORKER)))))
    taken: list[Fingerprints] = []

    def measure(batches: Sequence[Batch], at_once: int) -> tuple[float, float]:
        """Return the seconds, and this process's processor seconds, per record."""
        began, busy = time.perf_counter(), time.process_time()
        for some in chunked(batches, at_once):
            for batch, prints in engine.fingerprint_batches(some):
                taken.append(prints)
                advance(len(batch))
        count = sum(map(len, batches))
        return (time.perf_counter() - began) / count, (time.process_time() - busy) / count

    began = time.perf_counter()
    # The first record starts the workers.
    engine.fingerprint(sample.batch.raws[:1])
    start = time.perf_counter() - began
    few = max(1, len(pieces) // 4)
    # Each worker fills its caches of words with the first pieces, so the later measurements are steady.
    warm_up, lone, others = pieces[:few], pieces[few : 2 * few], pieces[2 * few :]
    together = measure(warm_up, len(warm_up))
    alone = measure(lone, 1) if lone else together
    together = measure(others, len(others)) if others else together
    return FingerprintedSample(Fingerprints.join(taken), start, alone[0], together[0], alone[1])


def decide_sample(
    context: Context, engine: LocalEngine, sample: CollectionSample, prints: Fingerprints
) -> Trial:
    """Decide a sample chunk by chunk, as a run does."""
    chunk, matching = context.settings.limits.batch_records, context.recipe.matching
    chunks, first = [], 0
    for batch in sample.cut(chunk):
        chunks.append((batch, prints.take(range(first, first + len(batch)))))
        first += len(batch)
    # One chunk on trial first, as compiled code is loaded when it is first called.
    job.decide_in_memory(*chunks[0], matching, context.keepers(context.source, engine))
    process = resident_bytes(os.getpid()) or int(peak_rss_mb() * (1 << 20))
    keepers = context.keepers(context.source, engine)
    began = time.perf_counter()
    plans = [job.decide_in_memory(batch, prints, matching, keepers) for batch, prints in chunks]
    seconds = (time.perf_counter() - began) / len(sample)
    return Trial(
        plans, keepers, seconds, max(0, process - sample.batch.nbytes - prints.shingles.values.nbytes)
    )


ROUND_TRIPS = 3
# Bytes of a row in `dropped`, and of its entry in an index.
ROW_BYTES, ROW_IN_INDEX = 135, 32
# Compression of such rows: field names repeat.
ROW_ON_DISK = 0.25


def estimate(context: Context, records: int | None, advance: Advance) -> Forecast:
    """Forecast a backfill of the whole collection, whatever the ledger says; writes nothing.

    Args:
        context: The open connections.
        records: Records to sample; None for a number that suits the collection.
        advance: Called with the number of sampled records that were worked on since the last call.

    Raises:
        ConfigError: If there is nothing to sample.
    """
    sample = read_sample(context, records)
    read = measure_reading(context, sample)
    with context.engine() as engine:
        fingerprints = fingerprint_sample(context, engine, sample, advance)
        warnings = _warnings_about_first_records(context, sample, fingerprints.prints)
        trial = decide_sample(context, engine, sample, fingerprints.prints)
        # Measured while the workers live: the peak of a process is gone with it.
        worker = _worker_bytes(context.settings.engine.workers)
        statistics = _sample_statistics(context, sample, trial)
        growth = measure_index_cost(context.keepers(context.source, engine), trial.plans, statistics.texts)
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


def _warnings_about_first_records(
    context: Context, sample: CollectionSample, prints: Fingerprints
) -> list[str]:
    """Return the warnings of the guard of the first records: whether too few records can be judged."""
    warnings = WarningList()
    guard = UncheckedGuard(context.settings.limits.max_unchecked_share, warnings, least=1)
    guard.add(sample.batch.raws, prints.reasons)
    guard.finish()
    return warnings.messages


def _sample_statistics(context: Context, sample: CollectionSample, trial: Trial) -> SampleStatistics:
    """Return the statistics of the sample that the forecast needs."""
    stretches: list[list[bytes]] = [[] for _ in range(max(sample.stretch) + 1)]
    kinds = Counter(verdict.reason for verdict in trial.verdicts if verdict.action is Action.DUPLICATE)
    for raw_id, number, verdict in zip(sample.batch.ids, sample.stretch, trial.verdicts, strict=True):
        if verdict.action is not Action.UNCHECKED:
            stretches[number].append(verdict.match.keeper if verdict.match else raw_id)
    judged = sum(map(len, stretches)) / len(sample)
    return SampleStatistics(
        source=context.source_name,
        records=sample.count,
        read=len(sample),
        stretches=len(stretches),
        judged=judged,
        copies=SampledCopies.of(round(sample.count * judged), stretches),
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
        own = trial.keepers.add_texts(texts.ids, texts).texts[texts.is_kept]
        candidates = trial.keepers.candidates(own, texts.keys[texts.is_kept])
        is_earlier = candidates.texts < np.repeat(own, np.diff(candidates.offsets))
        earlier = candidates.texts[is_earlier]
        candidates_met |= set(earlier[trial.keepers.have_keeper(earlier)].tolist())
        kept += int(texts.is_kept.sum())
    # n records form n * (n - 1) / 2, so about n ** 2 / 2, pairs.
    return 2 * len(candidates_met) / max(1, kept) ** 2


def _worker_bytes(workers: int) -> int | None:
    """Return the peak bytes of a worker, with its share of the fork server; None without /proc."""
    peaks = [nbytes for pid in family() if (nbytes := peak_bytes(pid))]
    return sum(peaks) // workers if peaks else None


def _plan_bytes(plans: Sequence[Plan]) -> float:
    """Return the bytes per record that plans take on disk, compressed about as well as by a server."""
    nbytes = 0
    for number, plan in enumerate(plans):
        columns = pack(StoredPlan(PlanId(number, 0), None, "", BACKFILL, datetime.now(UTC), plan))
        nbytes += len(zlib.compress(b"".join(columns[name] for name in COLUMNS), 1))
    return nbytes / sum(map(len, plans))


def _bytes_on_disk(sample: CollectionSample) -> float:
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


def _resource_limits(context: Context, sample: CollectionSample) -> ResourceLimits:
    limits = context.settings.limits
    # A batch is bounded by records and by bytes; with a rate limit, also by one second's worth.
    chunk_bytes = (limits.batch_mb << 20) / (sample.batch.nbytes / len(sample))
    return ResourceLimits(
        chunk=max(1, int(min(limits.batch_records, chunk_bytes, limits.max_docs_per_second or inf))),
        in_flight=limits.in_flight_mb << 20,
        cache=context.settings.match.cache_mb << 20,
        records_per_second=limits.max_docs_per_second or inf,
        bytes_per_second=(limits.max_mb_per_second or inf) * (1 << 20),
    )
