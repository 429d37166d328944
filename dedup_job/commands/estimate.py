"""Estimate: works on a sample as a run would, and says what a backfill of the whole collection would take."""

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
ROW_ON_DISK = 0.25  # of the bytes of a `dropped` row: its names compress
ROW_BYTES, ROW_IN_INDEX = 135, 32


def estimate(context: Context, records: int | None, advance: Advance) -> Forecast:
    """Forecast a backfill from a sample of so many records, or of as many as serve; writes nothing.

    `advance` is called with how many more were worked on.  The whole collection is meant, whatever the
    ledger says.  Raises ConfigError where there is nothing to sample.
    """
    sample = take(context, records)
    read = reading(context, sample)
    with context.engine() as engine:
        found = fingerprinted(context, engine, sample, advance)
        warnings = _first_look(context, sample, found.prints)
        done = decided(context, engine, sample, found.prints)
        worker = _worker_bytes(context.settings.engine.workers)
        sampled = _sampled(context, sample, done)
        growth = grown(context.keepers(context.source, engine), done.plans, sampled.texts)
    return Forecast(
        sampled=sampled,
        machine=Machine(
            context.settings.engine.workers, os.cpu_count() or 1, context.source.is_on_this_machine()
        ),
        costs=Costs(
            start=found.start,
            read=read,
            alone=found.alone,
            together=found.together,
            ship=found.ship,
            decide=done.seconds + growth.look_up,
            round_trip=_round_trip(context),
        ),
        sizes=Sizes(
            record=sample.batch.nbytes / len(sample),
            stored=_stored(sample),
            plan=_plan_bytes(done.plans),
            dropped=ROW_BYTES * ROW_ON_DISK + ROW_IN_INDEX,
            shingles=_shingle_bytes(found.prints),
            process=done.process,
            worker=worker,
            keepers=growth.nbytes,
        ),
        limits=_limits(context, sample),
        warnings=warnings,
    )


def _first_look(context: Context, sample: Sample, prints: Fingerprints) -> list[str]:
    """Return what would stop a run over records like these: too few can be judged."""
    notes = Notes()
    look = FirstLook(context.settings.limits.max_unjudged_share, notes, least=1)
    look.take(sample.batch.raws, prints.reasons)
    look.end()
    return notes.messages


def _sampled(context: Context, sample: Sample, decided: Trial) -> Sampled:
    """Return what the sample shows of the collection."""
    stretches: list[list[bytes]] = [[] for _ in range(max(sample.stretch) + 1)]
    kinds = Counter(verdict.reason for verdict in decided.verdicts if verdict.action is Action.DUPLICATE)
    for raw_id, number, verdict in zip(sample.batch.ids, sample.stretch, decided.verdicts, strict=True):
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
        wrong=_wrong(decided),
    )


def _wrong(decided: Trial) -> float:
    """Return how likely a keeper is a candidate for a record that it does not stand for.

    Each is counted once: one that keys find again and again is at hand from then on.
    """
    kept, found = 0, set[int]()
    for texts in (plan.texts for plan in decided.plans):
        own = decided.keepers.enter(texts.ids, texts).texts[texts.is_kept]  # all are there already
        candidates = decided.keepers.candidates(own, texts.keys[texts.is_kept])
        is_earlier = candidates.texts < np.repeat(own, np.diff(candidates.offsets))
        earlier = candidates.texts[is_earlier]
        found |= set(earlier[decided.keepers.standing(earlier)].tolist())
        kept += int(texts.is_kept.sum())
    return 2 * len(found) / max(1, kept) ** 2


def _worker_bytes(workers: int) -> int | None:
    """Return the most bytes that a worker holds, with its part of the process that all are forked from."""
    held = [nbytes for pid in family() if (nbytes := peak_bytes(pid))]
    return sum(held) // workers if held else None


def _plan_bytes(plans: Sequence[Plan]) -> float:
    """Return the bytes of a record's part of a plan, compressed about as a server does."""
    stored = (
        StoredPlan(PlanId(number, 0), None, "", BACKFILL, datetime.now(UTC), plan)
        for number, plan in enumerate(plans)
    )
    nbytes = sum(len(zlib.compress(b"".join(pack(one)[name] for name in COLUMNS), 1)) for one in stored)
    return nbytes / sum(map(len, plans))


def _stored(sample: Sample) -> float:
    """Return the bytes of a record on disk, compressed as in the source, with its entry in the index."""
    storage = sample.storage
    record = sample.batch.nbytes / len(sample)
    return record * storage.stored / max(1, storage.nbytes) + storage.ids / max(1, storage.records)


def _shingle_bytes(prints: Fingerprints) -> float:
    return prints.shingles.values.nbytes / len(prints)


def _round_trip(context: Context) -> float:
    times = []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        context.source.now()
        times.append(time.perf_counter() - began)
    return median(times)


def _limits(context: Context, sample: Sample) -> Limits:
    limits = context.settings.limits
    chunk_bytes = (limits.batch_mb << 20) / (sample.batch.nbytes / len(sample))
    return Limits(
        chunk=max(1, int(min(limits.batch_records, chunk_bytes, limits.max_docs_per_second or inf))),
        in_flight=limits.in_flight_mb << 20,
        cache=context.settings.match.cache_mb << 20,
        records_per_second=limits.max_docs_per_second or inf,
        bytes_per_second=(limits.max_mb_per_second or inf) * (1 << 20),
    )
