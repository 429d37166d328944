"""Findings: the questions to a filled book, and how their answers are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dedup_job.commands.verify.questions import ALTERED, HEAD, LEDGER, MISSING, NUMBERS, Kind
from dedup_job.commands.verify.subject import Audit, hashed
from dedup_job.ledger.arrival import is_as_judged
from dedup_job.ledger.stored_counts import counts_key
from dedup_job.mongo.shown_ids import extended
from dedup_job.report.verified import Difference

SAMPLES = 5
IDS_AT_ONCE = 1_000


def of_ledger(audit: Audit) -> list[Difference]:
    """Return what is wrong with the ledger itself."""
    found = {kind.name: audit.book.faults(kind.name) for kind in LEDGER}
    if audit.head.pending is not None:
        found["pending"] = [audit.head.pending.number]
    return [
        Difference(kind.name, kind.means, len(numbers), [{"plan": number} for number in numbers[:SAMPLES]])
        for kind in LEDGER
        if (numbers := found[kind.name])
    ]


def of_head(audit: Audit) -> Iterator[Difference]:
    """Yield where the head is not the sum of the plans."""
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
    """Compare how many records the collections have with the counts in the head, as a sample can."""
    counts, statements = audit.head.counts, audit.statements
    unjudged, refused = sum(counts.unjudged.values()), sum(counts.refused.values())
    restored = statements.restored()
    # Who put a record there that refused another is not the ledger's affair.
    kept = counts.unique + unjudged + counts.refused.get("conflict", 0) + restored + len(audit.context.left())
    expected = {None: kept, "dropped": counts.duplicate - restored, "exceptions": unjudged + refused}
    wrong = [
        {"collection": name or "the target", "records": there, "ledger": number}
        for name, number in expected.items()
        if (there := statements.size(name)) != number
    ]
    if wrong:
        yield Difference(NUMBERS.name, NUMBERS.means, len(wrong), wrong)


def of_records(audit: Audit, kinds: Iterable[Kind]) -> Iterator[Difference]:
    """Ask each question, and show of the first records what a person needs to know."""
    _settle_times(audit)
    for kind in kinds:
        count, ids = audit.book.answer(kind.question, SAMPLES)
        if count and kind in (MISSING, ALTERED):
            yield Difference(kind.name, kind.means, count, _with_source(audit, ids))
        elif count:
            yield Difference(kind.name, kind.means, count, [{"id": extended(raw_id)} for raw_id in ids])


def _settle_times(audit: Audit) -> None:
    """Take back that a record is altered where the server only set the times that it sets on insertion."""
    for some in audit.book.pages(ALTERED.question, IDS_AT_ONCE):
        for there in audit.context.target.fetch(some):
            audit.book.arrived(
                raw_id
                for raw_id, raw in there.items()
                if is_as_judged(raw, audit.book.hash_of(raw_id) or b"")
            )


def _with_source(audit: Audit, ids: Sequence[bytes]) -> list[dict[str, Any]]:
    """Say of each id whether the source still has the record as it was judged."""
    there = dict(pair for found in audit.context.source.fetch(ids) for pair in hashed(found.values()))
    shown = []
    for raw_id in ids:
        if raw_id not in there:
            state = "gone"
        elif there[raw_id] == audit.book.hash_of(raw_id):
            state = "as judged"
        else:
            state = "changed"
        shown.append({"id": extended(raw_id), "source": state})
    return shown
