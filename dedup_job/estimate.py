"""Estimate: works on a sample of the collection as a run would, and says what a backfill of all would take.

The sample is made of stretches that begin at ids drawn at random and spread evenly.  A run reads in `_id`
order, and a stretch is read as a run reads; records drawn one by one would be read at another speed, and the
first records alone are the oldest ones, which need not be like the rest.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from math import inf
from statistics import median

import numpy as np
import numpy.typing as npt

from dedup_job import job
from dedup_job.document import UNIQUE, Action, Batch, Fingerprints, Ragged, Verdict
from dedup_job.engine.local import LocalEngine
from dedup_job.engine.resident import family, held
from dedup_job.errors import ConfigError
from dedup_job.match.keepers import Keepers
from dedup_job.mongo.plans import BACKFILL, COLUMNS, PlanId, StoredPlan, pack
from dedup_job.mongo.source import Storage
from dedup_job.mongo.window import Window
from dedup_job.plan import Plan
from dedup_job.report.forecast import Costs, Forecast, Limits, Machine, Sampled, Sizes
from dedup_job.report.summary import peak_rss_mb
from dedup_job.report.unseen import Copies
from dedup_job.wiring import Parts, first_records

LEAST, MOST = 5_000, 50_000  # records of a sample, where nobody says how many
PAIRS_SEEN = (
    6  # a sample of so many square roots of the collection sees dozens of pairs, if a third are copies
)
MOST_BYTES = 64 << 20
STRETCHES = 50
DRAWN_FOR_ONE = 20  # of so many ids drawn, one begins a stretch: that spreads them evenly
PAGES_TIMED = 5
PIECES_FOR_ONE = 8  # pieces that each worker gets when all work at once, so that they end together
CHUNKS_ALONE = 3
LARGEST_TRIAL = 400_000  # made-up keepers, to time look-ups among
TRIAL_PLAN = 5_000
TRIES = 3

ROW_ON_DISK = 0.25  # of the bytes of a `dropped` row: its names compress
ROW_BYTES, ROW_IN_INDEX = 135, 32

Told = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Sample:
    """Records of the collection, in `_id` order.

    count    records of the whole collection, about
    storage  what it takes
    batch    the records
    stretch  the number of the stretch that each of them comes from
    starts   the ids that the stretches begin at
    """

    count: int
    storage: Storage
    batch: Batch
    stretch: Sequence[int]
    starts: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.batch)

    def cut(self, length: int) -> Iterator[Batch]:
        """Yield the records in batches of so many."""
        ids, raws = self.batch.ids, self.batch.raws
        for first in range(0, len(self), length):
            yield Batch(ids[first : first + length], raws[first : first + length])


@dataclass(frozen=True, slots=True)
class Fingerprinted:
    """The fingerprints of a sample, and what they took; see Costs."""

    prints: Fingerprints
    start: float
    alone: float
    together: float
    ship: float


@dataclass(frozen=True, slots=True)
class Decided:
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


@dataclass(frozen=True, slots=True)
class Growth:
    """What many keepers cost: seconds for a look-up when half of them are there, bytes when all are."""

    look_up: float
    nbytes: int


def estimate(parts: Parts, records: int | None, told: Told) -> Forecast:
    """Forecast a backfill from a sample of so many records, or of as many as serve; writes nothing.

    `told` of how many more were worked on.  The whole collection is meant, whatever the ledger says.  Raises
    ConfigError where there is nothing to sample.
    """
    sample = _sample(parts, records)
    reading = _reading(parts, sample)
    with parts.engine() as engine:
        found = _fingerprinted(parts, engine, sample, told)
        decided = _decided(parts, engine, sample, found.prints)
        worker = max((nbytes for pid in family() if (nbytes := held(pid))), default=None)
        sampled = _sampled(parts, sample, decided)
        growth = _growth(parts.keepers(parts.source.fetch, engine), found.prints, decided, sampled.unique)
    return Forecast(
        sampled=sampled,
        machine=Machine(
            parts.settings.engine.workers, os.cpu_count() or 1, parts.source.is_on_this_machine()
        ),
        costs=Costs(
            start=found.start,
            read=reading,
            alone=found.alone,
            together=found.together,
            ship=found.ship,
            decide=decided.seconds + growth.look_up,
            round_trip=_round_trip(parts),
        ),
        sizes=Sizes(
            record=sample.batch.nbytes / len(sample),
            stored=_stored(sample),
            plan=_plan_bytes(parts, decided.plans),
            dropped=ROW_BYTES * ROW_ON_DISK + ROW_IN_INDEX,
            shingles=_shingle_bytes(found.prints),
            process=decided.process,
            worker=worker,
            keepers=growth.nbytes,
        ),
        limits=_limits(parts),
    )


def enough(storage: Storage) -> int:
    """Return how many records to sample: more of a larger collection, and a bounded number of bytes."""
    wanted = min(MOST, max(LEAST, PAIRS_SEEN * storage.records**0.5))
    size = storage.nbytes / storage.records if storage.records else 0.0
    return max(STRETCHES, int(min(wanted, MOST_BYTES / max(1.0, size))))


def _sample(parts: Parts, asked: int | None) -> Sample:
    """Take so many records in stretches; all of them where they are not twice as many."""
    storage = parts.source.storage()
    wanted = asked or enough(storage)
    tried = min(storage.records, min(STRETCHES, wanted) * DRAWN_FOR_ONE)
    drawn = parts.source.drawn(tried) if tried else []
    if not drawn:
        raise ConfigError(f"{parts.source_name}: found no records to estimate from; see [source] filter")
    count = storage.records
    if parts.settings.source.condition:
        count = round(count * len(drawn) / tried)
    if count <= 2 * wanted:
        batches = list(first_records(parts.source.batches(Window()), 4 * wanted))
        starts, count = drawn[:1], sum(map(len, batches))
    else:
        starts = drawn[DRAWN_FOR_ONE // 2 :: DRAWN_FOR_ONE] or drawn[:1]
        batches = [parts.source.stretch(start, -(-wanted // len(starts))) for start in starts]
    # Stretches may run into one another; a record belongs to the first.
    rows = {
        raw_id: (number, raw)
        for number, batch in reversed(list(enumerate(batches)))
        for raw_id, raw in zip(batch.ids, batch.raws, strict=True)
    }
    order = list(dict.fromkeys(raw_id for batch in batches for raw_id in batch.ids))
    return Sample(
        count=count,
        storage=storage,
        batch=Batch(order, [rows[raw_id][1] for raw_id in order]),
        stretch=[rows[raw_id][0] if count > len(order) else 0 for raw_id in order],
        starts=starts,
    )


def _reading(parts: Parts, sample: Sample) -> float:
    """Return the seconds that a record of a page takes, as a run reads them; the pace not counted."""
    rates = []
    step = -(-len(sample.starts) // PAGES_TIMED)
    for start in sample.starts[::step]:
        began, waited = time.perf_counter(), parts.source.waited
        page = next(parts.source.batches(Window(start=start)), None)
        if page:
            rates.append((time.perf_counter() - began - (parts.source.waited - waited)) / len(page))
    return median(rates) if rates else 0.0


def _fingerprinted(parts: Parts, engine: LocalEngine, sample: Sample, told: Told) -> Fingerprinted:
    """Fingerprint the sample with all workers at once, and some of it by one worker that is alone."""
    workers, chunk = parts.settings.engine.workers, parts.settings.limits.batch_records
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


def _decided(parts: Parts, engine: LocalEngine, sample: Sample, prints: Fingerprints) -> Decided:
    """Decide the sample chunk by chunk, as a run does, after a first chunk on trial: code is loaded late."""
    chunk = parts.settings.limits.batch_records
    cut, first = [], 0
    for batch in sample.cut(chunk):
        cut.append((batch, prints.take(range(first, first + len(batch)))))
        first += len(batch)
    _plan(*cut[0], parts, parts.keepers(parts.source.fetch, engine))
    process = held(os.getpid()) or int(peak_rss_mb() * (1 << 20))
    keepers = parts.keepers(parts.source.fetch, engine)
    began = time.perf_counter()
    plans = [_plan(batch, prints, parts, keepers) for batch, prints in cut]
    seconds = (time.perf_counter() - began) / len(sample)
    return Decided(
        plans, keepers, seconds, max(0, process - sample.batch.nbytes - prints.shingles.values.nbytes)
    )


def _plan(batch: Batch, prints: Fingerprints, parts: Parts, keepers: Keepers) -> Plan:
    """Decide a chunk and take its keepers in."""
    matching = parts.recipe.matching
    verdicts = job.decide(batch.ids, prints, matching, keepers)
    plan = job.planned(batch, prints, verdicts, matching)
    keepers.admit(plan, prints.shingles)
    return plan


def _sampled(parts: Parts, sample: Sample, decided: Decided) -> Sampled:
    """Return what the sample shows of the collection."""
    stretches: list[list[bytes]] = [[] for _ in range(max(sample.stretch) + 1)]
    kinds = Counter(verdict.reason for verdict in decided.verdicts if verdict.action is Action.DUPLICATE)
    for raw_id, number, verdict in zip(sample.batch.ids, sample.stretch, decided.verdicts, strict=True):
        if verdict.action is not Action.PASSED:
            stretches[number].append(verdict.match.keeper if verdict.match else raw_id)
    judged = sum(map(len, stretches)) / len(sample)
    return Sampled(
        source=parts.source_name,
        records=sample.count,
        read=len(sample),
        stretches=len(stretches),
        judged=judged,
        copies=Copies.of(round(sample.count * judged), stretches),
        near=kinds["near"] / kinds.total() if kinds else 0.5,
        wrong=_wrong(decided),
    )


def _wrong(decided: Decided) -> float:
    """Return how likely a keeper lies within the radius of a record that it does not stand for."""
    bits = [plan.bits[row] for plan in decided.plans for row in plan.rows(Action.UNIQUE) if plan.near[row]]
    if len(bits) < 2:
        return 0.0
    within = len(decided.keepers.near(np.stack(bits)).positions) - len(bits)  # each is near itself
    return within / len(bits) ** 2


def _growth(keepers: Keepers, prints: Fingerprints, decided: Decided, unique: float) -> Growth:
    """Fill an index with made-up keepers, half as many as there will be or as many as serve, and look up."""
    half = int(unique / 2)
    trial = min(half, LARGEST_TRIAL)
    lengths = np.concatenate([np.diff(plan.prefixes.offsets) for plan in decided.plans])
    model = _Model(decided.plans[0], float(prints.near.mean()), lengths)
    marks = []
    for goal in (trial // 2, trial):
        while len(keepers) < goal:
            keepers.admit(model.plan(min(TRIAL_PLAN, goal - len(keepers))))
        marks.append((len(keepers), _look_up(keepers, prints), keepers.nbytes))
    (few, fast, small), (many, slow, large) = marks
    steps = max(1, many - few)
    return Growth(
        look_up=slow + max(0.0, slow - fast) / steps * (half - many),
        nbytes=int(large + (large - small) / steps * (unique - many)),
    )


@dataclass(frozen=True, slots=True)
class _Model:
    """Makes plans up that are like one that was decided: as many near, as long prefixes, ids as long."""

    like: Plan
    near: float
    lengths: npt.NDArray[np.int64]
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def plan(self, rows: int) -> Plan:
        """Return a plan of so many unique records."""
        lengths = self.rng.choice(self.lengths, rows)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return Plan(
            ids=[self.rng.bytes(len(self.like.ids[0])) for _ in range(rows)],
            verdicts=[UNIQUE] * rows,
            bits=self._words(rows, self.like.bits.shape[1]),
            near=self.rng.random(rows) < self.near,
            prefixes=Ragged(offsets, self.rng.integers(1 << 32, size=offsets[-1], dtype=np.uint32)),
            digests=self._words(rows, 2),
            hashes=np.zeros((rows, 2), np.uint64),
        )

    def _words(self, rows: int, words: int) -> npt.NDArray[np.uint64]:
        return self.rng.integers(1 << 64, size=(rows, words), dtype=np.uint64)


def _look_up(keepers: Keepers, prints: Fingerprints) -> float:
    """Return the seconds that it takes to look for a record's fingerprint and text."""
    bits, digests = prints.bits[:TRIAL_PLAN], prints.digests[:TRIAL_PLAN]
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        keepers.near(bits)
        keepers.with_text(digests)
        times.append((time.perf_counter() - began) / len(bits))
    return median(times)


def _plan_bytes(parts: Parts, plans: Sequence[Plan]) -> float:
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


def _round_trip(parts: Parts) -> float:
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        parts.source.now()
        times.append(time.perf_counter() - began)
    return median(times)


def _limits(parts: Parts) -> Limits:
    limits = parts.settings.limits
    return Limits(
        chunk=limits.batch_records,
        in_flight=limits.in_flight_mb << 20,
        cache=parts.settings.verify.cache_mb << 20,
        records_per_second=limits.max_docs_per_second or inf,
        bytes_per_second=(limits.max_mb_per_second or inf) * (1 << 20),
    )
