"""The job on one page: read, fingerprint, decide, commit.  Read this first.

A record is a duplicate when an earlier kept record has the same cleaned text, or is a candidate and, when
texts are compared, has enough shingles in common.  The nearest keeper wins, the earliest of the nearest.  A
record that is a duplicate itself stands for nothing: a chain A ~ B ~ C never drops C for A.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dedup_job.document import CONFLICT, UNIQUE, Action, Batch, Counts, Fingerprints, Match, Verdict
from dedup_job.fingerprint.recipe import Matching
from dedup_job.match.found import NO_DISTANCE
from dedup_job.match.judge import Judgement
from dedup_job.match.keepers import Entered, Keepers, Standing
from dedup_job.match.neighbours import Neighbours, neighbours_of_batch, neighbours_of_each
from dedup_job.plan import Plan, RawIds

Observe = Callable[[Batch, Plan], object]
"""Told of each batch and its plan, for the report."""

PLAN_BYTES = 6 << 20  # a document has 16 MiB at most, and so has a command that names a plan's ids


class Engine(Protocol):
    """Where fingerprinting runs."""

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        """Yield each batch with its fingerprints, in order."""
        ...


class Checking(Protocol):
    """What is asked whether keepers still stand; see `Job`."""

    @property
    def keepers(self) -> Keepers:
        """Everything that was kept before."""
        ...

    @property
    def absent(self) -> Callable[[Collection[bytes]], set[bytes]]:
        """Tells which of some keepers are not in the target any more."""
        ...

    @property
    def adopted(self) -> Callable[[Sequence[bytes]], Collection[bytes]]:
        """Tells which of some ids the target held before the job began."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """What a run works with; a dry run is handed a `commit` that writes nothing.

    batches   what to decide, in order
    keepers   everything that was kept before
    absent    tells which of some keepers are not in the target any more
    adopted   tells which of some ids the target held before the job began
    conflicting  tells the ids of those raw records that the target has another record of
    commit    carries out a plan for these raw records, and returns the plan as it ended; the rows that tell
              of it may be written later
    observe   is told of each batch and its plan, for the report
    """

    batches: Iterable[Batch]
    engine: Engine
    matching: Matching
    keepers: Keepers
    absent: Callable[[Collection[bytes]], set[bytes]]
    commit: Callable[[Plan, Sequence[bytes]], Plan]
    observe: Observe
    adopted: Callable[[Sequence[bytes]], Collection[bytes]] = field(default=lambda ids: ())
    conflicting: Callable[[Sequence[bytes]], Collection[bytes]] = field(default=lambda raws: ())


@dataclass(frozen=True, slots=True)
class Adopted:
    """Which ids of a batch the target held before the job began; they are never dropped.

    ids          all of them
    conflicting  those of which it has another record: it is known beforehand that these are refused
    """

    ids: Collection[bytes] = ()
    conflicting: Collection[bytes] = ()


class Decision(NamedTuple):
    """The verdict of each record of a batch, in order, and the keepers from before it that they rely on."""

    verdicts: list[Verdict]
    relied_on: set[Standing]


def run(job: Job) -> Counts:
    """Decide every batch in turn and make each plan final before the next is decided."""
    counts = Counts()
    for batch, prints in job.engine.fingerprinted(job.batches):
        entered = job.keepers.enter(RawIds.of(batch.ids), prints)
        adopted = adopted_of(batch, job)
        decision = decide(batch.ids, prints, entered.texts, job.matching, job.keepers, adopted)
        while outdated := outdated_of(decision.relied_on, job):
            job.keepers.forget(outdated)
            decision = decide(batch.ids, prints, entered.texts, job.matching, job.keepers, adopted)
        plan = in_parts(planned(batch, prints, decision.verdicts), batch.raws, job.commit)
        admit(plan, entered, prints, job.keepers)
        job.observe(batch, plan)
        counts += replace(plan.counts, partial=int(prints.partial.sum()))
    return counts


def in_parts(plan: Plan, raws: Sequence[bytes], commit: Callable[[Plan, Sequence[bytes]], Plan]) -> Plan:
    """Commit a plan, in parts where it is too large to be stored; returns the whole as it ended.

    What a part's refusal of a keeper means for later parts is what it means within one.
    """
    for start, stop in plan.bounds(PLAN_BYTES):
        done = commit(plan.part(start, stop), raws[start:stop])
        refused = {start + row: done.verdicts[row] for row in done.rows(Action.REFUSED)}
        if failed := {row: one for row, one in refused.items() if one != plan.verdicts[row]}:
            plan = plan.without(failed)
    return plan


def adopted_of(batch: Batch, job: Job) -> Adopted:
    """Return what the target held before of the ids of a batch."""
    there = job.adopted(batch.ids)
    raws = [raw for raw_id, raw in zip(batch.ids, batch.raws, strict=True) if raw_id in there]
    return Adopted(there, job.conflicting(raws) if raws else ())


def outdated_of(standings: Collection[Standing], job: Checking) -> set[Standing]:
    """Return those that are no keepers any more: their record is gone, or has another text now.

    What this run put there, or read there, need only be there.  Of what earlier runs put there the text is
    looked at, as somebody may have altered it since; and always of a record that was held before, as it may
    have been deleted and have come again from the source.
    """
    adopted = job.adopted([standing.id for standing in standings])
    seen = {one for one in standings if one.id not in adopted and job.keepers.has_seen(one)}
    gone = job.absent({standing.id for standing in seen})
    changed = job.keepers.outdated([standing for standing in standings if standing not in seen])
    return changed | {standing for standing in seen if standing.id in gone}


def planned(batch: Batch, prints: Fingerprints, verdicts: Sequence[Verdict]) -> Plan:
    """Return the plan for a batch: its verdicts, and what the index is later rebuilt from."""
    return Plan(
        batch.ids, verdicts, prints.bits, prints.has_fingerprint, prints.keys, prints.digests, prints.hashes
    )


def admit(plan: Plan, entered: Entered, prints: Fingerprints, keepers: Keepers) -> None:
    """Let what a plan has kept, now that it is carried out, stand for later records."""
    rows = plan.rows(Action.UNIQUE)
    is_kept = np.zeros(len(plan), np.bool_)
    is_kept[rows] = True
    keepers.keep(entered, is_kept, plan.ids)
    keepers.remember(entered.texts[rows], prints.shingles.take(rows))


def in_memory(batch: Batch, prints: Fingerprints, matching: Matching, keepers: Keepers) -> Plan:
    """Decide a batch against keepers that no target holds, and let what is unique be one of them."""
    entered = keepers.enter(RawIds.of(batch.ids), prints)
    verdicts = decide(batch.ids, prints, entered.texts, matching, keepers).verdicts
    plan = planned(batch, prints, verdicts)
    admit(plan, entered, prints, keepers)
    return plan


def decide(
    ids: Sequence[bytes],
    prints: Fingerprints,
    texts: npt.NDArray[np.int64],
    matching: Matching,
    keepers: Keepers,
    adopted: Adopted = Adopted(),
) -> Decision:
    """Decide the records, in order, against the keepers and the batch's earlier records.

    texts  int64 (n,), the numbers of their texts among those of the keepers, where they have been entered
    """
    is_droppable = np.array([raw_id not in adopted.ids for raw_id in ids], np.bool_)
    is_conflicting = np.array([raw_id in adopted.conflicting for raw_id in ids], np.bool_)
    texts = np.where(is_conflicting, -1, texts)
    neighbours = neighbours_of_batch(prints, texts, matching, keepers)
    found = neighbours.judged(is_droppable, matching.min_similarity)
    relied_on = _relied_on(neighbours, found, keepers)
    kept_here = _first_ids(ids, texts, np.flatnonzero((texts >= 0) & (found.keeper < 0)))
    keeper_of = kept_here | dict(relied_on)  # where a record stands for a text already, it goes on to do so

    verdicts = _verdicts(found, neighbours, prints.reasons, keeper_of)
    for row in np.flatnonzero(is_conflicting).tolist():
        verdicts[row] = CONFLICT
    return Decision(verdicts, relied_on)


def find(prints: Fingerprints, matching: Matching, keepers: Keepers) -> Decision:
    """Tell what would be decided of each of these records if it came next, alone; nothing is entered."""
    neighbours = neighbours_of_each(prints, matching, keepers)
    judgement = neighbours.judged(np.ones(len(prints), np.bool_), matching.min_similarity)
    relied_on = _relied_on(neighbours, judgement, keepers)
    return Decision(_verdicts(judgement, neighbours, prints.reasons, dict(relied_on)), relied_on)


def _verdicts(
    found: Judgement, neighbours: Neighbours, reasons: Sequence[str], keeper_of: Mapping[int, bytes]
) -> list[Verdict]:
    """Return the verdict on each record; `keeper_of` tells which record stands for a text."""

    def verdict(row: int) -> Verdict:
        place = int(found.keeper[row])
        if place < 0:
            return Verdict(Action.UNJUDGED, reasons[row])
        reason = "exact" if place == neighbours.rows[row] else "near"
        return Verdict(Action.DUPLICATE, reason, _match(found, row, keeper_of[int(neighbours.texts[place])]))

    verdicts = [UNIQUE] * len(reasons)
    for row in np.flatnonzero((neighbours.rows < 0) | (found.keeper >= 0)).tolist():
        verdicts[row] = verdict(row)
    return verdicts


def _relied_on(neighbours: Neighbours, found: Judgement, keepers: Keepers) -> set[Standing]:
    return {Standing(text, keepers.id(text)) for text in neighbours.relied_on(found).tolist()}


def _first_ids(
    ids: Sequence[bytes], texts: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]
) -> dict[int, bytes]:
    """Return for each text the id of the first of these rows that has it."""
    return {text: ids[row] for text, row in zip(texts[rows][::-1].tolist(), rows[::-1].tolist(), strict=True)}


def _match(found: Judgement, row: int, keeper: bytes) -> Match:
    distance, similarity = int(found.distance[row]), float(found.similarity[row])
    return Match(
        keeper, None if distance == NO_DISTANCE else distance, None if isnan(similarity) else similarity
    )
