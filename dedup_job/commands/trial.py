"""The trial: the sample is fingerprinted and decided as a run would, against the clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from dedup_job import job
from dedup_job.commands.context import Context
from dedup_job.commands.sample import Sample
from dedup_job.document import Fingerprints, Verdict
from dedup_job.engine.local import LocalEngine
from dedup_job.engine.resident import resident_bytes
from dedup_job.match.keepers import Keepers
from dedup_job.mongo.window import Window
from dedup_job.plan import Plan
from dedup_job.report.summary import peak_rss_mb

PIECES_FOR_ONE = 8  # pieces that each worker gets when all work at once, so that they end together
CHUNKS_ALONE = 3

Told = Callable[[int], object]


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


def fingerprinted(context: Context, engine: LocalEngine, sample: Sample, told: Told) -> Fingerprinted:
    """Fingerprint the sample with all workers at once, and some of it by one worker that is alone."""
    workers, chunk = context.settings.engine.workers, context.settings.limits.batch_records
    began = time.perf_counter()
    engine.fingerprint(sample.batch.raws[:1])
    start = time.perf_counter() - began
    piece = min(chunk, -(-len(sample) // (workers * PIECES_FOR_ONE)))
    for _ in engine.fingerprinted(islice(sample.cut(piece), workers)):
        pass  # every worker learns words
    began = time.perf_counter()
    taken = []
    for batch, prints in engine.fingerprinted(sample.cut(piece)):
        taken.append(prints)
        told(len(batch))
    together = (time.perf_counter() - began) / len(sample)
    some = list(islice(sample.cut(chunk), CHUNKS_ALONE))
    began, busy = time.perf_counter(), time.process_time()
    for batch in some:
        engine.fingerprint(batch.raws)
    count = sum(map(len, some))
    alone, ship = (time.perf_counter() - began) / count, (time.process_time() - busy) / count
    return Fingerprinted(Fingerprints.join(taken), start, alone, together, ship)


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
