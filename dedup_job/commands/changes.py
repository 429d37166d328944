"""`changes`: show which records are new, were missed, changed or vanished; writes nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dedup_job.audit.audit_context import hash_records
from dedup_job.commands.mark import check_field_name
from dedup_job.ledger.head import Head
from dedup_job.ledger.overrides import Override, copies
from dedup_job.ledger.plan_format import StoredPlan
from dedup_job.ledger.reader import LedgerReader
from dedup_job.mongo.archive import Archive
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.pages import Window
from dedup_job.mongo.source import Source
from dedup_job.pipeline.command_context import Context, require_head
from dedup_job.records import COPYING_ACTIONS, NIGHTLY, OUTSIDE_SOURCE, VANISHED, Action, Plan
from dedup_job.report.changes_and_sync_results import ChangesResult
from dedup_job.report.counts_with_ids import AffectedRecords
from dedup_job.report.progress import Advance


@dataclass(slots=True)
class Comparison:
    """Decided records that vanished or changed.

    Attributes:
        records: Number of compared records.
        vanished: Records that are no longer in the source.
        changed: Records that changed; None if only ids are compared.
        kept_in_archive: Number of kept records that only the archive has.
    """

    records: int = 0
    vanished: AffectedRecords = field(default_factory=AffectedRecords)
    changed: AffectedRecords | None = None
    kept_in_archive: int = 0


@dataclass(frozen=True, slots=True)
class OutdatedRows:
    """Rows of a plan whose records are outdated.

    Attributes:
        changed: Rows whose record changed; empty if only ids are compared.
        vanished: Rows whose record is no longer in the source.
        overrides: Records of the plan that a person restored, by id; may be empty if only ids are compared.
        away: Ids of records that are not in the source, and of which nothing is in the target.
        kept_in_archive: Ids of kept records that only the archive has: an older source and archive were put
            back.
    """

    changed: Sequence[int]
    vanished: Sequence[int]
    overrides: Mapping[bytes, Override]
    away: Collection[bytes] = ()
    kept_in_archive: Collection[bytes] = ()


def changes(context: Context, content: bool, advance: Advance) -> ChangesResult:
    """Compare the ledger with the source; writes nothing.

    Args:
        context: The open connections.
        content: Whether to compare the records, too, and not only their ids.
        advance: Called with the number of records that were compared since the last call.
    """
    started = time.monotonic()
    reader = context.ledger_reader()
    head = require_head(context)
    check_field_name(context, head)
    compared = Comparison(changed=AffectedRecords() if content else None)
    archive = context.archive_of(head)
    plans = compare_plans(context.source, archive, reader, head, compared, advance)
    rest = Window().without(stored for stored, _ in plans)
    # A run reads the ids from here on; ids are raw, and sort as the server sorts them.
    start = context.window(NIGHTLY, head).start or b""
    new = missed = 0
    for ids in context.source.undecided_ids(rest):
        late = sum(raw_id < start for raw_id in ids)
        missed += late
        new += len(ids) - late
    undecided_in_archive = archive.undecided(rest) if archive is not None else 0
    seconds = time.monotonic() - started
    return ChangesResult(
        context.source_name,
        compared.records,
        new,
        missed,
        compared.changed,
        compared.vanished,
        compared.kept_in_archive,
        undecided_in_archive,
        seconds,
        context.target.holds_copies,
    )


def compare_plans(
    source: Source,
    archive: Archive | None,
    reader: LedgerReader,
    head: Head,
    compared: Comparison,
    advance: Advance,
) -> Iterator[tuple[StoredPlan, OutdatedRows]]:
    """Yield the plans after comparing each with the source, and add the results to `compared`.

    A record that is in the archive counts as if it were in the source.  Plans of adopted and reference
    records are left out: these never were in the source.
    """
    needs_overrides = compared.changed is not None or head.promotion is not None or archive is not None
    overridden = IdSet.of(reader.overridden_ids()) if needs_overrides else IdSet()
    for stored in reader.plans(head):
        if stored.mode in OUTSIDE_SOURCE:
            continue
        plan = stored.plan
        current, archived = dict[bytes, bytes](), dict[bytes, bytes]()
        if compared.changed is None:
            gone = source.absent(plan.ids)
        else:
            for records in source.fetch(plan.ids):
                current |= hash_records(records.values())
            gone = set(plan.ids) - current.keys()
        if archive is not None:
            for records in archive.records.fetch(sorted(gone)):
                archived |= hash_records(records.values())
            gone -= archived.keys()
            current |= archived if compared.changed is not None else {}
        overrides = reader.overrides(sorted(overridden.among(plan.ids)))
        away = _ids_away(plan, gone, overrides, head.is_before_promotion(stored.id))
        changed = _rows_changed(plan, current, copies(overrides))
        gone -= away
        kept_in_archive = _ids_kept(plan, overrides) & archived.keys() if archived else ()
        vanished = [row for row, raw_id in enumerate(plan.ids) if raw_id in gone]
        rows = OutdatedRows(list(changed), vanished, overrides, away, kept_in_archive)
        compared.records += len(plan)
        compared.kept_in_archive += len(kept_in_archive)
        compared.vanished.add(_ids_and_actions(plan, rows.vanished))
        if compared.changed is not None:
            compared.changed.add(_ids_and_actions(plan, rows.changed, restored=overrides))
        advance(len(plan))
        yield stored, rows


def _ids_away(
    plan: Plan, gone: Collection[bytes], restored: Collection[bytes], is_before_promotion: bool
) -> set[bytes]:
    """Return the ids of refused records that are gone, and of all that only the former source has.

    Since the target took the place of its source, the source lacks the records that were dropped before.
    """
    away = {plan.ids[row] for row in plan.rows(Action.REFUSED)}
    if is_before_promotion:
        away |= {plan.ids[row] for row in plan.rows(Action.DUPLICATE)}.difference(restored)
    return away.intersection(gone)


def _ids_kept(plan: Plan, restored: Collection[bytes]) -> set[bytes]:
    """Return the ids of a plan's kept records."""
    return {plan.ids[row] for row in plan.rows(*COPYING_ACTIONS)}.union(restored)


def _ids_and_actions(
    plan: Plan, rows: Iterable[int], restored: Collection[bytes] = ()
) -> Iterator[tuple[bytes, Action]]:
    """Yield id and decision of these records; a restored record is kept, whatever its plan says."""
    for row in rows:
        raw_id = plan.ids[row]
        yield raw_id, Action.UNIQUE if raw_id in restored else plan.verdicts[row].action


def _rows_changed(
    plan: Plan, current: Mapping[bytes, bytes], restored: Mapping[bytes, bytes]
) -> Iterator[int]:
    """Yield the rows whose record differs from the version that was decided.

    Args:
        plan: The plan.
        current: Hashes of the records that are in the source, by id.
        restored: Hashes of the versions of restored records that were inserted into the target, by id.
    """
    for row, raw_id in enumerate(plan.ids):
        if raw_id not in current:
            continue
        judged = plan.hash_of(row)
        # A restored record was inserted in its version of that time, so it must still equal both versions.
        is_same = current[raw_id] == judged == restored.get(raw_id, judged)
        # A record that had vanished and has returned was never judged in its present state.
        if plan.verdicts[row] == VANISHED or not is_same:
            yield row
