"""The job on one page: read, fingerprint, decide, commit.  Read this first.

A record is a duplicate if an earlier kept record has the same cleaned text, or is a candidate for it and,
when texts are compared, shares enough shingles with it.  The nearest keeper wins, and among equally near
keepers the earliest.  A duplicate is never a keeper itself: a chain A ~ B ~ C never drops C because of A.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index.find_neighbours import (
    AreBetter,
    find_batch_neighbours,
    find_single_neighbours,
    outrank_keepers,
)
from dedup_job.index.judge import BatchNeighbours, Judgement
from dedup_job.index.keepers import BatchTexts, KeeperRef, Keepers
from dedup_job.index.key_map_search import NO_DISTANCE
from dedup_job.mongo.ids import IdSet
from dedup_job.preference.preference_ranks import best_first
from dedup_job.records import (
    CONFLICT,
    UNIQUE,
    Action,
    Batch,
    Counts,
    FingerprintedBatch,
    Fingerprints,
    KeeperMatch,
    Plan,
    RawIds,
    Verdict,
)
from dedup_job.report.run_summary import ReplacementCounts

log = logging.getLogger("dedup_job")

Commit = Callable[[Plan, Sequence[bytes]], Plan]
"""Applies a plan to its raw records, and returns the plan as applied: records may have been refused.

In a dry run it writes nothing; otherwise the ledger's rows about the plan may be written later.
"""
Observe = Callable[[Plan], object]
"""Called with each final plan, for the report."""

# Bytes of ids and keepers in one plan.  A BSON document has 16 MiB at most, and so has a command that names a
# plan's ids.
PLAN_BYTES = 6 << 20


class KeptRecords(Protocol):
    """The kept records: in the target or, in a dry run, in a simulated target."""

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return the ids that no record has."""
        ...

    def conflicting(self, records: Iterable[bytes]) -> set[bytes]:
        """Return the ids of the raw records that differ from the kept record with the same id."""
        ...


@dataclass(frozen=True, slots=True)
class AdoptedIds:
    """The ids of a batch that the target had before the job first ran; their records are never dropped.

    Attributes:
        ids: All of them.
        conflicting: Those whose record in the target is a different one, so that it will refuse this one.
    """

    ids: Collection[bytes] = ()
    conflicting: Collection[bytes] = ()


class Decision(NamedTuple):
    """The decision on a batch.

    Attributes:
        verdicts: One for each record, in order.
        relied_on: Keepers from before the batch that decide whether records are dropped.
        displaced: Worse keepers that match a record which is kept, with `[match] prefer`.
    """

    verdicts: list[Verdict]
    relied_on: set[KeeperRef]
    displaced: Sequence[KeeperRef] = ()


@dataclass(frozen=True, slots=True)
class KeepFirst:
    """Decides the batches of a run so that the first of matching records is kept.

    `replace_keepers.KeepBest` has the same methods, and keeps the best.

    Attributes:
        matching: What counts as a duplicate.
        keepers: All records kept so far.
        target: Where kept records are.
        adopted: Ids that the target had before the job first ran.
    """

    matching: Matching
    keepers: Keepers
    target: KeptRecords
    adopted: IdSet = IdSet()

    def decide_batches(
        self, batches: Iterable[FingerprintedBatch], commit: Commit, observe: Observe
    ) -> Counts:
        """Decide every batch in turn, and commit its plan before the next one is decided."""
        keepers, target, counts = self.keepers, self.target, Counts()
        for batch, prints in batches:
            entered = keepers.add_texts(RawIds.of(batch.ids), prints)
            adopted = find_adopted(batch, self.adopted, target)
            decision = decide_by_present_keepers(
                partial(decide, batch.ids, prints, entered.texts, self.matching, keepers, adopted),
                keepers,
                target,
                self.adopted,
            )
            plan = commit_in_parts(make_plan(batch, prints, decision.verdicts), batch.raws, commit)
            add_keepers(plan, entered, prints, keepers)
            observe(plan)
            counts += replace(plan.counts, partial=int(prints.partial.sum()))
        return counts

    def settle(self) -> ReplacementCounts | None:
        """Decide nothing again, as no keeper is ever replaced."""
        return None


def find_adopted(batch: Batch, adopted: IdSet, target: KeptRecords) -> AdoptedIds:
    """Return the ids of a batch that the target had before the job first ran."""
    ids = adopted.among(batch.ids)
    if not ids:
        return AdoptedIds()
    raws = [raw for raw_id, raw in zip(batch.ids, batch.raws, strict=True) if raw_id in ids]
    return AdoptedIds(ids, target.conflicting(raws))


