"""`sweep`: move dropped records out of the source, into an archive beside it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from dedup_job.commands.mark import dropped_rows, plans_from
from dedup_job.errors import ConfigError, StateError, UsageError
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.head import Head, SweepProgress
from dedup_job.ledger.move_between_source_and_archive import UNMOVABLE, ArchiveMoves
from dedup_job.ledger.plan_format import StoredPlan
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.settings_fit_ledger import check_keeps_dropped, check_whole, finish_undo_first
from dedup_job.ledger.version_digests_by_id import VersionDigests
from dedup_job.mongo.archive import Archive
from dedup_job.mongo.collection_checks import check_collection_name
from dedup_job.mongo.ids import IdSet, extended
from dedup_job.mongo.mark_field import CHANGED
from dedup_job.mongo.pages import prefetch
from dedup_job.mongo.reference_collections import is_reference
from dedup_job.pipeline.command_context import Context, read_head, read_head_for_preview, undo_origin
from dedup_job.pipeline.guards import WarningList, check_swept_share, stop_run
from dedup_job.records import ADOPT, Action, digest
from dedup_job.report.change_source_results import KEEPER, SweepResult
from dedup_job.report.progress import Advance

# Dropped records that are gathered from consecutive plans.
DUE_AT_ONCE = 5_000


def open_archive(context: Context, name: str | None, moved: bool = False) -> Archive:
    """Return the archive of this ledger, or the collection that will be it.

    Args:
        context: The open connections.
        name: Name of a collection in the source's database; None for the archive of the first sweep.
        moved: Whether another collection may take the place of an archive that is gone.

    Raises:
        UsageError: If no archive is named, or the name is not valid.
        ConfigError: If there is no ledger yet, or the collection cannot be an archive.
        NotPermitted: If the user may not move records.
        StateError: If the archive of earlier sweeps is gone, unless `moved`.
    """
    head = read_head(context)
    # A half-done undo may be waiting for another archive.
    if not (moved and head.undo and head.sweep):
        check_whole(head)
    check_keeps_dropped(head, "sweep")
    if name is None:
        if head.sweep is None:
            raise UsageError("name a collection for the records that leave the source: --archive COLLECTION")
        name = head.sweep.archive
    else:
        check_collection_name(context.settings.source.database, name, "--archive")
    former = context.archive_if_there(head) if moved else context.archive_of(head)
    if former is not None and name != former.name:
        raise ConfigError(
            f"--archive: records of {context.source_name} were moved to {former.name} before, so {name} "
            f"cannot be its archive, too; if {name} has records of it, copy them to {former.name}"
        )
    archive = former or context.archive(name)
    archive.check()
    archive.check_way_back()
    if former is None:
        _check_other_records(context, head, archive)
    return archive


def _check_other_records(context: Context, head: Head, archive: Archive) -> None:
    """Raise ConfigError if a collection has other versions of dropped records."""
    if not archive.as_source().estimated_count():
        return
    for stored in plans_from(context.ledger_reader(), head, 0):
        plan = stored.plan
        judged = {plan.ids[row]: plan.hash_of(row) for row in plan.rows(Action.DUPLICATE)}
        for found in archive.records.fetch(list(judged)):
            for raw_id, raw in found.items():
                if digest(raw) != judged[raw_id]:
                    raise ConfigError(
                        f"--archive: {archive.full_name} has another record with the _id "
                        f"{extended(raw_id)}; choose another collection"
                    )


def guard_share(context: Context, max_share: float, is_noted: bool) -> None:
    """Stop if too large a share of the decided records would leave the source.

    Raises:
        GuardStop: If the share is larger than `max_share`, unless `is_noted`: then a warning is logged.
    """
    counts = read_head(context).counts
    check_swept_share(counts.duplicate, counts.read, max_share, WarningList() if is_noted else stop_run)


@dataclass(slots=True)
class DueRecords:
    """The dropped records of consecutive plans.

    Attributes:
        judged: `digest` of the judged version of each record, by raw id.
        keepers: Raw id of the keeper of each record.
        decisions: Number of decisions in these plans.
        upto: Number of the plan behind the last.
        already: Number of the records that are in the archive only; known when all were looked for.
    """

    judged: dict[bytes, bytes] = field(default_factory=dict)
    keepers: dict[bytes, bytes] = field(default_factory=dict)
    decisions: int = 0
    upto: int = 0
    already: int = 0

    def add(self, stored: StoredPlan, restored: IdSet) -> None:
        """Add a plan; `restored` has the ids of records that a person restored."""
        plan = stored.plan
        for row in dropped_rows(plan, restored):
            match = plan.verdicts[row].match
            assert match is not None
            self.judged[plan.ids[row]] = plan.hash_of(row)
            self.keepers[plan.ids[row]] = match.keeper
        self.decisions += len(plan)
        self.upto = stored.id.number + 1


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Some dropped records that the source has.

    Attributes:
        records: The raw records that are unchanged since they were judged, with their marks, by raw id.
        keepers: Raw id of the keeper of each of them, and maybe of others.
        versions: Digests of record and text of these keepers, in their judged version.
        stay: Why other records stay in the source, by id.
    """

    records: Mapping[bytes, bytes]
    keepers: Mapping[bytes, bytes]
    versions: Mapping[bytes, tuple[bytes, bytes]]
    stay: Mapping[bytes, str]

    def without(self, ids: Collection[bytes]) -> FoundRecords:
        """Return the same without the records with these ids."""
        return replace(self, records={key: raw for key, raw in self.records.items() if key not in ids})


