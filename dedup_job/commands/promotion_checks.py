"""Open the collections that `promote` exchanges, and check them before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dedup_job.audit.audit_context import AuditReader
from dedup_job.commands.changes import Comparison, changes, compare_plans
from dedup_job.commands.verify import verify
from dedup_job.config import Settings
from dedup_job.errors import ConfigError, LeaseHeld, StateError, UsageError
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.head import Head, Origin
from dedup_job.ledger.promotion_state import BEGUN, RETURNING, Promotion
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.settings_fit_ledger import check_keeps_dropped, finish_undo_first, no_decisions_error
from dedup_job.mongo.collection_checks import (
    check_new_name,
    check_not_exchanged,
    check_source,
    differing_options,
)
from dedup_job.mongo.connect_and_retry import RetryPolicy
from dedup_job.mongo.mark_field import MarkField
from dedup_job.mongo.pages import BatchSize
from dedup_job.mongo.read_rate_limit import Pace
from dedup_job.mongo.rename_by_uuid import Renamer
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.server import Rights
from dedup_job.mongo.source import Source
from dedup_job.pasteable_command import command_line
from dedup_job.pipeline.command_context import Context, connect_to, read_rates, require_head, retry_policy
from dedup_job.records import CONFLICT, COPYING_ACTIONS, REFERENCE, VANISHED
from dedup_job.report.change_source_results import PromotePreview
from dedup_job.report.counts_with_ids import AffectedRecords
from dedup_job.report.progress import Advance


class Pair:
    """A source and its target, found by their UUIDs, whatever their names are now.

    All commands use the target's connection, as its user may write.

    Attributes:
        place: The name that programs use: of the source and, after a promotion, of the former target.
        target: Name of the target, after which the ledger is named.
        renamer: Renames the collections.
        reader: The ledger, for reading.
    """

    def __init__(self, settings: Settings, database: Any, retry: RetryPolicy) -> None:
        limits = settings.limits
        self.settings = settings
        self.place, self.target = settings.source.collection, settings.target.collection
        self._database, self._retry = database, retry
        self._size = BatchSize(limits.batch_records, limits.batch_mb << 20)
        self._pace = Pace(read_rates(settings))
        self.renamer = Renamer(self.collection(self.place))
        self.reader = AuditReader(database, self.target, retry)

    def full_name(self, name: str) -> str:
        """Return the full name of a collection of the pair's database."""
        return f"{self.settings.source.database}.{name}"

    def collection(self, name: str) -> RetryingCollection:
        """Return a collection."""
        return RetryingCollection(self._database[name], "the target", self._retry)

    def records(self, name: str, with_marks: bool = False) -> Source:
        """Return a collection for reading; marks are no part of a record, and left out by default."""
        read = bytes if with_marks else MarkField(self.settings.mark.field).without
        return Source(self.collection(name), {}, self._size, self._pace, read)

    def head(self) -> Head:
        """Return the state of the ledger; raise ConfigError if nothing was decided."""
        head = self.reader.head()
        if head is None or head.is_empty:
            raise no_decisions_error(self.full_name(self.target))
        return head

    def open_ledger(self, run: RunId) -> AbstractContextManager[Ledger]:
        """Open the ledger for writing, also if it is in the middle of a promotion."""
        head, ledger = self.head(), Ledger(self._database, self.target, self._retry)
        source = self.full_name(self.place)
        origin = Origin(
            source, head.recipe, head.digest, head.filter, has_copies=head.has_copies, promotes=True
        )
        return ledger.hold(run, origin)


@contextmanager
def open_pair(settings: Settings) -> Iterator[Pair]:
    """Connect to the target's server.

    Raises:
        ConfigError: If source and target are in different databases.
    """
    source, target = settings.source, settings.target
    if source.database != target.database:
        raise ConfigError(
            f"[target] database: promote renames collections, which cannot leave their database; copy the "
            f"target and its .dedup collections from {target.database} to {source.database} (mongodump, then "
            "mongorestore with --nsFrom and --nsTo), name the copy in [target], accept it once with "
            f"{command_line('run --moved')}, and promote that"
        )
    with connect_to(settings, settings.target_uri(), "target") as client:
        yield Pair(settings, client[source.database], retry_policy(settings))


@dataclass(frozen=True, slots=True)
class Intention:
    """A promotion, or a return, that was checked.

    Attributes:
        promotion: What will be stored in the head before anything is renamed.
        fence: Fence of the head when it was checked; None if it was begun before.
        shown: Its effect, for people.
    """

    promotion: Promotion
    fence: int | None
    shown: PromotePreview