def commit_in_parts(plan: Plan, raws: Sequence[bytes], commit: Commit) -> Plan:
    """Commit a plan, in several parts if it is too large for one document.

    If the target refuses a keeper in one part, its duplicates in later parts are promoted as within one part.

    Args:
        plan: The plan of a batch.
        raws: The batch's raw records.
        commit: Applies a plan to raw records, and returns the plan as applied.

    Returns:
        The whole plan as applied.
    """
    for start, stop in plan.bounds(PLAN_BYTES):
        applied = commit(plan.part(start, stop), raws[start:stop])
        refused = {start + row: applied.verdicts[row] for row in applied.rows(Action.REFUSED)}
        # Conflicts were in the plan already, and nothing depends on them.
        new = {row: verdict for row, verdict in refused.items() if verdict != plan.verdicts[row]}
        if new:
            plan = plan.without(new)
    return plan


def decide_by_present_keepers(
    decide_once: Callable[[], Decision], keepers: Keepers, target: KeptRecords, adopted: IdSet
) -> Decision:
    """Decide until all keepers that the decision relies on are valid.

    Somebody may have deleted or changed a keeper in the target.  Without it others take its place, and these
    must be checked as well.

    Args:
        decide_once: Decides by the keepers that are not known to be missing.
        keepers: All records kept so far.
        target: Where kept records are.
        adopted: Ids that the target had before the job first ran.
    """
    while True:
        decision = decide_once()
        outdated = find_outdated_keepers(decision.relied_on, keepers, target, adopted)
        if not outdated:
            return decision
        log.debug("keepers missing", extra={"fields": {"keepers": len(outdated)}})
        keepers.mark_missing(outdated)


def find_outdated_keepers(
    relied_on: Collection[KeeperRef], keepers: Keepers, target: KeptRecords, adopted: IdSet
) -> set[KeeperRef]:
    """Return the keepers that are no longer valid: deleted from the target, or changed there.

    A keeper that this run inserted or read needs only to be there still.  The text of a keeper from an
    earlier run is fetched and compared, as somebody may have changed it since.  An adopted record is always
    fetched: it may have been deleted, and have come again from the source with another text.

    Args:
        relied_on: The keepers to check.
        keepers: All records kept so far.
        target: Where kept records are.
        adopted: Ids that the target had before the job first ran.
    """
    adopted_ids = adopted.among([keeper.id for keeper in relied_on])
    seen = {keeper for keeper in relied_on if keeper.id not in adopted_ids and keepers.is_checked(keeper)}
    absent = target.absent({keeper.id for keeper in seen})
    changed = keepers.find_outdated([keeper for keeper in relied_on if keeper not in seen])
    return changed | {keeper for keeper in seen if keeper.id in absent}


def make_plan(batch: Batch, prints: Fingerprints, verdicts: Sequence[Verdict]) -> Plan:
    """Build the plan of a batch: its verdicts, and the columns from which the index can be rebuilt."""
    return Plan(
        batch.ids,
        verdicts,
        prints.bits,
        prints.has_fingerprint,
        prints.keys,
        prints.digests,
        prints.hashes,
        prints.ranks,
    )


def plan_without_texts(blank: Fingerprints, ids: Sequence[bytes], verdicts: Sequence[Verdict]) -> Plan:
    """Build the plan of records that were not read: it has neither fingerprints nor hashes of records.

    Args:
        blank: The fingerprints of a record without a text.
        ids: The records' raw ids.
        verdicts: One for each record.
    """
    prints = Fingerprints.join([blank] * len(ids))
    return replace(make_plan(Batch(ids, ()), prints, verdicts), hashes=prints.digests)


def add_keepers(plan: Plan, entered: BatchTexts, prints: Fingerprints, keepers: Keepers) -> None:
    """Add the records that an applied plan has kept to the keepers."""
    rows = plan.rows(Action.UNIQUE)
    is_kept = np.zeros(len(plan), np.bool_)
    is_kept[rows] = True
    keepers.keep(entered, is_kept, plan.ids)
    keepers.cache_shingles(entered.texts[rows], prints.shingles.take(rows))


def decide_in_memory(batch: Batch, prints: Fingerprints, matching: Matching, keepers: Keepers) -> Plan:
    """Decide a batch without a target: its unique records are added to the keepers at once."""
    entered = keepers.add_texts(RawIds.of(batch.ids), prints)
    verdicts = decide(batch.ids, prints, entered.texts, matching, keepers).verdicts
    plan = make_plan(batch, prints, verdicts)
    add_keepers(plan, entered, prints, keepers)
    return plan


