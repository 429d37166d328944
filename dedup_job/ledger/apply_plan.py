"""Look at a plan's records as they are now, and insert the kept ones into the target."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dedup_job.ledger.plan_format import StoredPlan
from dedup_job.mongo.record_equality import as_sent
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.records import CONFLICT, VANISHED, Action, Plan, Verdict, digest


@dataclass(frozen=True, slots=True)
class CurrentRecords:
    """The records of a plan as they are now.

    raws     raw BSON by row; None where there is no such record any more
    changed  rows whose record is another than the one that was judged
    taken    rows with no such record any more, whose id another one has in the target
    landed   rows whose record a killed run has put into the target
    """

    raws: Sequence[bytes | None]
    changed: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()
    landed: frozenset[int] = frozenset()


def records_now(stored: StoredPlan, source: Source, target: Target) -> CurrentRecords:
    """Return what became of a pending plan's records since it was decided.

    A record that is already in the target as it was judged counts as it is there, with the times that the
    server set when it was inserted.  A copy that the plan is to replace or to remove is no other record.
    """
    plan, before = stored.plan, stored.before
    rows = {raw_id: row for row, raw_id in enumerate(plan.ids)}
    raws: list[bytes | None] = [None] * len(plan)
    taken, changed, landed = set[int](), set[int](), set[int]()
    for there in target.fetch(plan.ids):
        for raw_id in there.keys() & rows.keys():
            row = rows[raw_id]
            is_from_before = before and is_as_judged(there[raw_id], before.hash_of(row) or b"")
            if is_as_judged(there[raw_id], plan.hashes[row].tobytes()):
                raws[row] = there[raw_id]
                if not is_from_before:
                    landed.add(row)
            elif not is_from_before:
                taken.add(row)
    for here in source.fetch([raw_id for raw_id, row in rows.items() if raws[row] is None]):
        for raw_id in here.keys() & rows.keys():
            row = rows[raw_id]
            raws[row] = here[raw_id]
            taken.discard(row)
            if not _is_judged(plan, row, here[raw_id]):
                changed.add(row)
    return CurrentRecords(raws, frozenset(changed), frozenset(taken), frozenset(landed))


def gone_keepers(stored: StoredPlan, earlier: Iterable[StoredPlan], target: Target) -> set[bytes]:
    """Return the keepers from before a plan that are not in the target any more as they were put there."""
    matches = (verdict.match for verdict in stored.plan.verdicts)
    keepers = {match.keeper for match in matches if match is not None} - set(stored.plan.ids)
    if not keepers:
        return set()
    judged = {
        raw_id: hashed.tobytes()
        for one in earlier
        for raw_id, hashed in zip(one.plan.ids, one.plan.hashes, strict=True)
        if raw_id in keepers
    }
    for found in target.fetch(list(keepers)):
        keepers -= {one for one in found.keys() & judged.keys() if is_as_judged(found[one], judged[one])}
    return keepers


def is_as_judged(stored: bytes, judged: bytes) -> bool:
    """Return whether a record in the target is the one with this `digest`, as the server stores it."""
    return any(digest(sent) == judged for sent in as_sent(stored))


def not_as_judged(plan: Plan, records: CurrentRecords, rows: Iterable[int]) -> dict[int, Verdict]:
    """Return those of the rows whose record is gone or another one by now, with their new verdict."""
    failed = {
        row: CONFLICT if row in records.taken else VANISHED for row in rows if records.raws[row] is None
    }
    for row in records.changed.intersection(rows):
        raw = records.raws[row]
        if raw is not None and not _is_judged(plan, row, raw):
            failed[row] = Verdict(Action.UNJUDGED, "changed")
    return failed


def insert_kept(
    records: CurrentRecords, rows: Sequence[int], target: Target, absent: Collection[bytes] = ()
) -> dict[int, Verdict]:
    """Insert the records of these rows; returns those that the target refuses.  `absent` as in `insert`."""
    refused = target.insert([raw for row in rows if (raw := records.raws[row]) is not None], absent)
    return {rows[place]: Verdict(Action.REFUSED, reason) for place, reason in refused.items()}


def as_arriving(plan: Plan, records: CurrentRecords, rows: Iterable[int]) -> Plan:
    """Return the plan with the hashes of what changed in these rows as it is now, which is as it arrives."""
    hashes = plan.hashes.copy()
    for row in records.changed.intersection(rows):
        raw = records.raws[row]
        if raw is not None:
            hashes[row] = np.frombuffer(digest(raw), np.uint64)
    return replace(plan, hashes=hashes)


def _is_judged(plan: Plan, row: int, raw: bytes) -> bool:
    return bool(digest(raw) == plan.hashes[row].tobytes())