def check_promote(
    pair: Pair, keep_as: str | None, skip_verify: bool, skip_indexes: bool, advance: Advance
) -> Intention | None:
    """Check that the target can take the place of its source; writes nothing.

    Args:
        pair: The collections.
        keep_as: New name of the source; None for the name in the ledger, or `<source>_before`.
        skip_verify: Whether no records are compared, only ids.
        skip_indexes: Whether the target may lack indexes of the source.
        advance: Called with the number of records that were compared since the last call.

    Returns:
        What to do; None if it was done before.

    Raises:
        UsageError: If the former source cannot have its name, or there is no target.
        StateError: If records are undecided, or ledger, source and target disagree.
        ConfigError: If the collections cannot be renamed, or the target lacks indexes or records.
    """
    head = pair.head()
    if (promotion := head.promotion) is not None:
        if promotion.is_done:
            return None
        if promotion.state == RETURNING:
            raise StateError(f"a promotion is being taken back; finish that first: {promotion.command}")
        if keep_as not in (None, promotion.kept_as):
            raise UsageError(
                f"the promotion was begun with --keep-as {promotion.kept_as}; leave the option out"
            )
        return _resume(pair, promotion)
    if not pair.settings.target.has_copies:
        raise UsageError("there is no target to promote: [target] copy is false")
    kept_as = f"{pair.place}_before" if keep_as is None else keep_as
    with Context(pair.settings) as context:
        _check_servers(pair, context)
        head = require_head(context)
        _check_ledger(pair, head)
        pair.renamer.check_name(kept_as, "--keep-as")
        if keep_as is not None:
            check_new_name(pair.collection(kept_as), "--keep-as")
        _check_rights(pair, {pair.place: kept_as, pair.target: pair.place})
        indexes = context.indexes.compare()
        if indexes.refused and not skip_indexes:
            raise ConfigError(
                f"the target lacks indexes of the source: {', '.join(indexes.refused)}; build them with: "
                f"{command_line('backfill --copy-indexes')}, or go on without them: --skip-indexes"
            )
        _check_records(context, head, skip_verify, advance)
        # From then on the job reads the target as a source.
        check_source(pair.collection(pair.target), "[target]")
        uuids = context.places.now()["collections"]
    counts = head.counts
    dropped = counts.duplicate - pair.reader.count_restored()
    # Of a conflict the target has another record with the id; a vanished record is in no collection.
    elsewhere = (CONFLICT.reason, VANISHED.reason)
    refused = sum(count for reason, count in counts.refused.items() if reason not in elsewhere)
    promotion = Promotion(
        BEGUN,
        kept_as,
        uuids["source"],
        uuids["target"],
        head.next,
        dropped + refused,
        mark=head.mark.key if head.mark else None,
    )
    lost = refused + counts.refused.get(CONFLICT.reason, 0)
    options_lacking = differing_options(pair.collection(pair.place), pair.collection(pair.target))
    shown = PromotePreview(_renames(pair, promotion), False, dropped, lost, options_lacking)
    return Intention(promotion, head.fence, shown)


def _resume(pair: Pair, promotion: Promotion) -> Intention:
    """Return what a promotion that was begun before has to finish."""
    check_collections(pair, promotion)
    return Intention(promotion, None, PromotePreview(_renames(pair, promotion), has_begun=True))


def _renames(pair: Pair, promotion: Promotion) -> list[tuple[str, str]]:
    """Return the old and new full names of the collections of a promotion, or of a return."""
    source, target, former = map(pair.full_name, (pair.place, pair.target, promotion.kept_as))
    if promotion.state == RETURNING:
        return [(source, target), (former, source)]
    return [(source, former), (target, source)]


def _check_servers(pair: Pair, context: Context) -> None:
    """Raise ConfigError if a rename by the target's connection would not rename the source."""
    if context.source.is_sharded():
        raise ConfigError(
            "the server is a router of a sharded cluster, where collections may change their identity when "
            "they are renamed; promote works on a replica set or a standalone server only"
        )
    here = pair.renamer.uuids()
    if context.places.now()["collections"].get("source") not in here.values():
        raise ConfigError(
            "source and target are on different servers, so neither can take the other's place; choose a "
            "target in the source's database, and run backfill"
        )


