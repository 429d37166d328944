"""Fetch the present versions of a plan's records, and insert the kept records into the target."""

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
    """The present versions of a plan's records.

    Attributes:
        raws: Raw record by row; None if it no longer exists.
        changed: Rows whose record differs from the version that was judged.
        taken: Rows whose record no longer exists, while the target has another record with its id.
        landed: Rows whose record a killed run inserted into the target.
    """

    raws: Sequence[bytes | None]
    changed: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()
    landed: frozenset[int] = frozenset()


def records_now(stored: StoredPlan, source: Source, target: Target) -> CurrentRecords:
    """Fetch the present versions of a pending plan's records.

    A record that is in the target in the judged version is taken from there, with the timestamps that the
    server set when it was inserted.  A copy that the plan replaces or removes is not another record.
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
    """Return the keepers of a plan, from before it, that are missing from the target or changed there."""
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
    """Return whether a record in the target is the judged version.

    Args:
        stored: The record in the target, whose empty timestamps the server may have set.
        judged: `digest` of the version that was judged.
    """
    return any(digest(sent) == judged for sent in as_sent(stored))


def not_as_judged(plan: Plan, records: CurrentRecords, rows: Iterable[int]) -> dict[int, Verdict]:
    """Return new verdicts for the rows whose record vanished or changed since the decision."""
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
    """Insert the records of these rows; return the new verdicts of rows that the target refuses.

    Args:
        records: The records of the plan.
        rows: Rows to insert.
        target: The target.
        absent: Ids known to be absent from the target; see `Target.insert`.
    """
    refused = target.insert([raw for row in rows if (raw := records.raws[row]) is not None], absent)
    return {rows[place]: Verdict(Action.REFUSED, reason) for place, reason in refused.items()}


def as_arriving(plan: Plan, records: CurrentRecords, rows: Iterable[int]) -> Plan:
    """Return the plan with the hashes of the present versions in these rows, which will be inserted."""
    hashes = plan.hashes.copy()
    for row in records.changed.intersection(rows):
        raw = records.raws[row]
        if raw is not None:
            hashes[row] = np.frombuffer(digest(raw), np.uint64)
    return replace(plan, hashes=hashes)


def _is_judged(plan: Plan, row: int, raw: bytes) -> bool:
    return bool(digest(raw) == plan.hashes[row].tobytes())
