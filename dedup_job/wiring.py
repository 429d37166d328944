"""The runs: the parts of a command put into a job, and the job run."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dedup_job import job
from dedup_job.document import Batch, Counts
from dedup_job.engine.ahead import read_ahead
from dedup_job.engine.restored import WithRestored
from dedup_job.errors import ConfigError, StateError
from dedup_job.fingerprint.idf import learned_idf, write_idf
from dedup_job.fingerprint.recipe import Resource
from dedup_job.match.keepers import Keepers
from dedup_job.mongo.commit import Consent, RunId, check_filter, check_fits, check_places, check_whole
from dedup_job.mongo.decided import Decided
from dedup_job.mongo.head import Head
from dedup_job.mongo.ledger import LedgerReader
from dedup_job.mongo.plans import ADOPT, BACKFILL, NIGHTLY, Landed
from dedup_job.mongo.rehearsal import RehearsalTarget, accept
from dedup_job.mongo.target import Target
from dedup_job.mongo.window import Window
from dedup_job.parts import Parts, first_records
from dedup_job.plan import Plan, RawIds
from dedup_job.report.summary import Report

Observe = Callable[[Batch, Plan], None]

SAMPLED, NEWEST = 1_000, 100  # keepers that are looked for in the target before a run decides


def decide(parts: Parts, mode: str, observe: Observe, consent: Consent = Consent()) -> Report:
    """Run a backfill or a nightly run: decide what is undecided and carry it out."""
    run = new_run(mode)
    started = time.monotonic()
    parts.check_own(parts.ledger_reader().head())
    with parts.ledger(run, consent) as ledger, parts.engine() as engine:
        head = ledger.recover(parts.source, parts.target)
        looked, newest = parts.source.now(), parts.source.newest()
        keepers = parts.keepers(parts.target, engine)
        held = [parts.left()]
        window = parts.window(mode, head).without(restored(ledger, head, keepers, held))
        check_landed(keepers, parts.target)

        def decided(window: Window, mode: str) -> Counts:
            return job.run(
                job.Job(
                    batches=read_ahead(parts.source.batches(window)),
                    engine=WithRestored(engine, ledger.overrides().keys()),
                    matching=parts.recipe.matching,
                    keepers=keepers,
                    absent=parts.target.absent,
                    commit=lambda plan, raws: ledger.commit(plan, raws, parts.target, mode),
                    observe=observe,
                    held=Decided.of(held).among,
                    taken=parts.target.taken,
                )
            )

        counts, is_full = Look(parts, ledger, head, mode, looked)(window, decided)
        ledger.covered(looked, newest, is_full)
        seconds = time.monotonic() - started
        report = Report(run.name, mode, counts, seconds, *parts.basis(keepers), ledger.untold())
        ledger.close({**report.as_json(), "exit_code": report.exit_code})
    return report


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the source: through a window, and where that is due at all that it leaves out.

    What lies behind the watermark of a backfill is decided as in a nightly run, behind what it decides.
    """

    parts: Parts
    reader: LedgerReader
    head: Head | None
    mode: str
    now: datetime

    def __call__(self, window: Window, decided: Callable[[Window, str], Counts]) -> tuple[Counts, bool]:
        """Decide what is seen; returns its counts, and whether all ids were compared."""
        if window.start is not None and self._is_due_before(window, window.start):
            window = Window().without(self._landed())
        counts = decided(window, self.mode)
        if window.after is None:
            return counts, window.start is None
        assert self.head is not None
        if not self.parts.is_full_look_due(self.head, self.now):
            return counts, False
        return counts + decided(Window(before=window.after).without(self._landed()), NIGHTLY), True

    def _is_due_before(self, window: Window, start: bytes) -> bool:
        """Return whether there may be undecided records before a window; fewer than there should be, too."""
        assert self.head is not None
        if self.parts.is_full_look_due(self.head, self.now):
            return True
        there = self.parts.source.estimated_count_before(start)
        return there != self.head.counts.read - len(window.decided)

    def _landed(self) -> Iterator[Landed]:
        assert self.head is not None
        return self.reader.landed(self.head)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a dry run is about.

    mode   "backfill" or "run"; None for whichever is due
    fresh  whether to forget what was decided before
    limit  only so many records; None for all
    consent  what a person would say
    """

    mode: str | None = None
    fresh: bool = False
    limit: int | None = None
    consent: Consent = Consent()


def rehearse(parts: Parts, rehearsal: Rehearsal, observe: Observe) -> Report:
    """Say what a backfill or a nightly run would do, and write nothing."""
    reader = parts.ledger_reader()
    head = None if rehearsal.fresh else reader.head()
    if head:
        origin = parts.origin
        check_fits(head, origin)
        check_filter(head, origin, rehearsal.consent)
        check_whole(head)
        check_places(head, origin, rehearsal.consent)
        if rehearsal.consent.filter or rehearsal.consent.moved:
            head = replace(head, looked=None)
    if not rehearsal.fresh:
        parts.check_own(head)
    mode = rehearsal.mode or (NIGHTLY if head and head.covered else BACKFILL)
    started = time.monotonic()
    with parts.engine() as engine:
        target = RehearsalTarget(parts.target, parts.source)
        keepers = parts.keepers(target, engine)
        window = parts.window(mode, head)
        held = [] if rehearsal.fresh else [parts.left()]
        if head:
            window = window.without(restored(reader, head, keepers, held))
            check_landed(keepers, parts.target)

        def decided(window: Window, _: str) -> Counts:
            return job.run(
                job.Job(
                    batches=read_ahead(first_records(parts.source.batches(window), rehearsal.limit)),
                    engine=WithRestored(engine, reader.overrides().keys() if head else ()),
                    matching=parts.recipe.matching,
                    keepers=keepers,
                    absent=target.absent,
                    commit=accept,
                    observe=observe,
                    held=Decided.of(held).among,
                    taken=parts.target.taken,
                )
            )

        counts, _ = Look(parts, reader, head, mode, parts.source.now())(window, decided)
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
        keepers.restore(landed.texts)
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


def new_run(mode: str) -> RunId:
    """Name a run after the time at which it starts."""
    now = datetime.now(UTC)
    return RunId(f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}", mode, now)
