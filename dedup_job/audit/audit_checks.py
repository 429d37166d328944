"""The checks of `verify`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dedup_job.audit.audit_context import AuditSession, hash_records
from dedup_job.audit.audit_database import RESTORED
from dedup_job.ledger.apply_plan import is_as_judged
from dedup_job.ledger.plan_format import counts_key
from dedup_job.mongo.ids import extended
from dedup_job.pipeline.command_context import Context
from dedup_job.records import REFERENCE
from dedup_job.report.verify_result import AuditDifference

RESTORE = (
    f"""UPDATE decided SET action = {RESTORED}, hash = (SELECT hash FROM restored r WHERE r.id = decided.id)
        WHERE action = 1 AND id IN (SELECT id FROM restored)""",
    "DELETE FROM noted WHERE name = 'dropped' AND id IN (SELECT id FROM restored)",
)
# Decisions, each with the decision on its keeper, k.
PAIRS = "SELECT d.id FROM decided d JOIN decided k ON k.id = d.keeper"
# Records shown of each kind of difference.
SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Check:
    """A kind of difference.

    Attributes:
        name: Its name in JSON.
        means: Its meaning, for people.
        question: SQL that selects the ids of the records with this difference.
        of_sample: Whether it can be found in a sample of the decisions.
    """

    name: str
    means: str
    question: str = ""
    of_sample: bool = True

    def difference(self, count: int, samples: Sequence[Mapping[str, Any]]) -> AuditDifference:
        """Return so many differences of this kind, with the first as samples."""
        return AuditDifference(self.name, self.means, count, samples[:SAMPLES])


def _of_both(question: str) -> str:
    """Return a query for the rows of `dropped` and of `exceptions`; the question names either as {name}."""
    return " UNION ALL ".join(question.format(name=name) for name in ("dropped", "exceptions"))


# With a damaged ledger, the other checks would mean nothing.
LEDGER = (
    Check("pending", "a plan is accepted and not applied yet: run the job again, then verify"),
    Check("plan_missing", "a plan is not in the ledger: restore the target database from a backup"),
    Check("plan_damaged", "a plan is corrupt (checksum mismatch): restore the target database from a backup"),
    Check(
        "chain_broken", "a plan does not follow the plan before it: restore the target database from a backup"
    ),
)
HEAD_CHECKS = (
    Check("counters", "the counts in the head differ from the sum of the plans", of_sample=False),
    Check("watermark", "the watermark is not the last id that a backfill decided", of_sample=False),
)
NUMBERS = Check("numbers", "a collection has more or fewer records than the ledger's counts say")

MISSING = Check(
    "missing",
    "a record that was kept is not in the target",
    f"""SELECT id FROM decided WHERE action IN (0, 2, {RESTORED}) AND reason != '{REFERENCE}'
        AND NOT EXISTS (SELECT 1 FROM target t WHERE t.id = decided.id)
        AND (action != {RESTORED} OR NOT EXISTS (SELECT 1 FROM dropped r WHERE r.id = decided.id))""",
)
ALTERED = Check(
    "altered",
    "a record in the target differs from the version that was judged",
    f"""SELECT d.id FROM decided d JOIN target t USING (id)
       WHERE d.action IN (0, 2, {RESTORED}) AND d.reason NOT IN ('changed', '{REFERENCE}')
       AND t.hash != d.hash""",
)
RECORDS = (
    Check("decided_twice", "two decisions on one record", "SELECT id FROM decided WHERE times > 1"),
    MISSING,
    ALTERED,
    Check(
        "foreign",
        "a record in the target that the ledger does not keep",
        """SELECT t.id FROM target t LEFT JOIN decided d USING (id)
           WHERE (d.id IS NULL OR (d.action = 3 AND d.reason != 'conflict'))
           AND NOT EXISTS (SELECT 1 FROM stayed s WHERE s.id = t.id)""",
        of_sample=False,
    ),
    Check(
        "duplicate_in_target",
        "a dropped record is in the target",
        "SELECT d.id FROM decided d JOIN target t USING (id) WHERE d.action = 1",
    ),
    Check(
        "keeper_missing",
        "a dropped record whose keeper is not in the target",
        """SELECT id FROM decided WHERE action = 1
           AND NOT EXISTS (SELECT 1 FROM target t WHERE t.id = decided.keeper)""",
    ),
    Check(
        "keeper_altered",
        "a dropped record whose keeper in the target differs from the version that was judged",
        f"{PAIRS} JOIN target t ON t.id = k.id WHERE d.action = 1 AND k.action = 0 AND t.hash != k.hash",
    ),
    Check(
        "keeper_unknown",
        "a dropped record whose keeper was never decided",
        """SELECT id FROM decided d WHERE action = 1
           AND NOT EXISTS (SELECT 1 FROM decided k WHERE k.id = d.keeper)""",
        of_sample=False,
    ),
    Check(
        "keeper_not_kept",
        "a dropped record whose keeper is not kept itself",
        f"{PAIRS} WHERE d.action = 1 AND k.action != 0",
    ),
    Check(
        "keeper_later",
        "a dropped record whose keeper was decided later",
        f"{PAIRS} WHERE d.action = 1 AND k.place >= d.place",
    ),
    Check(
        "text_differs",
        "an exact duplicate whose text differs from its keeper's",
        f"{PAIRS} WHERE d.action = 1 AND d.reason = 'exact' AND k.digest != d.digest",
    ),
    Check(
        "row_missing",
        "a dropped, unchecked or refused record without its row in `dropped` or `exceptions`",
        _of_both(
            """SELECT id FROM noted n WHERE name = '{name}'
               AND NOT EXISTS (SELECT 1 FROM {name} r WHERE r.id = n.key)"""
        ),
    ),
    Check(
        "row_superfluous",
        "a row in `dropped` or `exceptions` that no plan asks for",
        _of_both(
            """SELECT r.id FROM {name} r
               WHERE NOT EXISTS (SELECT 1 FROM noted n WHERE n.name = '{name}' AND n.key = r.id)
               AND ('{name}' != 'dropped' OR NOT EXISTS (SELECT 1 FROM restored o WHERE o.id = r.id))"""
        ),
    ),
    Check(
        "restore_unfinished",
        "a record whose restore was killed: restore it again, or, if it has left the source, `sync`",
        "SELECT r.id FROM dropped r JOIN restored o USING (id)",
    ),
    Check(
        "restore_forgotten",
        "a record that was kept because a person had restored it, without its row in `overrides`",
        """SELECT id FROM decided WHERE action = 2 AND reason = 'restored'
           AND id NOT IN (SELECT id FROM restored)""",
        of_sample=False,
    ),
    Check(
        "row_differs",
        "a row in `dropped` or `exceptions` that says other than its plan",
        _of_both(
            """SELECT n.id FROM noted n JOIN {name} r ON r.id = n.key
               WHERE n.name = '{name}' AND r.note != n.note"""
        ),
    ),
    Check(
        "undecided",
        "a record of the source that no plan decided, though by its id runs may have looked past it: "
        "dedup-job sync decides it",
        "SELECT id FROM undecided",
        of_sample=False,
    ),
    Check(
        "returned",
        "a record that had vanished, and is in the source or the archive again: dedup-job sync decides it",
        "SELECT id FROM returned",
        of_sample=False,
    ),
    Check(
        "kept_in_archive",
        "a kept record that only the archive has, as after an older source and archive were put back: "
        "dedup-job sync moves it to the source",
        "SELECT id FROM kept_in_archive",
        of_sample=False,
    ),
    Check(
        "undecided_in_archive",
        "a record that is only in the archive and that no plan decided, as after an older ledger was put "
        "back: copy the archive into the source, then dedup-job sync and sweep",
        """SELECT id FROM undecided_in_archive
           WHERE id NOT IN (SELECT id FROM undecided UNION ALL SELECT id FROM waiting)""",
        of_sample=False,
    ),
)
# Without copies the source itself has the kept records, beside the dropped ones; its owner may delete or
# change any of them, which matters only where another record was dropped for it.
KEEPER_MEANS = {
    "keeper_missing": (
        "a dropped record whose keeper is no longer in the source: `sync` decides it again, or, if the "
        "keeper was a reference record, `restore` keeps it"
    ),
    "keeper_altered": (
        "a dropped record whose keeper has changed: `sync` decides it again, or, if the keeper is a "
        "reference record, `restore` keeps it"
    ),
}
OF_A_TARGET = ("missing", "altered", "foreign", "duplicate_in_target")
WITHOUT_COPIES = tuple(
    replace(kind, means=KEEPER_MEANS.get(kind.name, kind.means))
    for kind in RECORDS
    if kind.name not in OF_A_TARGET
)
KEEPERS_ALTERED = """SELECT DISTINCT k.id AS id FROM decided d JOIN decided k ON k.id = d.keeper
    JOIN target t ON t.id = k.id WHERE d.action = 1 AND t.hash != k.hash"""

# Asked of a keeper's own decision, which a sample may lack.
OF_KEEPERS = ("keeper_not_kept", "keeper_later")
# With `[match] prefer`, a keeper may come after its duplicates in the same plan.
IN_A_LATER_PLAN = f"{PAIRS} WHERE d.action = 1 AND k.place >> 32 > d.place >> 32"


def checks_of_records(context: Context) -> tuple[Check, ...]:
    """Return the checks of single records that fit the settings."""
    checks = RECORDS if context.target.holds_copies else WITHOUT_COPIES
    if not context.recipe.matching.prefer:
        return checks
    return tuple(
        replace(kind, question=IN_A_LATER_PLAN) if kind.name == "keeper_later" else kind for kind in checks
    )


def check_ledger(audit: AuditSession) -> list[AuditDifference]:
    """Return the faults of the ledger itself."""
    plans = {kind.name: audit.book.faults(kind.name) for kind in LEDGER}
    if audit.head.pending is not None:
        plans["pending"] = [audit.head.pending.number]
    return [
        kind.difference(len(numbers), [{"plan": number} for number in numbers])
        for kind in LEDGER
        if (numbers := plans[kind.name])
    ]


def check_head(audit: AuditSession) -> Iterator[AuditDifference]:
    """Yield the differences between the head and the sum of the plans."""
    head, counted = audit.head, counts_key(audit.book.counts())
    last = audit.book.last_id()
    in_head = counts_key(head.counts)
    shown = {name: {"head": in_head[name], "plans": n} for name, n in counted.items() if n != in_head[name]}
    counters, watermark = HEAD_CHECKS
    if shown:
        yield counters.difference(len(shown), [shown])
    if last != head.watermark:
        ids = {"head_id": head.watermark, "plans_id": last}
        pair = {name: extended(raw_id) if raw_id else None for name, raw_id in ids.items()}
        yield watermark.difference(1, [pair])


def check_numbers(audit: AuditSession) -> Iterator[AuditDifference]:
    """Compare the sizes of the collections with the counts in the head; needs no decisions."""
    counts, reader = audit.head.counts, audit.reader
    unchecked, refused = sum(counts.unchecked.values()), sum(counts.refused.values())
    restored = reader.count_restored()
    expected: dict[str | None, int] = {
        "dropped": counts.duplicate - restored,
        "exceptions": unchecked + refused,
    }
    if audit.context.target.holds_copies:
        # A conflict means that the target has a foreign record with the id, and it counts like any other.
        conflicts = counts.refused.get("conflict", 0)
        left = len(audit.context.undo_leftovers())
        expected[None] = counts.unique + unchecked + conflicts + restored + left
    wrong = [
        {"collection": name or "the target", "records": size, "ledger": number}
        for name, number in expected.items()
        if (size := reader.size(name)) != number
    ]
    if wrong:
        yield NUMBERS.difference(len(wrong), wrong)


def check_records(audit: AuditSession, kinds: Iterable[Check]) -> Iterator[AuditDifference]:
    """Yield the differences that the queries find, each with its first records."""
    if audit.context.target.holds_copies:
        _accept_server_times(audit)
    else:
        _accept_same_texts(audit)
    for kind in kinds:
        count, ids = audit.book.answer(kind.question, SAMPLES)
        if count and kind in (MISSING, ALTERED):
            yield kind.difference(count, _compare_with_source(audit, ids))
        elif count:
            yield kind.difference(count, [{"id": extended(raw_id)} for raw_id in ids])


def _accept_server_times(audit: AuditSession) -> None:
    """Mark records as unaltered that differ only in empty timestamps, which the server fills on insert."""
    for ids in audit.book.pages(ALTERED.question):
        for records in audit.context.target.fetch(ids):
            audit.book.mark_unaltered(
                raw_id
                for raw_id, raw in records.items()
                if is_as_judged(raw, audit.book.hash_of(raw_id) or b"")
            )


def _accept_same_texts(audit: AuditSession) -> None:
    """Mark keepers in the source as unaltered that changed, but not in their text."""
    reader = audit.context.recipe.reader
    for ids in audit.book.pages(KEEPERS_ALTERED):
        for records in audit.context.source.fetch(ids):
            text_digests = reader.text_digests([*records.values()])
            audit.book.mark_unaltered(
                raw_id
                for raw_id, text_digest in zip(records, text_digests, strict=True)
                if text_digest == audit.book.text_digest_of(raw_id)
            )


def _compare_with_source(audit: AuditSession, ids: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return for each id whether the source still has the version that was judged."""
    current = dict(
        pair for records in audit.context.source.fetch(ids) for pair in hash_records(records.values())
    )
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