def _check_ledger(pair: Pair, head: Head) -> None:
    """Check that nothing is under way in the ledger, and that it knows all records.

    Raises:
        LeaseHeld: If another run works on the target.
        StateError: If a killed run left a plan.
        ConfigError: If an adoption is unfinished, or records were left out by a filter.
        UsageError: If the duplicates have left the source already.
    """
    if pair.reader.is_worked_on(head):
        raise LeaseHeld("a run is in progress on this target; try again when it has finished")
    check_keeps_dropped(head, "promote")
    if head.pending is not None:
        raise StateError(f"a killed run has left a plan; finish it first: {command_line('run')}")
    # An undo or a restore may have brought all of them back.
    if head.sweep is not None and pair.records(head.sweep.archive).estimated_count():
        raise UsageError(
            f"sweep has moved dropped records to {head.sweep.archive}, so the source has no duplicates, and "
            "the target need not take its place"
        )
    if head.adopting:
        raise ConfigError(f"an adoption is unfinished; finish it first: {command_line('backfill --adopt')}")
    if pair.settings.source.condition:
        raise ConfigError(
            "[source] filter: the target lacks the records that the filter leaves out, and programs would "
            f"miss them; take the filter out, and process these records: {command_line('run --refilter')}"
        )


def _check_rights(pair: Pair, moves: dict[str, str]) -> None:
    """Raise NotPermitted if the user lacks a right that is needed after the first step."""
    pair.renamer.check_allowed(moves)
    rights = Rights.of(pair.collection(pair.place))
    for name in {*moves, *moves.values()}:
        actions = ["find", "listIndexes", *(["insert"] if name == pair.place else [])]
        rights.check(pair.collection(name), actions)


def _check_records(context: Context, head: Head, skip_verify: bool, advance: Advance) -> None:
    """Raise StateError if source, target and ledger disagree, or a record of the source is undecided."""
    found = changes(context, not skip_verify, advance)
    outdated = {
        "undecided": found.new + found.missed,
        "changed": found.changed.counts.total() if found.changed else 0,
        "vanished": found.vanished.counts.total(),
    }
    if any(outdated.values()):
        numbers = ", ".join(f"{name} {count:,}" for name, count in outdated.items() if count)
        raise StateError(
            f"{context.source_name} has changed since it was decided: {numbers}; stop the programs that "
            f"write to it, bring the target up to date with {command_line('sync')}, and promote again"
        )
    if skip_verify:
        _check_target_ids(context, head)
        return
    verified = verify(context, None, advance)
    if not verified.agrees:
        names = ", ".join(f"{one.kind} {one.count:,}" for one in verified.differences)
        raise StateError(
            f"verify found differences: {names}; see {command_line('verify')}, or promote with --skip-verify"
        )


def _check_target_ids(context: Context, head: Head) -> None:
    """Raise StateError if the target lacks a record that the ledger keeps."""
    lacking = 0
    for stored in context.ledger_reader().plans(head):
        if stored.mode != REFERENCE:
            plan = stored.plan
            kept = [plan.ids[row] for row in plan.rows(*COPYING_ACTIONS)]
            lacking += len(context.target.absent(kept))
    if lacking:
        raise StateError(
            f"{context.target_name} lacks {lacking:,} kept records ({command_line('verify')} names them); "
            f"copy them from the source, or delete them there, too, and run: {command_line('sync')}"
        )


def check_collections(pair: Pair, promotion: Promotion) -> None:
    """Raise StateError if a collection of a promotion is gone, before anything is renamed.

    Going back needs neither collection if a source has its name.
    """
    uuids = pair.renamer.uuids()
    lacking = _collections_gone(uuids, promotion)
    if not lacking:
        return
    if promotion.state == RETURNING and is_source_in_place(pair, uuids, promotion):
        return
    advice = (
        f"if {pair.place} is the promoted target and {promotion.kept_as} the former source, accept them: "
        f"{command_line('run --moved')}; if they have other names, rename them first"
    )
    if not promotion.is_done:
        advice = (
            f"rename by hand so that the source is {pair.place}, the target {pair.target}, and no "
            f"{promotion.kept_as} is there; then end the promotion: {command_line('promote --back')}"
        )
    were = "were" if len(lacking) > 1 else "was"
    raise StateError(
        f"{' and '.join(lacking)} of this promotion {were} dropped, or restored from a dump, since it began; "
        f"nothing was renamed; {advice}"
    )


