"""`mark`: write into each dropped record of the source that it is a duplicate, and name its keeper."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from dedup_job.errors import ConfigError
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.head import Head, MarkProgress
from dedup_job.ledger.plan_format import StoredPlan
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.settings_fit_ledger import check_whole
from dedup_job.mongo.ids import IdSet, extended
from dedup_job.mongo.mark_field import MarkComparison, Marks, make_mark
from dedup_job.mongo.pages import prefetch
from dedup_job.pasteable_command import command_line
from dedup_job.pipeline.command_context import Context, read_head, read_head_for_preview, undo_origin
from dedup_job.records import OUTSIDE_SOURCE, Action, Plan
from dedup_job.report.change_source_results import MarkResult
from dedup_job.report.progress import Advance

# Dropped records that are gathered from consecutive plans, and other records in these plans.
DUE_AT_ONCE, MOST_OTHERS = 5_000, 50_000


def mark(context: Context, advance: Advance, only_new: bool = False) -> MarkResult:
    """Mark the dropped records of the source, and take marks away that no decision asks for.

    It can be killed at any moment; the next call resumes.  Records that changed since they were judged have
    no mark afterwards, and what else a record has in the field stays.

    Args:
        context: The open connections.
        advance: Called with the number of decisions that were read since the last call.
        only_new: Whether to look only at decisions since the last complete marking.

    Raises:
        ConfigError: If there is no ledger yet, the field holds something else in one of the records, or marks
            are in another field.
    """
    head, started = read_head(context), time.monotonic()
    may_have_marks = check_mark_field(context, head)
    this = RunId.new("mark")
    with context.open_ledger(this, undo_origin(context, head)) as ledger:
        head = ledger.recover(context.source, context.target)
        progress = head.mark or MarkProgress(context.marks.field.name)
        is_new_round = progress.is_complete and not only_new
        progress = replace(progress, upto=0 if is_new_round else progress.upto, is_complete=False)
        ledger.swap({"pending": None}, {"mark": progress.key})
        restored = IdSet.of(ledger.overridden_ids())
        result = MarkResult(this.name, context.source_name, context.marks.field.name)
        # The next records are read while these are marked.
        for found in prefetch(look_up(context.marks, plans_from(ledger, head, progress.upto), restored)):
            if isinstance(found, MarkComparison):
                write_marks(found, context.marks, ledger, result)
                continue
            # Where there is no mark, looking for one in each record would take half of the time.
            if may_have_marks or head.mark is not None:
                result.cleared += context.marks.clear(found.others, ledger.deadline_by)
            advance(found.decisions)
            # This raises if another run has taken the lease.
            ledger.swap({"pending": None}, {"mark": replace(progress, upto=found.upto).key})
        ledger.swap({"pending": None}, {"mark": replace(progress, upto=head.next, is_complete=True).key})
        result.seconds = time.monotonic() - started
        ledger.close({**result.as_json(), "exit_code": result.exit_code})
    return result


def preview_marks(context: Context, advance: Advance) -> MarkResult:
    """Count what `mark` would do; writes nothing."""
    head, reader, started = read_head_for_preview(context), context.ledger_reader(), time.monotonic()
    check_whole(head)
    check_mark_field(context, head)
    restored = IdSet.of(reader.overridden_ids())
    result = MarkResult("", context.source_name, context.marks.field.name, is_preview=True)
    for found in prefetch(look_up(context.marks, plans_from(reader, head, 0), restored)):
        if isinstance(found, MarkComparison):
            result.add(len(found.due), found.already, found.unmarked)
        else:
            advance(found.decisions)
    result.seconds = time.monotonic() - started
    return result


def clear_marks(context: Context, advance: Advance) -> MarkResult:
    """Take all marks away, also of records that the ledger does not know.

    Args:
        context: The open connections.
        advance: Called with the number of records that had a mark since the last call.
    """
    head, started = read_head(context), time.monotonic()
    this = RunId.new("mark")
    with context.open_ledger(this, undo_origin(context, head)) as ledger:
        head = ledger.recover(context.source, context.target)
        result = MarkResult(this.name, context.source_name, context.marks.field.name)
        check_field_name(context, head)
        # From here on, marks may be missing.
        if head.mark is not None:
            ledger.swap({"pending": None}, {"mark": MarkProgress(head.mark.field).key})
        for ids in context.marks.marked_ids():
            result.cleared += context.marks.clear(ids, ledger.deadline_by)
            advance(len(ids))
        ledger.swap({"pending": None}, {"mark": None})
        result.seconds = time.monotonic() - started
        ledger.close({**result.as_json(), "exit_code": 0})
    return result


def needs_marks(context: Context, is_due: bool) -> bool:
    """Return whether a command has to mark the records that it decided.

    Args:
        context: The open connections.
        is_due: Whether records that were dropped may be kept by now, so that their marks are wrong.
    """
    head = context.ledger_reader().head()
    is_marked = head is not None and head.mark is not None
    return context.settings.mark.auto or (is_due and is_marked)


def check_field_name(context: Context, head: Head) -> None:
    """Raise ConfigError if the source has marks in another field."""
    name = context.marks.field.name
    if head.mark is not None and head.mark.field != name:
        raise ConfigError(
            f"[mark] field: the source has its marks in {head.mark.field}, not in {name}; take them away "
            f"first: {command_line(f'mark --clear --set mark.field={head.mark.field}')}"
        )


def check_mark_field(context: Context, head: Head) -> bool:
    """Check that the field holds nothing but marks; return whether a record may have one.

    Raises:
        ConfigError: If marks are in another field, or the field holds something else in a record.
    """
    check_field_name(context, head)
    if head.mark is not None:
        return True
    if not context.marks.has_field():
        return False
    other = context.marks.find_other_content()
    if other is not None:
        raise ConfigError(
            f"[mark] field: {context.marks.field.name} holds something else than a mark in record "
            f"{extended(other)} of {context.source_name}; name another field"
        )
    return True


def plans_from(reader: LedgerReader, head: Head, first: int) -> Iterator[StoredPlan]:
    """Yield the plans from a number on, without those of records that are not of the source."""
    return (stored for stored in reader.plans(head, first) if stored.mode not in OUTSIDE_SOURCE)


def dropped_rows(plan: Plan, restored: IdSet) -> list[int]:
    """Return the rows of the dropped records of a plan, without those that a person restored."""
    kept = restored.among(plan.ids)
    return [row for row in plan.rows(Action.DUPLICATE) if plan.ids[row] not in kept]


@dataclass(slots=True)
class DueMarks:
    """The marks that the records of consecutive plans should have.

    Attributes:
        marks: The mark of each dropped record, by raw id.
        judged: `digest` of the judged version of these records, by raw id.
        others: Ids of the records that should have no mark.
        decisions: Number of decisions in these plans.
        upto: Number of the plan behind the last.
    """

    marks: dict[bytes, bytes] = field(default_factory=dict)
    judged: dict[bytes, bytes] = field(default_factory=dict)
    others: list[bytes] = field(default_factory=list)
    decisions: int = 0
    upto: int = 0

    def add(self, stored: StoredPlan, restored: IdSet) -> None:
        """Add a plan; `restored` has the ids of records that a person restored."""
        plan = stored.plan
        rows = dropped_rows(plan, restored)
        for row in rows:
            verdict = plan.verdicts[row]
            assert verdict.match is not None
            self.marks[plan.ids[row]] = make_mark(verdict.match, verdict.reason, stored.run)
            self.judged[plan.ids[row]] = plan.hash_of(row)
        marked = set(rows)
        self.others += [raw_id for row, raw_id in enumerate(plan.ids) if row not in marked]
        self.decisions += len(plan)
        self.upto = stored.id.number + 1


def look_up(
    marks: Marks, plans: Iterable[StoredPlan], restored: IdSet
) -> Iterator[MarkComparison | DueMarks]:
    """Yield dropped records, compared with their marks; behind the records of some plans, yield `DueMarks`.

    Args:
        marks: Reads the records; nothing is written.
        plans: The plans.
        restored: Ids of records that a person restored.
    """
    due = DueMarks()
    for stored in plans:
        due.add(stored, restored)
        # Each piece costs some commands, however small it is.
        if len(due.marks) >= DUE_AT_ONCE or len(due.others) >= MOST_OTHERS:
            yield from marks.compare(due.marks, due.judged)
            yield due
            due = DueMarks()
    if due.upto:
        yield from marks.compare(due.marks, due.judged)
        yield due


def write_marks(found: MarkComparison, marks: Marks, ledger: Ledger, result: MarkResult) -> None:
    """Mark records, take outdated marks away, and count both."""
    missed = marks.write(found, ledger.deadline_by)
    result.cleared += marks.clear(found.unmarked, ledger.deadline_by)
    result.add(len(found.due) - len(missed), found.already, {**found.unmarked, **missed})
