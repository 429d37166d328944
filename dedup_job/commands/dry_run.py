"""A dry run: what a backfill or a nightly run would do, without writing anything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dedup_job import job
from dedup_job.commands.context import Context, first_records
from dedup_job.commands.guard import EarlierCounts, Guards, HeldBack, Notes
from dedup_job.commands.look import Look
from dedup_job.commands.past import Past, broken_off, tell_of_gone
from dedup_job.document import COPIED, Batch, Counts, digests
from dedup_job.job import Observe
from dedup_job.ledger.fitting import Consent, check_filter, check_fits, check_places, check_whole
from dedup_job.ledger.head import Head
from dedup_job.ledger.read_only import ReadOnlyTarget
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.match.texts import TextIndex
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.mongo.window import Window
from dedup_job.plan import BACKFILL, NIGHTLY, Plan
from dedup_job.report.summary import Report


@dataclass(frozen=True, slots=True)
class DryRun:
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


class Rehearsal(ReadOnlyTarget):
    """The target as it would be during a dry run: with what it has, and with what would be put there.

    What earlier runs put there is not looked for in the source: it may be gone from the target alone.
    """

    def __init__(self, target: Target, source: Source) -> None:
        super().__init__(target, source)
        self._kept = TextIndex()  # of ids, in the place of texts

    def accept(self, plan: Plan, _: Sequence[bytes]) -> Plan:
        """Take every verdict as it is; nothing is written, so nothing is refused."""
        self._kept.number(digests([plan.ids[row] for row in plan.rows(*COPIED)]))
        return plan

    def _to_come(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        numbers = self._kept.find(digests(ids)).tolist()
        return [raw_id for raw_id, number in zip(ids, numbers, strict=True) if number >= 0]


def dry_run(context: Context, asked: DryRun, observe: Observe) -> Report:
    """Say what a backfill or a nightly run would do, and write nothing."""
    reader = context.ledger_reader()
    head = None if asked.fresh else checked_head(context, reader, asked.consent)
    if not asked.fresh:
        context.check_own(head)
    mode = asked.mode or (NIGHTLY if head and head.covered else BACKFILL)
    started = time.monotonic()
    notes = Notes()
    before = EarlierCounts() if asked.fresh else broken_off(context, reader)
    guards = Guards.of(context.settings.limits, notes, before, least=1)
    with context.engine() as engine:
        target = Rehearsal(context.target, context.source)
        keepers, window = context.keepers(target, engine), context.window(mode, head)
        past = (
            Past.none(keepers, window) if asked.fresh else Past.read(context, reader, head, keepers, window)
        )

        def decided(window: Window, _: str) -> Counts:
            batches = first_records(context.source.batches(window), asked.limit)
            commit, held_back = guards.before(target.accept), HeldBack(engine, guards.first)
            return job.run(past.job(context, held_back, batches, target.absent, commit, observe))

        counts, _ = Look(context, reader, head, mode, context.source.now())(past.window, decided)
        tell_of_gone(keepers, notes)
    seconds = time.monotonic() - started
    name, basis = RunId.new(mode).name, context.basis(keepers)
    return Report(name, f"report ({mode})", counts, seconds, *basis, warnings=notes.messages)


def checked_head(context: Context, reader: LedgerReader, consent: Consent) -> Head | None:
    """Return the state of the ledger, as a run with this consent would go on from it."""
    head = reader.head()
    if head is None:
        return None
    origin = context.origin
    check_fits(head, origin)
    check_filter(head, origin, consent)
    check_whole(head)
    check_places(head, origin, consent)
    return replace(head, looked=None) if consent.filter or consent.moved else head


def both(first: Observe, second: Observe) -> Observe:
    """Return an observer that tells two."""

    def observe(batch: Batch, plan: Plan) -> None:
        first(batch, plan)
        second(batch, plan)

    return observe