def is_source_in_place(pair: Pair, uuids: Mapping[str, str], promotion: Promotion) -> bool:
    """Return whether a collection is gone, and nothing need be renamed back: the source has its name.

    Of collections that were restored from a dump only the names are known: then source and target must have
    theirs, and the source must not have its other name.

    Args:
        pair: The collections.
        uuids: The UUIDs of all collections of the database, by name.
        promotion: The promotion that is taken back.
    """
    if not _collections_gone(uuids, promotion) or promotion.kept_as in uuids:
        return False
    in_place = uuids.get(pair.place)
    is_restored = in_place is not None and in_place != promotion.promoted and pair.target in uuids
    return in_place == promotion.former or is_restored


def _collections_gone(uuids: Mapping[str, str], promotion: Promotion) -> list[str]:
    """Return which collections of a promotion no longer exist under any name."""
    of = {"the source": promotion.former, "the target": promotion.promoted}
    return [what for what, uuid in of.items() if uuid not in uuids.values()]


def check_return(pair: Pair, skip_verify: bool, advance: Advance) -> Intention | None:
    """Check that a promotion can be undone; writes nothing.

    Args:
        pair: The collections.
        skip_verify: Whether no records are compared.
        advance: Called with the number of records that were compared since the last call.

    Returns:
        What to do; None if no target is promoted.

    Raises:
        LeaseHeld: If a run is in progress.
        StateError: If the ledger does not know of a promotion, and the target has the name of the source.
        UsageError: If something was decided or marked since, or records changed.
    """
    head = pair.head()
    if (promotion := head.promotion) is None:
        # An older ledger may have been put back since a promotion.
        check_not_exchanged(head.places or {}, pair.renamer.uuids().get(pair.place))
        return None
    returning = replace(promotion, state=RETURNING)
    if not promotion.is_done:
        # Nothing could be decided since it was begun.
        return _resume(pair, returning)
    if pair.reader.is_worked_on(head):
        raise LeaseHeld("a run is in progress; try again when it has finished")
    source = pair.full_name(pair.place)
    _check_nothing_since(pair, head, promotion)
    check_collections(pair, promotion)
    if pair.renamer.uuids().get(pair.target, promotion.promoted) != promotion.promoted:
        raise UsageError(
            f"{pair.full_name(pair.target)} exists, and the target must get this name back: rename that "
            "collection, or drop it if it is a view"
        )
    _check_rights(pair, {pair.place: pair.target, promotion.kept_as: pair.place})
    if not skip_verify:
        changed, vanished = compare_records(pair, pair.place, head, advance)
        counts = {"changed": changed.counts.total(), "vanished": vanished.counts.total()}
        if any(counts.values()):
            numbers = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
            raise UsageError(
                f"records of {source} are no longer as they were promoted: {numbers} "
                f"({command_line('changes --content')} names them); {pair.full_name(promotion.kept_as)} has "
                "their old state; make these changes there, and add --skip-verify"
            )
    return replace(_resume(pair, returning), fence=head.fence)


def _check_nothing_since(pair: Pair, head: Head, promotion: Promotion) -> None:
    """Raise UsageError if records were decided, marked or swept since the promotion.

    Restored records are in the target then, as if they had been restored before the promotion.
    """
    if head.undo is not None:
        raise UsageError(finish_undo_first(head.undo))
    if head.next != promotion.plans or head.pending:
        newest = next(pair.reader.links(head.pending or head.last)).run
        raise UsageError(
            f"records of {head.source} were decided since the promotion, so it stays; undo the runs that "
            f"decided them, the newest first, and try again: {command_line(f'undo {newest}')}"
        )
    if head.mark is not None:
        raise UsageError(
            f"records were marked since the promotion; first run: {command_line('mark --clear')}"
        )
    if head.sweep is not None and pair.records(head.sweep.archive).estimated_count():
        raise UsageError(
            f"sweep has moved records to {head.sweep.archive} since the promotion, and no undo brings back "
            "those that are left there; move them into a collection of your own, and try again"
        )


def compare_records(
    pair: Pair, name: str, head: Head, advance: Advance
) -> tuple[AffectedRecords, AffectedRecords]:
    """Return the decided records that changed in a collection, and those that vanished from it."""
    changed = AffectedRecords()
    compared = Comparison(changed=changed)
    for _ in compare_plans(pair.records(name), None, pair.reader, head, compared, advance):
        pass
    return changed, compared.vanished