def decide(
    ids: Sequence[bytes],
    prints: Fingerprints,
    texts: npt.NDArray[np.int64],
    matching: Matching,
    keepers: Keepers,
    adopted: AdoptedIds = AdoptedIds(),
    by_rank: bool = False,
) -> Decision:
    """Decide records against the keepers and the other records of the batch.

    Args:
        ids: The raw ids of n records.
        prints: Their fingerprints.
        texts: int64, shape (n,), the numbers of their texts, which have been added to the keepers.
        matching: What counts as a duplicate.
        keepers: All records kept so far.
        adopted: Records that are never dropped.
        by_rank: Whether the better of two matching records is kept, in place of the earlier one.
    """
    order, are_better = np.arange(len(ids)), None
    if by_rank:
        assert prints.ranks is not None
        order, are_better = best_first(prints.ranks, ids), ranked_by(ids, prints, keepers)
    is_conflicting = contains(adopted.conflicting, ids)
    # The target will refuse these records, so they must neither be dropped nor become keepers.
    texts = np.where(is_conflicting, -1, texts)
    found = find_batch_neighbours(prints, texts, order, matching, keepers, are_better)
    neighbours = found.neighbours
    judgement = neighbours.judge(~contains(adopted.ids, ids)[order], matching.min_similarity)
    relied_on = earlier_keepers(neighbours, judgement, keepers)
    used = neighbours.texts[judgement.keeper[judgement.keeper >= 0]]
    # Backwards, so that the first record with a text overwrites the later ones.
    rows = order[np.isin(texts[order], used) & (judgement.keeper < 0)][::-1]
    own_keepers = {text: ids[row] for text, row in zip(texts[rows].tolist(), rows.tolist(), strict=True)}
    # A text that has a keeper already keeps it, also when an adopted record of the batch has the same text.
    keeper_of = own_keepers | dict(relied_on)

    verdicts = [UNIQUE] * len(ids)
    reasons = [prints.reasons[row] for row in order.tolist()]
    in_order = make_verdicts(judgement, neighbours, reasons, keeper_of)
    for row, verdict in zip(order.tolist(), in_order, strict=True):
        verdicts[row] = CONFLICT if is_conflicting[row] else verdict
    displaced = found.find_displaced(judgement, matching, keepers) if by_rank else ()
    return Decision(verdicts, relied_on, displaced)


def ranked_by(ids: Sequence[bytes], prints: Fingerprints, keepers: Keepers) -> AreBetter:
    """Return what compares records with keepers by `[match] prefer`."""
    assert prints.ranks is not None
    return partial(outrank_keepers, ids, prints.ranks, keepers=keepers)


def contains(some: Collection[bytes], ids: Sequence[bytes]) -> npt.NDArray[np.bool_]:
    """Return for each of n ids whether it is among some ids, bool (n,)."""
    if not some:
        return np.zeros(len(ids), np.bool_)
    return np.array([raw_id in some for raw_id in ids], np.bool_)


def decide_each(
    prints: Fingerprints, matching: Matching, keepers: Keepers, ids: Sequence[bytes] | None = None
) -> Decision:
    """Decide each record as if it alone came next; nothing is added to the keepers.

    Args:
        prints: The records.
        matching: What counts as a duplicate.
        keepers: All records kept so far.
        ids: Their raw ids, with `[match] prefer`: then a record is no duplicate of a keeper that is worse.
    """
    are_better = None if ids is None else ranked_by(ids, prints, keepers)
    neighbours = find_single_neighbours(prints, matching, keepers, are_better)
    judgement = neighbours.judge(np.ones(len(prints), np.bool_), matching.min_similarity)
    relied_on = earlier_keepers(neighbours, judgement, keepers)
    return Decision(make_verdicts(judgement, neighbours, prints.reasons, dict(relied_on)), relied_on)


def earlier_keepers(neighbours: BatchNeighbours, judgement: Judgement, keepers: Keepers) -> set[KeeperRef]:
    """Return the keepers from before a batch that its judgement relies on."""
    texts = neighbours.earlier_keepers_of(judgement).tolist()
    return {KeeperRef(text, keepers.id(text)) for text in texts}


def make_verdicts(
    judgement: Judgement, neighbours: BatchNeighbours, reasons: Sequence[str], keeper_of: Mapping[int, bytes]
) -> list[Verdict]:
    """Return the verdict on each record.

    Args:
        judgement: The keeper's text of each record.
        neighbours: The texts that were judged.
        reasons: Why a record cannot be judged.
        keeper_of: Raw id of each text's keeper, by the text's number.
    """

    def make_verdict(row: int, own: int, text: int, distance: int, similarity: float) -> Verdict:
        if text < 0:
            return Verdict(Action.UNCHECKED, reasons[row])
        match = KeeperMatch(
            keeper_of[int(neighbours.texts[text])],
            None if distance == NO_DISTANCE else distance,
            None if isnan(similarity) else similarity,
        )
        return Verdict(Action.DUPLICATE, "exact" if text == own else "near", match)

    # Most records are unique and share one verdict.
    verdicts = [UNIQUE] * len(reasons)
    rows = np.flatnonzero((neighbours.rows < 0) | (judgement.keeper >= 0))
    columns = (neighbours.rows, judgement.keeper, judgement.distance, judgement.similarity)
    for row, *values in zip(rows.tolist(), *(column[rows].tolist() for column in columns), strict=True):
        verdicts[row] = make_verdict(row, *values)
    return verdicts


def observe_all(*observers: Observe) -> Observe:
    """Return an observer that calls these observers in turn."""

    def observe(plan: Plan) -> None:
        for each in observers:
            each(plan)

    return observe
