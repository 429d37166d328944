"""Fingerprint and decide a sample as a run would, and measure the time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dedup_job import job
from dedup_job.commands.context import Context
from dedup_job.commands.sample import Sample
from dedup_job.document import Batch, Fingerprints, Verdict
from dedup_job.engine.local import LocalEngine
from dedup_job.engine.resident import resident_bytes
from dedup_job.match.keepers import Keepers
from dedup_job.mongo.window import Window
from dedup_job.plan import Plan
from dedup_job.report.progress import Advance
from dedup_job.report.summary import peak_rss_mb

PIECES_FOR_ONE = 8  # pieces per worker when all work at once, so that they finish at about the same time


@dataclass(frozen=True, slots=True)
class Fingerprinted:
    """The fingerprints of a sample, and the seconds they took; see `Costs`."""

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


def reading(context: Context, sample: Sample) -> float:
    """Return the seconds per record that reading takes, without the waiting that a rate limit causes."""
    rates = []
    for start in sample.pages:
        began, waited = time.perf_counter(), context.source.waited
        page = next(context.source.batches(Window(start=start)), None)
        if page:
            rates.append((time.perf_counter() - began - (context.source.waited - waited)) / len(page))
    # The median: one page may come from a cold disk.
    return median(rates) if rates else 0.0


def fingerprinted(context: Context, engine: LocalEngine, sample: Sample, advance: Advance) -> Fingerprinted:
    """Fingerprint a sample: a quarter to warm up, a quarter by one worker alone, the rest by all workers.

    Args:
        context: The open connections.
        engine: The engine, started here.
        sample: The records. None is fingerprinted twice, as workers cache recent texts.
        advance: Called with the number of records that were fingerprinted since the last call.
    """
    workers, chunk = context.settings.engine.workers, context.settings.limits.batch_records
    pieces = list(sample.cut(min(chunk, -(-len(sample) // (workers * PIECES_FOR_ONE)))))
    taken: list[Fingerprints] = []

    def measure(batches: Sequence[Batch], at_once: int) -> tuple[float, float]:
        """Return the seconds, and this process's processor seconds, per record."""
        began, busy = time.perf_counter(), time.process_time()
        for first in range(0, len(batches), at_once):
            for batch, prints in engine.fingerprinted(batches[first : first + at_once]):
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
    return Fingerprinted(Fingerprints.join(taken), start, alone[0], together[0], alone[1])


def decided(context: Context, engine: LocalEngine, sample: Sample, prints: Fingerprints) -> Trial:
    """Decide a sample chunk by chunk, as a run does."""
    chunk, matching = context.settings.limits.batch_records, context.recipe.matching
    chunks, first = [], 0
    for batch in sample.cut(chunk):
        chunks.append((batch, prints.take(range(first, first + len(batch)))))
        first += len(batch)
    # One chunk on trial first, as compiled code is loaded when it is first called.
    job.in_memory(*chunks[0], matching, context.keepers(context.source, engine))
    process = resident_bytes(os.getpid()) or int(peak_rss_mb() * (1 << 20))
    keepers = context.keepers(context.source, engine)
    began = time.perf_counter()
    plans = [job.in_memory(batch, prints, matching, keepers) for batch, prints in chunks]
    seconds = (time.perf_counter() - began) / len(sample)
    return Trial(
        plans, keepers, seconds, max(0, process - sample.batch.nbytes - prints.shingles.values.nbytes)
    )
