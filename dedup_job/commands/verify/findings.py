"""Run the checks of an audit, and describe the differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dedup_job.commands.verify.questions import ALTERED, HEAD, LEDGER, MISSING, NUMBERS, Kind
from dedup_job.commands.verify.subject import Audit, hashed
from dedup_job.ledger.arrival import is_as_judged
from dedup_job.ledger.stored_counts import counts_key
from dedup_job.mongo.shown_ids import extended
from dedup_job.report.verified import Difference

SAMPLES = 5  # records that are shown of each kind of difference
IDS_AT_ONCE = 1_000


def of_ledger(audit: Audit) -> list[Difference]:
    """Return the faults of the ledger itself."""
    plans = {kind.name: audit.book.faults(kind.name) for kind in LEDGER}
    if audit.head.pending is not None:
        plans["pending"] = [audit.head.pending.number]
    return [
        Difference(kind.name, kind.means, len(numbers), [{"plan": number} for number in numbers[:SAMPLES]])
        for kind in LEDGER
        if (numbers := plans[kind.name])
    ]


def of_head(audit: Audit) -> Iterator[Difference]:
    """Yield the differences between the head and the sum of the plans."""
    head, counted = audit.head, counts_key(audit.book.counts())
    last = audit.book.last_id()
    in_head = counts_key(head.counts)
    shown = {name: {"head": in_head[name], "plans": n} for name, n in counted.items() if n != in_head[name]}
    counters, watermark = HEAD
    if shown:
        yield Difference(counters.name, counters.means, len(shown), [shown])
    if last != head.watermark:
        ids = {"head_id": head.watermark, "plans_id": last}
        pair = {name: extended(raw_id) if raw_id else None for name, raw_id in ids.items()}
        yield Difference(watermark.name, watermark.means, 1, [pair])


def of_numbers(audit: Audit) -> Iterator[Difference]:
    """Compare the sizes of the collections with the counts in the head; needs no decisions."""
    counts, reader = audit.head.counts, audit.reader
    unjudged, refused = sum(counts.unjudged.values()), sum(counts.refused.values())
    restored = reader.restored()
    # A conflict means that the target has a foreign record with the id, and it counts like any other.
    conflicts = counts.refused.get("conflict", 0)
    kept = counts.unique + unjudged + conflicts + restored + len(audit.context.undo_leftovers())
    expected = {None: kept, "dropped": counts.duplicate - restored, "exceptions": unjudged + refused}
    wrong = [
        {"collection": name or "the target", "records": size, "ledger": number}
        for name, number in expected.items()
        if (size := reader.size(name)) != number
    ]
    if wrong:
        yield Difference(NUMBERS.name, NUMBERS.means, len(wrong), wrong)


def of_records(audit: Audit, kinds: Iterable[Kind]) -> Iterator[Difference]:
    """Yield the differences that the queries find, each with its first records."""
    _accept_server_times(audit)
    for kind in kinds:
        count, ids = audit.book.answer(kind.question, SAMPLES)
        if count and kind in (MISSING, ALTERED):
            yield Difference(kind.name, kind.means, count, _compare_with_source(audit, ids))
        elif count:
            yield Difference(kind.name, kind.means, count, [{"id": extended(raw_id)} for raw_id in ids])


def _accept_server_times(audit: Audit) -> None:
    """Mark records as unaltered that differ only in empty timestamps, which the server fills on insert."""
    for ids in audit.book.pages(ALTERED.question, IDS_AT_ONCE):
        for records in audit.context.target.fetch(ids):
            audit.book.mark_unaltered(
                raw_id
                for raw_id, raw in records.items()
                if is_as_judged(raw, audit.book.hash_of(raw_id) or b"")
            )


def _compare_with_source(audit: Audit, ids: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return for each id whether the source still has the version that was judged."""
    current = dict(pair for records in audit.context.source.fetch(ids) for pair in hashed(records.values()))
    shown = []
    for raw_id in ids:
        if raw_id not in current:
            state = "gone"
        elif current[raw_id] == audit.book.hash_of(raw_id):
            state = "as judged"
        else:
            state = "changed"
        shown.append({"id": extended(raw_id), "source": state})
    return shown