def sweep(context: Context, archive: Archive, advance: Advance, moved: bool = False) -> SweepResult:
    """Move the dropped records of the source to the archive.

    It can be killed at any moment; the next call resumes.  A record leaves the source only after a majority
    has it in the archive, while its keeper is in the source, and if it is unchanged since it was judged.

    Args:
        context: The open connections.
        archive: The result of `open_archive`.
        advance: Called with the number of decisions that were read since the last call.
        moved: As for `open_archive`.

    Raises:
        StateError: If an undo is half done.  Then only the archive is replaced, which the undo waits for.
    """
    head, started = read_head(context), time.monotonic()
    this = RunId.new("sweep")
    with context.open_ledger(this, undo_origin(context, head)) as ledger:
        if (undo := ledger.current_head.undo) is not None:
            _replace_archive(ledger, archive)
            raise StateError(
                f"{archive.full_name} is the archive from now on, but nothing was moved: "
                + finish_undo_first(undo)
            )
        head = ledger.recover(context.source, context.target)
        if moved and head.sweep and context.archive_if_there(head) is None:
            head = _replace_archive(ledger, archive)
        progress = head.sweep or SweepProgress(archive.name, archive.create())
        first = 0 if progress.is_complete else progress.upto
        progress = replace(progress, upto=first, is_complete=False)
        ledger.swap({"pending": None}, {"sweep": progress.key})
        moves = ArchiveMoves.begin(ledger, archive, "source")
        result = SweepResult(this.name, context.source_name, archive.full_name)
        run = SweepRun(context, archive, IdSet.of(ledger.overridden_ids()), result)
        # The next records are read while these are moved; their keepers are read right before they are.
        for found in prefetch(run.look_up(ledger, head, first)):
            if isinstance(found, FoundRecords):
                run.move(run.with_valid_keepers(found), moves)
            else:
                result.already += found.already
                advance(found.decisions)
                moves.note(upto=found.upto)
        moves.note(upto=head.next, is_complete=True)
        result.seconds = time.monotonic() - started
        ledger.close({**result.as_json(), "exit_code": result.exit_code})
    return result


def _replace_archive(ledger: Ledger, archive: Archive) -> Head:
    """Make another collection the archive, whose sweeps begin again, and return the new head."""
    progress = ledger.current_head.sweep
    assert progress is not None
    # A removal of a killed command may still arrive, so `until` stays.
    progress = replace(progress, archive=archive.name, uuid=archive.create(), upto=0, is_complete=False)
    ledger.swap({"pending": None}, {"sweep": progress.key})
    return ledger.current_head


def preview_sweep(context: Context, archive: Archive, advance: Advance) -> SweepResult:
    """Count what `sweep` would do; writes nothing."""
    head, reader, started = read_head_for_preview(context), context.ledger_reader(), time.monotonic()
    check_whole(head)
    result = SweepResult("", context.source_name, archive.full_name, is_preview=True)
    run = SweepRun(context, archive, IdSet.of(reader.overridden_ids()), result)
    for found in prefetch(run.look_up(reader, head, 0)):
        if isinstance(found, FoundRecords):
            result.add(len(run.with_valid_keepers(found).records), {})
        else:
            result.already += found.already
            advance(found.decisions)
    result.seconds = time.monotonic() - started
    return result


