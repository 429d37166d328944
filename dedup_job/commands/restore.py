"""`restore`: insert single dropped records into the target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bson import decode

from dedup_job.commands.why import why as why_answer
from dedup_job.errors import UsageError
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.move_between_source_and_archive import ArchiveMoves
from dedup_job.ledger.overrides import KEEP, Override
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows_on_records import id_of_row
from dedup_job.ledger.run_row import RunId
from dedup_job.mongo.archive import Archive
from dedup_job.mongo.ids import SHOWABLE, extended, id_of, readings, selector, with_equals
from dedup_job.mongo.source import Source
from dedup_job.pasteable_command import command_line
from dedup_job.pipeline.command_context import Context, read_head, undo_origin
from dedup_job.records import VANISHED, chunked, digest
from dedup_job.report.progress import Advance
from dedup_job.report.undo_and_restore_results import NotRestored, RestoreResult

# Records that are written together; ids of 64 KiB each fit into one command.
RECORDS_AT_ONCE = 100


def restore(
    context: Context, given: Sequence[str], why: str, advance: Advance = lambda number: None
) -> RestoreResult:
    """Insert dropped records into the target, in their present version from the source.

    Records that are in the target already are left alone.  If one of the ids is unknown, nothing is changed.
    A record that was not dropped, that the source no longer has, or that the target refuses, is named; the
    others are restored.

    Args:
        context: The open connections.
        given: Ids of the records, as on a command line.
        why: A reason, stored in the ledger.
        advance: Called with 1 for each record found in the ledger, and for each that was restored or refused.

    Returns:
        The restored records, which of them differ from the version that was judged, and those that could
        not be restored.

    Raises:
        ConfigError: If there is no ledger yet.
        UsageError: If one of the ids is unknown, or none of the records was dropped or is in the target.
        StateError: If source or target were replaced.
    """
    head, has_copies = read_head(context), context.target.holds_copies
    # Before the ledger is opened, which adds a run.  A pending plan may yet drop one of the records.
    if head.pending is None and not any(_has_row(context, name) for name in given):
        found, not_restored = _find_all(context, given)
        asked = len(found) + len(not_restored)
        return RestoreResult(None, [], asked, not_restored=not_restored, has_copies=has_copies)
    this = RunId.new("restore")
    with context.open_ledger(this, undo_origin(context, head)) as ledger:
        ledger.recover(context.source, context.target)
        found, not_restored = _find_all(context, given, advance)
        asked = len(found) + len(not_restored)
        advance(len(not_restored))
        rows = {raw_id: row for raw_id, row in found.items() if row is not None}
        restored, refused = _restore_rows(context, ledger, rows, why, advance)
        not_restored += [
            NotRestored(extended(each), *refused.get(each, (None, VANISHED.reason)))
            for each in rows
            if each not in restored
        ]
        former = ledger.current_head.promotion
        result = RestoreResult(
            this.name,
            [extended(raw_id) for raw_id in rows if raw_id in restored],
            asked,
            list(map(extended, ids_changed_since(ledger, rows, restored))),
            not_restored,
            has_copies,
            former_source=f"{context.settings.source.database}.{former.kept_as}" if former else None,
        )
        ledger.close({**result.as_row(), "exit_code": result.exit_code})
    return result


def _has_row(context: Context, given: str) -> bool:
    """Return whether the record with this id was dropped, now or before it was restored."""
    reader, ids = context.ledger_reader(), with_equals(readings(given))
    return reader.row("dropped", ids) is not None or bool(reader.overrides(ids))


class NotDropped(UsageError):
    """A record was never dropped, or its decision was undone, so it cannot be restored.

    Attributes:
        about: The record with its verdict.
    """

    def __init__(self, message: str, shown_id: Any, verdict: str) -> None:
        super().__init__(message)
        self.about = NotRestored(shown_id, None, verdict)


def _find_all(
    context: Context, given: Sequence[str], advance: Advance = lambda number: None
) -> tuple[dict[bytes, bytes | None], list[NotRestored]]:
    """Return the raw rows of the dropped records with these ids, and the records that were never dropped.

    A record that is in the target has None instead of a row.

    Raises:
        UsageError: If an id is unknown, or there are only records of the last kind.
    """
    # By id: a record may be named in several spellings, such as 2 and 2.0.
    found, not_dropped = dict[bytes, bytes | None](), dict[str, NotDropped]()
    for name in dict.fromkeys(given):
        try:
            raw_id, row = _find_dropped(context, name)
            found[raw_id] = row
        except NotDropped as error:
            not_dropped[str(error.about.id)] = error
        advance(1)
    if not_dropped and not found:
        raise next(iter(not_dropped.values()))
    return found, [error.about for error in not_dropped.values()]


def _find_dropped(context: Context, given: str) -> tuple[bytes, bytes | None]:
    """Return the raw id and the raw row of the dropped record with this id; None if it is in the target.

    Raises:
        UsageError: If the record was never dropped, and is not in the target; the message quotes the ledger.
    """
    reader, ids = context.ledger_reader(), with_equals(readings(given))
    row = reader.row("dropped", ids)
    if row is None:
        overrides = reader.overrides(ids)
        # Without copies, a record of the source may also be undecided.
        expected = overrides or (ids if context.target.holds_copies else ())
        if present := context.target.present(expected):
            return present[0], None
        row = _former_row(context, given, overrides.values())
    return id_of_row(row), row


def _former_row(context: Context, given: str, overrides: Iterable[Override]) -> bytes:
    """Return the former `dropped` row of a record that was restored and has left the target again.

    Raises:
        UsageError: If the record was never dropped; the message quotes the ledger.
    """
    for override in overrides:
        if override.action == KEEP:
            return override.dropped_row
        raise NotDropped(
            f"{given} was restored, and its decision was taken back since; the next run or sync that finds "
            f"it in {context.source_name} keeps it",
            extended(override.id),
            "undecided",
        )
    answer = why_answer(context, given)
    reason = f" ({answer['reason']})" if answer.get("reason") else ""
    place = context.source_name if answer["in_source"] else "the archive" if answer.get("in_archive") else ""
    is_back = answer.get("reason") == VANISHED.reason and place
    again = f"; it is in {place} again: {command_line('sync')} decides it" if is_back else ""
    message = f"{given} was not dropped; the ledger says: {answer['verdict']}{reason}{again}"
    raise NotDropped(message, answer["id"], answer["verdict"])


@dataclass(frozen=True, slots=True)
class RestorableRecord:
    """A dropped record.

    Attributes:
        row: Its raw row in `dropped`.
        raw: The raw record in the source, or else in the archive.
        is_in_source: Whether it is in the source.
        is_archived: Whether the archive has a record with its id.
    """

    row: bytes
    raw: bytes
    is_in_source: bool
    is_archived: bool

    @property
    def id(self) -> bytes:
        """Its raw id."""
        return id_of_row(self.row)


def _restore_rows(
    context: Context, ledger: Ledger, rows: Mapping[bytes, bytes], why: str, advance: Advance
) -> tuple[dict[bytes, bytes], dict[bytes, tuple[str, str]]]:
    """Restore the records with these rows in `dropped`, by id; the other arguments are those of `restore`.

    Returns:
        The digests of the restored records, by id; and what `restore_records` returns on refused ones. A
        record that neither source nor archive has any longer is in none of them.
    """
    archive, archived, moves = context.archive_of(ledger.current_head), set[bytes](), None
    if archive is not None and (archived := rows.keys() & set(archive.records.present(rows))):
        moves = ArchiveMoves.begin(ledger, archive, "archive")
    restored, refused = dict[bytes, bytes](), dict[bytes, tuple[str, str]]()
    for some in chunked(list(rows), RECORDS_AT_ONCE):
        wanted = {raw_id: rows[raw_id] for raw_id in some}
        for records in _present_versions(wanted, context.source, archive, archived):
            refused |= restore_records(ledger, records, why, context, moves)
            restored |= {each.id: digest(each.raw) for each in records if each.id not in refused}
        advance(len(some))
    if moves is not None:
        moves.note()
    return restored, refused


def _present_versions(
    rows: Mapping[bytes, bytes], source: Source, archive: Archive | None, archived: set[bytes]
) -> Iterator[list[RestorableRecord]]:
    """Yield the dropped records that the source or the archive has, some megabytes at a time.

    Args:
        rows: Their raw rows in `dropped`, by id.
        source: The source.
        archive: The archive, if there is one.
        archived: Ids of the records in the archive.
    """
    in_source = set[bytes]()
    for found in source.fetch(list(rows)):
        in_source.update(found)
        yield [RestorableRecord(rows[raw_id], raw, True, raw_id in archived) for raw_id, raw in found.items()]
    if archive is not None:
        only_archived = [raw_id for raw_id in rows if raw_id in archived and raw_id not in in_source]
        for found in archive.records.fetch(only_archived):
            yield [RestorableRecord(rows[raw_id], raw, False, True) for raw_id, raw in found.items()]


def ids_changed_since(
    reader: LedgerReader, rows: Mapping[bytes, bytes], digests: Mapping[bytes, bytes]
) -> list[bytes]:
    """Return the raw ids of the records that differ from the version that was judged.

    Args:
        reader: The ledger.
        rows: Raw rows of dropped records, by id.
        digests: Digests of the present versions of some of them, by id.
    """
    plans = {(about["run"], about["at"]) for about in (decode(row, SHOWABLE) for row in rows.values())}
    judged = {
        (raw_id, hashed.tobytes())
        for run, at in plans
        for stored in reader.plans_of(run, at)
        for raw_id, hashed in zip(stored.plan.ids, stored.plan.hashes, strict=True)
        if raw_id in rows
    }
    return [raw_id for raw_id in rows if raw_id in digests and (raw_id, digests[raw_id]) not in judged]


def restore_records(
    ledger: Ledger, records: list[RestorableRecord], why: str, context: Context, moves: ArchiveMoves | None
) -> dict[bytes, tuple[str, str]]:
    """Insert dropped records into the target, and store that a person decided so.

    Args:
        ledger: The ledger, with the lease.
        records: The records.
        why: The person's reason; may be empty.
        context: The open connections.
        moves: Brings them back from the archive, if they are there.

    Returns:
        For each record that is refused and stays dropped, by id: the collection that refused it ("target",
        or "source" for a record from the archive), and the reason.

    Raises:
        StateError: If source or target were replaced.
    """
    ledger.check_places()
    now = datetime.now(UTC)
    ledger.rows.put("overrides", [Override.keep(each.row, each.raw, why, now).row for each in records])
    archived = [each.id for each in records if each.is_archived]
    not_moved = moves.bring_back(archived) if moves is not None and archived else {}
    refused = {raw_id: ("source", reason) for raw_id, reason in not_moved.items()}
    # The source may have a record of its own with the id.
    there = [each for each in records if each.id not in refused or each.is_in_source]
    by_target = context.target.insert([each.raw for each in there], check_held=ledger.check_held)
    for place, each in enumerate(there):
        refused.pop(each.id, None)
        if place in by_target:
            refused[each.id] = ("target", by_target[place])
    # If the target was replaced, the records may be nowhere.
    ledger.check_places()
    done = [each for each in records if each.id not in refused]
    stay = [each for each in records if each.id in refused]
    if ledger.current_head.mark is not None:
        context.marks.clear([each.id for each in done], ledger.deadline_by)
    if stay:
        ledger.rows.delete("overrides", selector([id_of(each.row) for each in stay]))
    if done:
        ledger.rows.delete("dropped", selector([id_of(each.row) for each in done]))
    # A record that was restored before has no row in `dropped`.
    ledger.rows.put("dropped", [each.row for each in stay])
    return refused
