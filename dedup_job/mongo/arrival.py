"""Arrival: the records of a plan as they are now, and which of them do not land as planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xxhash

from dedup_job.document import Action, Verdict
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.plan import Plan


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a plan as they are now.

    raws     raw BSON by row; None where there is no such record any more
    changed  rows whose record is another than the one that was judged
    """

    raws: Sequence[bytes | None]
    changed: frozenset[int] = frozenset()


def records_now(plan: Plan, source: Source, target: Target) -> Records:
    """Return what became of a pending plan's records since it was decided.

    A record that is already in the target as it was judged counts as it is there.
    """
    there = target.fetch(plan.ids)
    here = source.fetch(plan.ids)
    raws: list[bytes | None] = []
    changed = set()
    for row, raw_id in enumerate(plan.ids):
        judged = [raw for raw in (there.get(raw_id), here.get(raw_id)) if raw and _is_judged(plan, row, raw)]
        raws.append(judged[0] if judged else here.get(raw_id))
        if not judged and raw_id in here:
            changed.add(row)
    return Records(raws, frozenset(changed))


def landed(plan: Plan, records: Records, target: Target) -> dict[int, Verdict]:
    """Insert what the plan keeps; returns the rows that did not land as planned, with their new verdict."""
    rows = plan.rows(Action.UNIQUE, Action.UNJUDGED)
    failed = {row: Verdict(Action.REFUSED, "vanished") for row in rows if records.raws[row] is None}
    for row in records.changed.intersection(rows):
        raw = records.raws[row]
        if raw is not None and not _is_judged(plan, row, raw):
            failed[row] = Verdict(Action.UNJUDGED, "changed")
    if failed:
        return failed
    refused = target.insert([raw for row in rows if (raw := records.raws[row]) is not None])
    return {rows[place]: Verdict(Action.REFUSED, reason) for place, reason in refused.items()}


def as_arriving(plan: Plan, records: Records, rows: Iterable[int]) -> Plan:
    """Return the plan with the hashes of what changed in these rows as it is now, which is as it arrives."""
    hashes = plan.hashes.copy()
    for row in records.changed.intersection(rows):
        raw = records.raws[row]
        if raw is not None:
            hashes[row] = np.frombuffer(xxhash.xxh3_128_digest(raw), np.uint64)
    return replace(plan, hashes=hashes)


def _is_judged(plan: Plan, row: int, raw: bytes) -> bool:
    return bool(xxhash.xxh3_128_digest(raw) == plan.hashes[row].tobytes())