@dataclass(frozen=True, slots=True)
class SweepRun:
    """The work of one sweep, or of its preview.

    Attributes:
        context: The open connections.
        archive: The archive.
        restored: Ids of records that a person restored.
        result: Gets the counts.
        kept: The judged versions of the keepers of all plans so far.
    """

    context: Context
    archive: Archive
    restored: IdSet
    result: SweepResult
    kept: VersionDigests = field(default_factory=VersionDigests)

    def look_up(self, reader: LedgerReader, head: Head, first: int) -> Iterator[FoundRecords | DueRecords]:
        """Yield the dropped records of the plans from a number on, some megabytes at a time.

        Behind the records of some plans, yield their `DueRecords`.
        """
        for due in self._due(reader, head, first):
            missing = set(due.judged)
            for found in self.archive.stored(list(due.judged)):
                missing -= found.keys()
                yield self._compare(found, due)
            due.already = len(missing) - len(self.archive.records.absent(missing))
            yield due

    def _due(self, reader: LedgerReader, head: Head, first: int) -> Iterator[DueRecords]:
        """Yield the dropped records of the plans from a number on, some thousands at a time.

        By then, the keepers of these and of earlier plans are known.
        """
        due = DueRecords()
        for stored in reader.plans(head):
            # Adopted records are not in the source.
            if stored.mode == ADOPT:
                continue
            self.kept.add(stored.plan)
            if stored.id.number >= first:
                due.add(stored, self.restored)
            # Each piece costs a dozen commands, however small it is.
            if len(due.judged) >= DUE_AT_ONCE:
                yield due
                due = DueRecords()
        if due.upto:
            yield due

    def _compare(self, found: Mapping[bytes, bytes], due: DueRecords) -> FoundRecords:
        """Compare records of the source with their judged versions."""
        records, stay = dict[bytes, bytes](), dict[bytes, str]()
        for raw_id, raw in found.items():
            if digest(self.archive.without_mark(raw)) != due.judged[raw_id]:
                stay[raw_id] = CHANGED
            elif not self.archive.can_take(raw):
                stay[raw_id] = UNMOVABLE
            else:
                records[raw_id] = raw
        keepers = {due.keepers[raw_id] for raw_id in records}
        return FoundRecords(records, due.keepers, self.kept.find(list(keepers)), stay)

    def with_valid_keepers(self, found: FoundRecords) -> FoundRecords:
        """Return the records that may be moved: those with a valid keeper; count the others."""
        valid = self._valid(found.versions)
        without_keeper = {raw_id: KEEPER for raw_id in found.records if found.keepers[raw_id] not in valid}
        self.result.add(0, {**found.stay, **without_keeper})
        return found.without(without_keeper)

    def _valid(self, versions: Mapping[bytes, tuple[bytes, bytes]]) -> set[bytes]:
        """Return the keepers that are in the source, or a reference, with the text they were kept for."""
        valid = set[bytes]()
        own, others = _divide(versions)
        for found in chain(self.context.source.fetch(own), self.context.target.fetch(others)):
            same = {raw_id for raw_id, raw in found.items() if digest(raw) == versions[raw_id][0]}
            edited = sorted(found.keys() - same)
            text_digests = self.context.recipe.reader.text_digests([found[raw_id] for raw_id in edited])
            digest_of = dict(zip(edited, text_digests, strict=True))
            valid |= same | {raw_id for raw_id in edited if digest_of[raw_id] == versions[raw_id][1]}
        return valid

    def move(self, movable: FoundRecords, moves: ArchiveMoves) -> None:
        """Copy records to the archive, and remove them from the source where their keeper still is."""
        moves.check()
        stay = self.archive.copy(movable.records)
        own, others = _divide({movable.keepers[raw_id] for raw_id in movable.records})
        gone = self.context.source.absent(own) | self.context.target.absent(others)
        stay |= {raw_id: KEEPER for raw_id in movable.records if movable.keepers[raw_id] in gone}
        stay |= moves.move_out(movable.without(stay).records)
        self.result.add(len(movable.records) - len(stay), stay)


def _divide(keepers: Iterable[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the keepers of the source, and the reference records."""
    keepers = list(keepers)
    others = [raw_id for raw_id in keepers if is_reference(raw_id)]
    return [raw_id for raw_id in keepers if not is_reference(raw_id)], others
