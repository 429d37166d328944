"""The trial: the sample is fingerprinted and decided as a run would, against the clock."""

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

PIECES_FOR_ONE = 8  # pieces that each worker gets when all work at once, so that they end together


@dataclass(frozen=True, slots=True)
class Fingerprinted:
    """The fingerprints of a sample, and what they took; see Costs."""

    prints: Fingerprints
    start: float
    alone: float
    together: float
    ship: float


@dataclass(frozen=True, slots=True)
class Trial:
    """What a run would have made of a sample.

    plans    by chunk
    keepers  what was kept
    seconds  for a record
    process  bytes that this process holds with little to remember
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
    """Return the seconds that a record of a page takes, as a run reads them; the pace not counted."""
    rates = []
    for start in sample.pages:
        began, waited = time.perf_counter(), context.source.waited
        page = next(context.source.batches(Window(start=start)), None)
        if page:
            rates.append((time.perf_counter() - began - (context.source.waited - waited)) / len(page))
    return median(rates) if rates else 0.0


def fingerprinted(context: Context, engine: LocalEngine, sample: Sample, advance: Advance) -> Fingerprinted:
    """Fingerprint some of the sample by one worker that is alone, and most of it by all workers at once.

    Before that every worker learns words.  No text is fingerprinted twice, as a worker would know it again.
    """
    workers, chunk = context.settings.engine.workers, context.settings.limits.batch_records
    pieces = list(sample.cut(min(chunk, -(-len(sample) // (workers * PIECES_FOR_ONE)))))
    taken: list[Fingerprints] = []

    def timed(some: Sequence[Batch], at_once: int) -> tuple[float, float]:
        """Return the seconds that a record takes, and the processor seconds of this process."""
        began, busy = time.perf_counter(), time.process_time()
        for first in range(0, len(some), at_once):
            for batch, prints in engine.fingerprinted(some[first : first + at_once]):
                taken.append(prints)
                advance(len(batch))
        count = sum(map(len, some))
        return (time.perf_counter() - began) / count, (time.process_time() - busy) / count

    began = time.perf_counter()
    engine.fingerprint(sample.batch.raws[:1])
    start = time.perf_counter() - began
    few = max(1, len(pieces) // 4)
    learning, lone, others = pieces[:few], pieces[few : 2 * few], pieces[2 * few :]
    together = timed(learning, len(learning))
    alone = timed(lone, 1) if lone else together
    together = timed(others, len(others)) if others else together
    return Fingerprinted(Fingerprints.join(taken), start, alone[0], together[0], alone[1])


def decided(context: Context, engine: LocalEngine, sample: Sample, prints: Fingerprints) -> Trial:
    """Decide the sample chunk by chunk, as a run does, after a first chunk on trial: code is loaded late."""
    chunk, matching = context.settings.limits.batch_records, context.recipe.matching
    cut, first = [], 0
    for batch in sample.cut(chunk):
        cut.append((batch, prints.take(range(first, first + len(batch)))))
        first += len(batch)
    job.in_memory(*cut[0], matching, context.keepers(context.source, engine))
    process = resident_bytes(os.getpid()) or int(peak_rss_mb() * (1 << 20))
    keepers = context.keepers(context.source, engine)
    began = time.perf_counter()
    plans = [job.in_memory(batch, prints, matching, keepers) for batch, prints in cut]
    seconds = (time.perf_counter() - began) / len(sample)
    return Trial(
        plans, keepers, seconds, max(0, process - sample.batch.nbytes - prints.shingles.values.nbytes)
    )
