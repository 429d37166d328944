"""What a run and a dry run share: the past that they go on from, the looks at the source, and the job."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter

from dedup_job.commands.context import Context
from dedup_job.commands.guard import EarlierDrops
from dedup_job.document import Batch, Counts
from dedup_job.engine.exempt import Fingerprinting, WithExempt
from dedup_job.errors import StateError
from dedup_job.job import Job
from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.stored_plan import PlanColumns
from dedup_job.match.keepers import Keepers
from dedup_job.mongo.ahead import read_ahead
from dedup_job.mongo.id_set import IdSet
from dedup_job.mongo.target import Target
from dedup_job.mongo.window import Window
from dedup_job.plan import ADOPT, NIGHTLY, Plan, RawIds, Texts

Observe = Callable[[Batch, Plan], object]
TextsOf = Callable[[PlanColumns], Texts]

COMING = 16  # room for one text more for so many of the past
SAMPLED, NEWEST = 1_000, 100  # keepers that are looked for in the target before a run decides


@dataclass(frozen=True, slots=True)
class Past:
    """What was decided before a run, as far as the run depends on it.

    keepers   the texts of all plans, and which records stand for them
    adopted   ids that the target held before the job came, or that an undo, or somebody else, left there
    restored  ids that a person restored
    window    the part of the source that the run looks at, without what is decided there
    """

    keepers: Keepers
    adopted: IdSet
    restored: Collection[bytes]
    window: Window

    @classmethod
    def none(cls, keepers: Keepers, window: Window) -> Past:
        """Return a past in which nothing was decided."""
        return cls(keepers, IdSet(), (), window)

    @classmethod
    def read(
        cls,
        context: Context,
        reader: LedgerReader,
        head: Head | None,
        keepers: Keepers,
        window: Window,
        texts_of: TextsOf = attrgetter("texts"),
        held: Iterable[bytes] = (),
    ) -> Past:
        """Read it from the ledger; raises StateError when the target lacks what the ledger says is there.

        texts_of  what of a plan is to be known, where that is not all
        held      ids that the target holds otherwise than by a decision
        """
        ids = [context.left(), RawIds.of(held)]
        if head is None:
            return cls(keepers, IdSet.of(ids), (), window)
        window = window.without(taken_in(reader, head, keepers, ids, texts_of))
        check_keepers(keepers, context.target)
        return cls(keepers, IdSet.of(ids), reader.overrides().keys(), window)

    def job(
        self,
        context: Context,
        engine: Fingerprinting,
        batches: Iterable[Batch],
        absent: Callable[[Collection[bytes]], set[bytes]],
        commit: Callable[[Plan, Sequence[bytes]], Plan],
        observe: Observe,
    ) -> Job:
        """Return the job that decides these batches; `absent` and `commit` as in Job."""
        return Job(
            batches=read_ahead(batches),
            engine=WithExempt(engine, self.restored),
            matching=context.recipe.matching,
            keepers=self.keepers,
            absent=absent,
            commit=commit,
            observe=observe,
            adopted=self.adopted.among,
            conflicting=context.target.conflicting,
        )


def taken_in(
    reader: LedgerReader,
    head: Head,
    keepers: Keepers,
    adopted: list[RawIds],
    texts_of: TextsOf = attrgetter("texts"),
) -> Iterator[PlanColumns]:
    """Yield the plans of a ledger, after taking in their keepers, and in `adopted` the ids of an adoption."""
    known = head.counts.unique + head.counts.near
    keepers.reserve(known + known // COMING)
    for plan in reader.plan_columns(head):
        if len(texts := texts_of(plan)):
            keepers.restore(texts)
        if plan.mode == ADOPT:
            adopted.append(plan.ids)
        yield plan


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the source: at a window of ids, and when a full look is due at all other ids, too.

    What lies behind the watermark of a backfill is decided as in a nightly run, behind what it decides.
    """

    context: Context
    reader: LedgerReader
    head: Head | None
    mode: str
    now: datetime

    def __call__(self, window: Window, decide: Callable[[Window, str], Counts]) -> tuple[Counts, bool]:
        """Decide what is seen; returns its counts, and whether all ids were compared."""
        if window.start is not None and self._is_due_before(window, window.start):
            window = Window().without(self._plans())
        counts = decide(window, self.mode)
        if window.after is None:
            return counts, window.start is None
        if not self._is_due_behind():
            return counts, False
        return counts + decide(Window(before=window.after).without(self._plans()), NIGHTLY), True

    def _is_due_before(self, window: Window, start: bytes) -> bool:
        """Return whether there may be undecided records before a window; fewer than there should be, too."""
        assert self.head is not None
        if self.context.is_full_look_due(self.head, self.now):
            return True
        there = self.context.source.estimated_count_before(start)
        return there != self.head.counts.in_source - len(window.decided)

    def _is_due_behind(self) -> bool:
        """Return whether there may be undecided records behind the watermark of a backfill.

        Ids that hold no time may come anywhere, and no later run would know from which on to look.
        """
        assert self.head is not None
        is_due = self.context.is_full_look_due(self.head, self.now)
        return is_due or not self.context.source.has_only_object_ids()

    def _plans(self) -> Iterator[PlanColumns]:
        assert self.head is not None
        return self.reader.plan_columns(self.head)


def check_keepers(keepers: Keepers, target: Target) -> None:
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


def tell_of_gone(keepers: Keepers, tell: Callable[[str], None]) -> None:
    """Tell of kept records that a run met and could not rely on; see `job.outdated_of`."""
    if keepers.gone:
        tell(
            f"{keepers.gone:,} kept records are gone from the target or have another text there, so they "
            "stand for nothing any more; to see which: dedup-job verify"
        )


def broken_off(context: Context, reader: LedgerReader) -> EarlierDrops:
    """Return what the runs since the last that ended have decided: to a guard they are one with the next.

    Else each start would drop some more, up to where its guard begins to look.
    """
    rows = [row for row in reader.broken_off() if "duplicate" in row]
    is_grouped = context.settings.limits.max_group is not None
    return EarlierDrops(
        read=sum(row["read"] for row in rows),
        dropped=sum(sum(row["duplicate"].values()) for row in rows),
        groups=reader.groups([row["_id"] for row in rows]) if is_grouped else {},
    )


def new_run(mode: str) -> RunId:
    """Name a run after the time at which it starts."""
    now = datetime.now(UTC)
    return RunId(f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}", mode, now)
