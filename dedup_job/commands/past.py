"""The past: what was decided before a run, as far as the run depends on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from dedup_job.commands.context import Context
from dedup_job.commands.guard import EarlierCounts
from dedup_job.document import Batch, is_failure
from dedup_job.engine.exempt import Fingerprinting, WithExempt
from dedup_job.errors import StateError
from dedup_job.job import Job, Observe
from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.stored_plan import PlanColumns
from dedup_job.match.keepers import Keepers
from dedup_job.mongo.ahead import read_ahead
from dedup_job.mongo.id_set import IdSet
from dedup_job.mongo.target import Target
from dedup_job.mongo.window import Window
from dedup_job.plan import ADOPT, Plan, RawIds, Texts

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
    restored: IdSet
    window: Window

    @classmethod
    def none(cls, keepers: Keepers, window: Window) -> Past:
        """Return a past in which nothing was decided."""
        return cls(keepers, IdSet(), IdSet(), window)

    @classmethod
    def read(
        cls,
        context: Context,
        reader: LedgerReader,
        head: Head | None,
        keepers: Keepers,
        window: Window,
        texts_of: TextsOf = attrgetter("texts"),
        held: Iterable[RawIds] = (),
    ) -> Past:
        """Read it from the ledger; raises StateError when the target lacks what the ledger says is there.

        texts_of  what of a plan is to be known, where that is not all
        held      ids that the target holds otherwise than by a decision
        """
        ids = [context.left(), *held]
        if head is None:
            return cls(keepers, IdSet.of(ids), IdSet(), window)
        window = window.without(taken_in(reader, head, keepers, ids, texts_of))
        check_keepers(keepers, context.target)
        return cls(keepers, IdSet.of(ids), IdSet.of(reader.overridden()), window)

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
            engine=WithExempt(engine, self.restored.among),
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


def broken_off(context: Context, reader: LedgerReader) -> EarlierCounts:
    """Return what the runs since the last that ended have decided: to a guard they are one with the next.

    Else each start would drop some more, up to where its guard begins to look.
    """
    rows = [row for row in reader.broken_off() if "duplicate" in row]
    reasons = sum((Counter(row.get("unjudged", {})) for row in rows), Counter[str]())
    is_grouped = context.settings.limits.max_group is not None
    return EarlierCounts(
        read=sum(row["read"] for row in rows),
        dropped=sum(sum(row["duplicate"].values()) for row in rows),
        failed={reason: count for reason, count in reasons.items() if is_failure(reason)},
        groups=reader.groups([row["_id"] for row in rows]) if is_grouped else {},
    )
