"""A source, a target and a ledger in memory, for tests of `[match] prefer`; any write may be the last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np

from dedup_job.fingerprint.recipe import Matching
from dedup_job.index import candidate_index
from dedup_job.index.keepers import KeeperRefetch, Keepers
from dedup_job.index.shingle_similarity import jaccard
from dedup_job.ledger.plan_format import PlanColumns, PlanId
from dedup_job.ledger.rows_on_records import Dependant
from dedup_job.mongo.ids import IdSet
from dedup_job.native.arrays import Ragged
from dedup_job.pipeline.displaced_records_queue import DroppedRecord, LeavingRecord
from dedup_job.pipeline.load_keepers_and_scan_source import UnsettledKeepers
from dedup_job.pipeline.replace_keepers import KeepBest
from dedup_job.preference.preference_ranks import best_first, pack_rank
from dedup_job.preference.preference_rule import PreferRule
from dedup_job.records import (
    REDECIDE,
    REPLACE,
    UNIQUE,
    Action,
    Batch,
    FingerprintedBatch,
    Fingerprints,
    KeeperMatch,
    Plan,
    RawIds,
    Verdict,
    digests,
)
from tests.support.recipes import PLAIN

# No key is crowded.
MANY = 10_000


class Killed(Exception):
    """Raised instead of a write."""


@dataclass(frozen=True)
class Record:
    """A record with made-up shingles and a made-up rank."""

    id: bytes
    shingles: frozenset[int]
    rank: tuple[int, ...]

    @property
    def raw(self) -> bytes:
        return self.id

    @property
    def text(self) -> bytes:
        return repr(sorted(self.shingles)).encode()


@dataclass
class Ledger:
    """Plans, rows and the target; every write may be the last."""

    records: Mapping[bytes, Record]
    plans: list[tuple[int, str, Plan]] = field(default_factory=list)
    rows: dict[bytes, Dependant] = field(default_factory=dict)
    target: set[bytes] = field(default_factory=set)
    unsettled: int | None = None
    writes_left: int = -1
    # Without copies the source is in the target's place, and keeps all records.
    has_copies: bool = True

    @property
    def number(self) -> int:
        return len(self.plans) - 1

    @property
    def there(self) -> Collection[bytes]:
        """The ids in the target or, without copies, in the source."""
        return self.target if self.has_copies else self.records.keys()

    def write(self) -> None:
        if self.writes_left == 0:
            raise Killed
        self.writes_left -= 1

    def commit(self, plan: Plan, raws: Sequence[bytes], mode: str = "run") -> Plan:
        self.write()
        number = len(self.plans)
        if plan.displaced and self.unsettled is None:
            self.unsettled = number
        self.plans.append((number, mode, plan))
        for row, verdict in enumerate(plan.verdicts):
            raw_id, match = plan.ids[row], verdict.match
            self.rows.pop(raw_id, None)
            if verdict.action is Action.UNIQUE:
                self.target.add(raw_id)
            elif match is not None:
                assert plan.ranks is not None
                rank = pack_rank(plan.ranks[row])
                self.rows[raw_id] = Dependant(raw_id, match.keeper, number, verdict.reason, rank)
        for raw_id in plan.ids if mode == REPLACE else ():
            self.target.remove(raw_id)
        self.check_nothing_is_missing()
        return plan

    def check_nothing_is_missing(self) -> None:
        """At every moment, all dropped records have a keeper in the target that matches them."""
        for raw_id, row in self.rows.items():
            assert row.keeper in self.target, (raw_id, row.keeper)

    def dropped_for(self, keepers: Sequence[bytes], take: Callable[[Sequence[Dependant]], None]) -> None:
        take([row for row in self.rows.values() if row.keeper in keepers])

    def redecide(self, plan: Plan, raws: Sequence[bytes], dropped: Sequence[DroppedRecord]) -> Plan:
        assert [one.number for one in dropped] == [self.rows[raw_id].number for raw_id in plan.ids]
        return self.commit(plan, raws, REDECIDE)

    def replace(self, leaving: Sequence[LeavingRecord]) -> Plan:
        parts = []
        for one in leaving:
            plan = next(plan for number, _, plan in self.plans if number == one.number)
            part = plan.take([plan.ids.index(one.id)])
            assert part.verdicts == [UNIQUE]
            parts.append(replace(part, verdicts=[one.verdict]))
        return self.commit(Plan.join(parts), [], REPLACE)

    def finish(self) -> None:
        self.write()
        again: set[bytes] = set()
        for place in reversed(range(len(self.plans))):
            number, mode, plan = self.plans[place]
            rows = [row for row, raw_id in enumerate(plan.ids) if raw_id not in again]
            self.plans[place] = number, mode, plan.take(rows)
            if mode in (REPLACE, REDECIDE):
                again.update(plan.ids)
        self.unsettled = None

    def verdicts(self) -> dict[bytes, Verdict]:
        return {
            raw_id: verdict
            for _, _, plan in self.plans
            for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True)
        }


def matching_of(rules: int, min_similarity: float) -> Matching:
    prefer = tuple(PreferRule("descending", f"f{place}") for place in range(rules))
    return replace(PLAIN.matching, bands=1, band_radius=64, min_similarity=min_similarity, prefer=prefer)


def prints_of(records: Sequence[Record]) -> Fingerprints:
    sets = [sorted(record.shingles) for record in records]
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    count = len(records)
    return Fingerprints(
        reasons=[""] * count,
        bits=np.zeros((count, 1), np.uint64),
        has_fingerprint=np.zeros(count, np.bool_),
        # One key for all, so that every text is a candidate for every other.
        keys=np.ones((count, 1), np.uint32),
        digests=digests(record.text for record in records),
        hashes=digests(record.raw for record in records),
        shingles=Ragged(offsets, np.array([value for row in sets for value in row], np.uint32)),
        partial=np.zeros(count, np.bool_),
        ranks=np.array([record.rank for record in records], np.uint64).reshape(count, -1),
    )


def load(ledger: Ledger, matching: Matching) -> tuple[Keepers, UnsettledKeepers | None]:
    """Load the keepers of a ledger, and those that a killed run has left to be decided again."""

    def fetch(ids: Sequence[bytes]) -> Iterator[Mapping[bytes, bytes]]:
        yield {raw_id: raw_id for raw_id in ids if raw_id in ledger.there}

    older = KeeperRefetch(fetch, lambda raws: prints_of([ledger.records[raw] for raw in raws]))
    with mock.patch.multiple(candidate_index, LISTED=MANY, FOUND=MANY):
        keepers = Keepers(replace(PLAIN, matching=matching), 1 << 20, older)
    first = ledger.unsettled
    due = {
        raw_id
        for number, _, plan in ledger.plans
        if first is not None and number >= first
        for raw_id in plan.displaced
    }
    unsettled = None if first is None else UnsettledKeepers(first, due)
    for number, mode, plan in ledger.plans:
        if len(plan):
            numbers = keepers.load_plan(plan.texts, number)
            if unsettled:
                columns = PlanColumns(PlanId(number, 0), None, mode, RawIds.of(plan.ids), plan.texts)
                unsettled.add_plan(columns, plan.texts, numbers.tolist(), keepers)
    return keepers, unsettled


def run(ledger: Ledger, matching: Matching, batches: Sequence[Sequence[Record]]) -> None:
    """Run once: load the ledger, decide the batches, settle; raises `Killed` when no write is left."""

    def read(ids: Sequence[bytes]) -> Iterator[FingerprintedBatch]:
        if found := [ledger.records[raw_id] for raw_id in ids if raw_id in ledger.records]:
            yield batch_of(found)

    keepers, unsettled = load(ledger, matching)
    decider = KeepBest(
        matching=matching,
        keepers=keepers,
        target=Target(ledger),
        adopted=IdSet(),
        store=ledger,
        read=read,
        blank=Fingerprints.unchecked("", 1, 1, len(matching.prefer), b""),
        first_number=len(ledger.plans),
    )
    if unsettled:
        decider.add_unsettled(unsettled.records)
    decider.decide_batches(map(batch_of, batches), ledger.commit, lambda plan: None)
    decider.settle()


@dataclass
class Target:
    """The kept records of a ledger."""

    ledger: Ledger

    def absent(self, ids: Sequence[bytes]) -> set[bytes]:
        return set(ids) - set(self.ledger.there)

    def conflicting(self, records: Sequence[bytes]) -> set[bytes]:
        return set()


def batch_of(records: Sequence[Record]) -> FingerprintedBatch:
    ids = [record.id for record in records]
    return Batch(ids, ids), prints_of(records)


def keep_best(records: Sequence[Record], matching: Matching) -> list[bytes]:
    """The contract: sort the records best first, and keep the first of those that match."""
    ranks = np.array([record.rank for record in records], np.uint64).reshape(len(records), -1)
    kept: list[Record] = []
    for row in best_first(ranks, [record.id for record in records]).tolist():
        if not any(is_match(records[row], other, matching) for other in kept):
            kept.append(records[row])
    return [record.id for record in kept]


def is_match(one: Record, other: Record, matching: Matching) -> bool:
    sets = (np.array(sorted(record.shingles), np.uint32) for record in (one, other))
    return one.shingles == other.shingles or jaccard(*sets) >= matching.min_similarity


def match_of(verdict: Verdict) -> KeeperMatch:
    assert verdict.match is not None
    return verdict.match
