"""The composition root: puts the parts of a run together from the settings, and runs it."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Self, TypeVar

from dedup_job import job
from dedup_job.config import Settings
from dedup_job.document import Batch, Counts, Fingerprints
from dedup_job.engine.ahead import read_ahead
from dedup_job.engine.local import Capacity, LocalEngine
from dedup_job.engine.restored import WithRestored
from dedup_job.errors import ConfigError, DedupError, StateError
from dedup_job.fingerprint.idf import learned_idf, write_idf
from dedup_job.fingerprint.profile import Calibration
from dedup_job.fingerprint.recipe import Recipe, Resource
from dedup_job.fingerprint.shingles import normalised
from dedup_job.match.keepers import Fetch, Keepers, Recollection
from dedup_job.mongo import namespace
from dedup_job.mongo.client import Patience, connect
from dedup_job.mongo.commit import Ledger, RunId, check_fits, check_whole
from dedup_job.mongo.decided import Decided
from dedup_job.mongo.head import Head, Origin
from dedup_job.mongo.ledger import LedgerReader
from dedup_job.mongo.pace import Pace, Rates
from dedup_job.mongo.plans import ADOPT, BACKFILL, NIGHTLY, RECONCILE, Landed
from dedup_job.mongo.rehearsal import RehearsalTarget, accept
from dedup_job.mongo.scan import Scan
from dedup_job.mongo.source import BatchSize, Source
from dedup_job.mongo.statements import Statements
from dedup_job.mongo.target import Target
from dedup_job.mongo.window import Window, rest_of_backfill, since
from dedup_job.plan import Plan, RawIds
from dedup_job.report.scoring import Setting
from dedup_job.report.summary import Report

Observe = Callable[[Batch, Plan], None]
L = TypeVar("L", bound=Ledger)

CALIBRATION_RECORDS = 1_000
LARGE_RECORD = 64 << 10  # bytes
SAMPLED, NEWEST = 1_000, 100  # keepers that are looked for in the target before a run decides
BEGINNING = 60  # characters of a text that evidence shows


class Parts:
    """Everything that a command works with, opened once and closed together."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.push(self)  # what fails half way is closed
            self._open()
            opening.pop_all()
        return self

    def _open(self) -> None:
        limits = self.settings.limits
        self.patience = Patience(limits.patience_seconds)
        with ExitStack() as stack:
            reached = (limits.connect_seconds, self.patience, limits.allow_plaintext)
            here = stack.enter_context(connect(self.settings.source_uri(), "source", *reached))
            there = stack.enter_context(connect(self.settings.target_uri(), "target", *reached))
            source = here[self.settings.source.database][self.settings.source.collection]
            target = there[self.settings.target.database][self.settings.target.collection]
            namespace.check_source(source, self.patience)
            namespace.check_target(source, target, self.patience)
            self._stack = stack.pop_all()
        size = BatchSize(limits.batch_records, limits.batch_mb << 20)
        self.source_name, self.target_name = source.full_name, target.full_name
        pace = Pace(Rates(limits.max_docs_per_second or inf, (limits.max_mb_per_second or inf) * (1 << 20)))
        self.source = Source(source, self.settings.source.condition, size, self.patience, pace)
        self.target = Target(target, self.patience)
        self.target_name = target.full_name
        self._places = (source, target, self.patience)
        self.source_scan = Scan(source, "the source", self.patience, condition=self.settings.source.condition)
        self.held = Source(target, {}, size, self.patience)
        self._ledger_place = (target.database, target.name, self.patience)
        head = self.ledger_reader().head()
        self.calibration = head.calibration if head else self._calibrated()
        self.recipe: Recipe = self.settings.make_recipe(self.calibration)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def origin(self) -> Origin:
        """What a new ledger is made from, and an old one must have been made from."""
        return Origin(self.source_name, self.recipe.settings, self.recipe.digest, self.calibration)

    @property
    def about(self) -> str:
        """What the recipe decides by, and what it was chosen for."""
        matching, found = self.recipe.matching, self.calibration
        texts = f"jaccard {matching.min_jaccard} of {matching.shingle}-character shingles"
        return (
            f"{self.recipe.bits} bits, radius {matching.radius}, "
            f"{texts if matching.min_jaccard else 'texts not compared'}; "
            f"chosen for {found.records:,} records of about {found.median_length:,} letters"
        )

    def basis(self, keepers: Keepers) -> tuple[str, str, str]:
        """Return the digest of the recipe, what it decides by, and how the index looks for it."""
        return self.recipe.digest, self.about, keepers.layout

    def _calibrated(self) -> Calibration:
        """Look at the source's size and at its first texts, in `_id` order."""
        batches = first_records(self.source.batches(Window()), CALIBRATION_RECORDS)
        lengths = [length for batch in batches for length in self._lengths(batch.raws) if length]
        return Calibration(self.source.estimated_count(), int(median(lengths)) if lengths else 0)

    def _lengths(self, raws: Sequence[bytes]) -> list[int]:
        """Return about how long the texts of these records are, in letters.

        A large record counts with its bytes: cleaning it may take long, and nobody could put an end to it.
        """
        texts = self.settings.reader.texts(raw for raw in raws if len(raw) <= LARGE_RECORD)[0]
        large = [len(raw) for raw in raws if len(raw) > LARGE_RECORD]
        return [len(normalised(text)) for text in texts] + large

    def engine(self, bits: int | None = None) -> LocalEngine:
        """Return the engine, not started yet; for fingerprints of another width where `bits` says so."""
        limits = self.settings.limits
        workers = self.settings.engine.workers
        recipe = replace(self.recipe, bits=bits or self.recipe.bits)
        return LocalEngine(recipe, Capacity(workers, limits.in_flight_mb << 20, limits.record_seconds))

    @property
    def setting(self) -> Setting:
        """What decides how much is found, of all settings."""
        matching = self.recipe.matching
        return Setting(self.recipe.bits, matching.radius, matching.min_jaccard)

    def ledger_reader(self) -> LedgerReader:
        """Return the ledger for reading alone."""
        return LedgerReader(*self._ledger_place)

    def statements(self) -> Statements:
        """Return the ledger for an audit."""
        return Statements(*self._ledger_place)

    @contextmanager
    def ledger(self, run: RunId) -> Iterator[Ledger]:
        """Open the ledger for a run that decides by the recipe of the settings."""
        with self.opened(Ledger, run, self.origin) as ledger:
            yield ledger

    @contextmanager
    def opened(self, kind: type[L], run: RunId, origin: Origin) -> Iterator[L]:
        """Open the ledger for writing; when the run breaks off, its row in `runs` says why."""
        ledger = kind(*self._ledger_place)
        try:
            ledger.open(run, origin)
            yield ledger
        except BaseException as error:
            ledger.break_off(getattr(error, "exit_code", DedupError.exit_code))
            raise

    def keepers(self, fetch: Fetch, engine: LocalEngine) -> Keepers:
        """Return an empty set of keepers, whose texts are fetched when they are not at hand."""
        matching, verify = self.recipe.matching, self.settings.verify
        recall = Recollection(fetch, engine.fingerprint)
        keepers = Keepers(self.recipe.bits, matching.radius, verify.cache_mb << 20, recall)
        # The compiled code that decides is loaded now, while the workers still load theirs.
        job.decide([b""], Fingerprints.passed("empty", self.recipe.bits // 64, b""), matching, keepers)
        return keepers

    def prepare_target(self) -> None:
        """Make the target, where it cannot be left to the first insertion."""
        namespace.create_alike(*self._places)

    def is_foreign(self, head: Head | None) -> bool:
        """Return whether the target holds records that the ledger does not know, as it knows none yet."""
        return head.adopting if head and not head.is_empty else not self.target.is_empty()

    def check_own(self, head: Head | None) -> None:
        """Raise ConfigError when the target holds records that the ledger does not know."""
        if self.is_foreign(head):
            raise ConfigError(
                f"{self.target_name} holds records that no run put there; run backfill --adopt to keep them "
                "and drop what is a copy of them, or choose an empty target"
            )

    def window(self, mode: str, head: Head | None) -> Window:
        """Return the part of the source that this mode looks at, what is decided there not left out yet."""
        if mode == BACKFILL:
            return rest_of_backfill(head.watermark if head else None)
        if mode == RECONCILE:
            return Window()
        lookback = self.settings.source.lookback
        return since(head.covered if head else None, lookback, self.source.has_only_object_ids())

    def holds_more_than_decided(self, window: Window, head: Head) -> bool:
        """Return whether the source holds undecided records before the window: then all of it is due.

        Counting is cheap and tells, unless as many decided records were deleted; a filter forbids it.
        """
        if window.start is None or self.settings.source.condition:
            return False
        return self.source.estimated_count_before(window.start) > head.counts.read - len(window.decided)

    def beginnings(self, ids: Iterable[bytes]) -> dict[bytes, str]:
        """Return how the cleaned texts of these source records begin."""
        found = self.source.fetch(list(dict.fromkeys(ids)))
        texts, reasons = self.recipe.reader.texts(found.values())
        shown = (text[:BEGINNING] or f"({reason})" for text, reason in zip(texts, reasons, strict=True))
        return dict(zip(found, shown, strict=True))


def decide(parts: Parts, mode: str, observe: Observe) -> Report:
    """Run a backfill or a nightly run: decide what is undecided and carry it out."""
    run = new_run(mode)
    started = time.monotonic()
    parts.check_own(parts.ledger_reader().head())
    with parts.ledger(run) as ledger, parts.engine() as engine:
        parts.prepare_target()
        head = ledger.recover(parts.source, parts.target)
        looked = parts.source.now()
        keepers = parts.keepers(parts.target.fetch, engine)
        held: list[RawIds] = []
        window = parts.window(mode, head).without(restored(ledger, head, keepers, held))
        check_landed(keepers, parts.target)
        if parts.holds_more_than_decided(window, head):
            window = Window().without(ledger.landed(head))
        counts = job.run(
            job.Job(
                batches=read_ahead(parts.source.batches(window)),
                engine=WithRestored(engine, ledger.overrides().keys()),
                matching=parts.recipe.matching,
                keepers=keepers,
                absent=parts.target.absent,
                commit=lambda plan, raws: ledger.commit(plan, raws, parts.target),
                observe=observe,
                held=Decided.of(held).among,
            )
        )
        ledger.covered(looked)
        report = Report(run.name, mode, counts, time.monotonic() - started, *parts.basis(keepers))
        ledger.close({**report.as_json(), "exit_code": exit_code(counts)})
    return report


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a dry run is about.

    mode   "backfill" or "run"; None for whichever is due
    fresh  whether to forget what was decided before
    limit  only so many records; None for all
    """

    mode: str | None = None
    fresh: bool = False
    limit: int | None = None


def rehearse(parts: Parts, rehearsal: Rehearsal, observe: Observe) -> Report:
    """Say what a backfill or a nightly run would do, and write nothing."""
    reader = parts.ledger_reader()
    head = None if rehearsal.fresh else reader.head()
    if head:
        check_fits(head, parts.origin)
        check_whole(head)
    if not rehearsal.fresh:
        parts.check_own(head)
    mode = rehearsal.mode or (NIGHTLY if head and head.covered else BACKFILL)
    started = time.monotonic()
    with parts.engine() as engine:
        target = RehearsalTarget(parts.target, parts.source)
        keepers = parts.keepers(target.fetch, engine)
        window = parts.window(mode, head)
        held: list[RawIds] = []
        if head:
            window = window.without(restored(reader, head, keepers, held))
            check_landed(keepers, parts.target)
            if parts.holds_more_than_decided(window, head):
                window = Window().without(reader.landed(head))
        counts = job.run(
            job.Job(
                batches=read_ahead(first_records(parts.source.batches(window), rehearsal.limit)),
                engine=WithRestored(engine, reader.overrides().keys() if head else ()),
                matching=parts.recipe.matching,
                keepers=keepers,
                absent=target.absent,
                commit=accept,
                observe=observe,
                held=Decided.of(held).among,
            )
        )
    seconds = time.monotonic() - started
    return Report(new_run(mode).name, f"report ({mode})", counts, seconds, *parts.basis(keepers))


@dataclass(frozen=True, slots=True)
class LearnedIdf:
    """An IDF table that was learned from the source."""

    texts: int
    terms: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def fit_idf(parts: Parts, output: Path, min_df: int, limit: int | None) -> LearnedIdf:
    """Count in how many texts each term is, and write the table; raises ConfigError where there is none."""
    texts, frequencies = 0, Counter[str]()
    with parts.engine() as engine:
        for number, counted in engine.counted_terms(first_records(parts.source.batches(Window()), limit)):
            texts += number
            frequencies += counted
    table = learned_idf(frequencies, texts, min_df)
    if not table:
        raise ConfigError(f"no term is in {min_df} texts of {parts.source_name}; lower --min-df")
    write_idf(output, table, texts)
    return LearnedIdf(texts, len(table), Resource.at(output).sha256)


def both(first: Observe, second: Observe) -> Observe:
    """Return an observer that tells two."""

    def observe(batch: Batch, plan: Plan) -> None:
        first(batch, plan)
        second(batch, plan)

    return observe


def restored(reader: LedgerReader, head: Head, keepers: Keepers, held: list[RawIds]) -> Iterator[Landed]:
    """Yield the plans of a ledger, in order, after taking their keepers in, and in `held` the adopted ids."""
    for landed in reader.landed(head):
        keepers.restore(landed.kept)
        if landed.mode == ADOPT:
            held.append(landed.ids)
        yield landed


def check_landed(keepers: Keepers, target: Target) -> None:
    """Raise StateError when most of a sample of the keepers, or of the newest ones, are not in the target.

    Single ones that are gone stand for nothing any more, and a run goes on without them.
    """
    for sample in (keepers.sample(SAMPLED), keepers.newest(NEWEST)):
        gone = len(target.absent(sample))
        if 2 * gone > len(sample):
            raise StateError(
                f"the target lacks {gone} of {len(sample)} records that the ledger says are there: was it "
                "dropped, or restored from an older backup? restore it together with its .dedup collections, "
                "or drop it and them, and run backfill again"
            )


def first_records(batches: Iterable[Batch], limit: int | None) -> Iterator[Batch]:
    """Yield batches until so many records came."""
    left = limit
    for batch in batches:
        if left is not None and len(batch) >= left:
            yield Batch(batch.ids[:left], batch.raws[:left])
            return
        yield batch
        left = left and left - len(batch)


def new_run(mode: str) -> RunId:
    """Name a run after the time at which it starts."""
    now = datetime.now(UTC)
    return RunId(f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}", mode, now)


def exit_code(counts: Counts) -> int:
    """Return 0, or 3 when the target refused something."""
    return 3 if sum(counts.refused.values()) else 0
