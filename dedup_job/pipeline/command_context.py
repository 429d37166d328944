"""Everything a command works with, opened from the settings and closed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from math import inf
from typing import Self, TypeAlias

from dedup_job.config import ReferenceSettings, Settings
from dedup_job.errors import ConfigError, StateError
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.keepers import KeeperRefetch, Keepers
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.head import Head, Origin
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.settings_fit_ledger import (
    Consent,
    check_filter,
    check_fits,
    check_places,
    check_whole,
    no_decisions_error,
    unfinished_promotion,
)
from dedup_job.mongo import collection_checks
from dedup_job.mongo.archive import Archive
from dedup_job.mongo.collection_checks import Places
from dedup_job.mongo.comments_and_time_limits import JobClient
from dedup_job.mongo.connect_and_retry import RetryPolicy, comment_of, connect
from dedup_job.mongo.copy_indexes import Indexes
from dedup_job.mongo.id_lookup import RecordsById, RecordsInTurn
from dedup_job.mongo.lag_throttle import LagThrottle
from dedup_job.mongo.mark_field import MarkField, Marks
from dedup_job.mongo.pages import (
    BatchSize,
    Pages,
    Window,
    check_condition,
    check_fields_exist,
    rest_of_backfill,
    since,
)
from dedup_job.mongo.read_rate_limit import Pace, Rates
from dedup_job.mongo.reference_collections import Reference
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.source import Members, Source
from dedup_job.mongo.target import SourceAsTarget, Target
from dedup_job.pipeline.fingerprint_workers import Capacity, FingerprintWorkers
from dedup_job.recipe_from_settings import make_recipe
from dedup_job.records import BACKFILL, SYNC, Batch, RawIds
from dedup_job.text.fields import TextFields

# Bytes of a page of records that an audit reads.
AUDITED_BYTES = 8 << 20


RecordLookup: TypeAlias = RecordsById | RecordsInTurn
"""A place where records can be fetched by id: the source, the target, or both in turn."""


def retry_policy(settings: Settings) -> RetryPolicy:
    """Return how long commands are retried, and reads may take."""
    return RetryPolicy(settings.limits.retry_seconds, settings.limits.read_seconds)


def read_rates(settings: Settings, readers: int = 1) -> Rates:
    """Return the read rates of one of several readers that work at the same time."""
    limits = settings.limits
    nbytes = (limits.max_mb_per_second or inf) * (1 << 20)
    return Rates((limits.max_docs_per_second or inf) / readers, nbytes / readers)


def connect_to(settings: Settings, uri: str, name: str) -> JobClient:
    """Connect to a deployment with the limits of the settings; see `connect`."""
    limits, retry = settings.limits, retry_policy(settings)
    return connect(uri, name, limits.connect_seconds, retry, limits.allow_plaintext, settings.command)


class Context:
    """The connections, collections and recipe of one command; use it in a `with` statement.

    Attributes:
        settings: The settings of the command.
        retry: How long server commands are retried.
        source: The source, read at the configured rate.
        source_pages: The source's ids, page by page; for audits.
        kept_pages: The records of the target, or without copies of the source, page by page; for audits.
        source_name: Full name of the source, `database.collection`.
        marks: Marks dropped records in the source.
        target: The target; without copies, the source in its place.
        references: Collections whose texts count as kept.
        target_name: Full name of the target; without copies, of the source.
        target_records: The target, read like a source; for records that were in it before the job.
        ledger_place: Where the ledger is: its database, the name before `.dedup`, and how to retry.
        places: UUIDs of the source, target and ledger collections.
        throttle: Makes a run wait while secondaries lag.
        indexes: Copies indexes from the source to the target.
        recipe: Everything that affects a verdict.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            # If opening fails half-way, leaving this block closes everything opened so far.
            opening.push(self)
            self._open()
            opening.pop_all()
        return self

    def _open(self) -> None:
        settings, limits = self.settings, self.settings.limits
        has_copies = settings.target.has_copies
        self.retry = retry_policy(settings)
        source_client = self._stack.enter_context(connect_to(settings, settings.source_uri(), "source"))
        target_client = self._stack.enter_context(connect_to(settings, settings.target_uri(), "target"))
        self._clients = (source_client, target_client)
        source = RetryingCollection(
            source_client[settings.source.database][settings.source.collection], "the source", self.retry
        )
        target = RetryingCollection(
            target_client[settings.target.database][settings.target.collection], "the target", self.retry
        )
        # `_check_source` reads the ledger, so its place must be known before.
        self.ledger_place = (target.database, target.name, self.retry)
        self._check_source(source)
        check_condition(source, settings.source.condition)
        check_fields_exist(source, "[match] within", settings.match.within)
        if has_copies:
            collection_checks.check_target(source, target)
        else:
            collection_checks.check_ledger_place(target)
        members = Members.of(settings.source.read_preference, settings.source.max_staleness_seconds)
        if not members.are_primary:
            collection_checks.check_secondaries(source)
        servers = {"the source server": source_client, "the target server": target_client}
        self.throttle = LagThrottle(servers, limits.max_lag_seconds, self.retry)
        others = {"the source": source, "the target": target}
        references = [self._open_reference(reference, others) for reference in settings.reference]
        size = BatchSize(limits.batch_records, limits.batch_mb << 20)
        self.source_name = source.full_name
        self.target_name = target.full_name if has_copies else source.full_name
        pace = Pace(read_rates(settings), pause=self.throttle.wait)
        field = MarkField(settings.mark.field)
        self.source = Source(source, settings.source.condition, size, pace, field.without, members)
        self.marks = Marks(source, field, pace)
        self._collections, self._pace = (source, target), pace
        self.references = [
            make_reference(settings, place, Source(collection, {}, size, pace))
            for place, collection in enumerate(references)
        ]
        page = BatchSize(limits.batch_records, AUDITED_BYTES)
        if has_copies:
            self.target = Target(target, references=self.references)
            self.kept_pages = Pages(target, lambda: page)
        else:
            self.target = SourceAsTarget(source, field.without, self.references)
            self.kept_pages = Pages(source, lambda: page, read=field.without)
        self.places = Places(source, target, has_copies)
        self.indexes = Indexes(source, target)
        self.source_pages = Pages(source, condition=settings.source.condition)
        self.target_records = Source(target, {}, size)
        self.recipe: Recipe = make_recipe(settings)

    def _open_reference(
        self, reference: ReferenceSettings, others: Mapping[str, RetryingCollection]
    ) -> RetryingCollection:
        """Connect to a reference collection, and check that it can be read and has its fields.

        Args:
            reference: Its settings.
            others: Collections that it must differ from, by name.

        Raises:
            ConfigError: If it cannot be read, is another collection of the job, or a field exists nowhere.
        """
        settings, name = self.settings, f"reference {reference.full_name}"
        uri = settings.reference_uri(reference)
        client = self._stack.enter_context(connect_to(settings, uri, name))
        found = client[reference.database][reference.collection]
        collection = RetryingCollection(found, f"the {name}", self.retry)
        collection_checks.check_source(collection, "[[reference]]")
        collection_checks.check_different(collection, others)
        fields = (*(reference.fields or settings.source.fields), *settings.match.within)
        check_fields_exist(collection, "[[reference]] fields", fields)
        return collection

    def _check_source(self, source: RetryingCollection) -> None:
        """Check that the source exists and can be read.

        Raises:
            ConfigError: If it cannot be read.
            StateError: If the target was filled from it and it no longer exists.
        """
        try:
            collection_checks.check_source(source)
        except collection_checks.SourceMissing as error:
            head = self.ledger_reader().head()
            if head is None or head.is_empty or head.source != source.full_name:
                raise
            if head.promotion is not None and not head.promotion.is_done:
                raise unfinished_promotion(head, head.promotion) from error
            raise StateError(
                f"the source {source.full_name}, from which the target was filled, no longer exists: it was "
                "dropped or renamed; restore it under this name, or name another target for another source"
            ) from error

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def origin(self) -> Origin:
        """The origin that a new ledger stores, and that an existing ledger must have."""
        return Origin(
            self.source_name,
            self.recipe.settings,
            self.recipe.digest,
            filter=self.settings.source.plain_filter,
            places=self.places.with_servers(),
            has_copies=self.target.holds_copies,
        )

    def engine(self) -> FingerprintWorkers:
        """Return the local engine, not started yet."""
        limits = self.settings.limits
        workers = self.settings.engine.workers
        return FingerprintWorkers(
            self.recipe, Capacity(workers, limits.in_flight_mb << 20, limits.record_seconds)
        )

    def ledger_reader(self) -> LedgerReader:
        """Return the ledger for reading."""
        return LedgerReader(*self.ledger_place)

    def ledger(self, run: RunId, consent: Consent = Consent()) -> AbstractContextManager[Ledger]:
        """Open the ledger for a run that decides by the settings' recipe."""
        head = self.ledger_reader().head()
        # Collections must exist before their UUIDs can be stored in a new head.
        if head is None or head.is_empty or head.places is None:
            self.places.prepare()
        return self.open_ledger(run, self.origin, consent)

    def open_ledger(
        self, run: RunId, origin: Origin, consent: Consent = Consent()
    ) -> AbstractContextManager[Ledger]:
        """Open the ledger for writing; see `LeasedLedger.hold`."""
        for client in self._clients:
            client.comment = comment_of(f"{run.mode} {run.name}")
        ledger = Ledger(*self.ledger_place)
        ledger.watch(self.places, self.throttle)
        return ledger.hold(run, origin, consent)

    def archive(self, name: str) -> Archive:
        """Return a collection beside the source, as an archive for dropped records."""
        return Archive(*self._collections, name, self.marks.field, self._pace)

    def archive_of(self, head: Head | None) -> Archive | None:
        """Return the archive that dropped records were moved to; None if no sweep was begun.

        Raises:
            StateError: If the archive was dropped or replaced.
        """
        if head is None or head.sweep is None:
            return None
        archive = self.archive(head.sweep.archive)
        archive.check_same(head.sweep.uuid)
        return archive

    def archive_if_there(self, head: Head | None) -> Archive | None:
        """Return the archive, for reading; None if there is none, or somebody dropped it."""
        try:
            return self.archive_of(head)
        except StateError:
            return None

    @cached_property
    def archive_for_lookups(self) -> Archive | None:
        """The archive at the first look-up; None if dropped records are in the source.

        After a promotion this is the former source, if it still exists.
        """
        head = self.ledger_reader().head()
        if head and head.sweep is None and head.promotion and head.promotion.is_done:
            return self.archive(head.promotion.kept_as)
        return self.archive_if_there(head)

    @property
    def dropped_records(self) -> RecordLookup:
        """Where dropped records are: in the source, after a sweep in the archive, or in the former source."""
        archive = self.archive_for_lookups
        return self.source if archive is None else RecordsInTurn(self.source, archive.records)

    def keepers(self, records: RecordLookup, engine: FingerprintWorkers) -> Keepers:
        """Return an empty set of keepers.

        Args:
            records: Where keepers are re-fetched when their shingles are no longer cached.
            engine: Fingerprints the re-fetched keepers.
        """
        fields = self.recipe.reader.fields.names
        older = KeeperRefetch(lambda ids: records.fetch(ids, fields), engine.fingerprint)
        return Keepers(self.recipe, self.settings.match.cache_mb << 20, older)

    def has_foreign_records(self, head: Head | None) -> bool:
        """Return whether the target holds records from outside the job and no adoption is complete."""
        if head and not head.is_empty:
            return head.adopting
        return self.target.holds_others(set(self.ledger_reader().left()))

    def undo_leftovers(self) -> RawIds:
        """Return the ids of records that an undo left in the target, where they are undecided."""
        ids = self.ledger_reader().left()
        gone = self.target.absent(ids)
        return RawIds.of(raw_id for raw_id in ids if raw_id not in gone)

    def check_no_foreign_records(self, head: Head | None) -> None:
        """Raise ConfigError if the target holds records from outside the job."""
        if self.has_foreign_records(head):
            raise ConfigError(
                f"{self.target_name} holds records that no run put there; run backfill --adopt to keep them "
                "and drop copies of them, or choose an empty target"
            )

    def window(self, mode: str, head: Head | None) -> Window:
        """Return the range of source ids that a run of this mode reads, with decided records included."""
        if mode == BACKFILL:
            return rest_of_backfill(head.watermark if head else None)
        if mode == SYNC:
            return Window()
        lookback = self.settings.source.lookback
        return since(head.covered if head else None, lookback, self.source.has_only_object_ids())

    def can_count_source(self) -> bool:
        """Return whether the server knows the number of records to decide without scanning them."""
        # A filter needs a scan, and the metadata of a sharded collection counts orphaned documents.
        return not self.settings.source.condition and not self.source.is_sharded()

    def is_full_scan_due(self, head: Head, now: datetime) -> bool:
        """Return whether to compare all ids with the ledger, whatever the record count says.

        An equal count proves little: as many decided records may have been deleted as others arrived with
        old ids.
        """
        is_recent = (
            head.looked is not None and head.looked <= now < head.looked + self.settings.source.full_scan
        )
        return not is_recent or not self.can_count_source()


def make_reference(settings: Settings, place: int, records: Source) -> Reference:
    """Return a reference collection.

    Args:
        settings: The settings.
        place: Its position in `[[reference]]`.
        records: Reads it.
    """
    reference, text_fields = settings.reference[place], settings.source.fields
    fields = TextFields(reference.fields or text_fields, settings.match.within)
    return Reference(reference.full_name, records, fields, text_fields[0])


def first_records(batches: Iterable[Batch], limit: int | None) -> Iterator[Batch]:
    """Yield batches with at most `limit` records in total; None means all."""
    remaining = limit
    for batch in batches:
        if remaining is not None and len(batch) >= remaining:
            yield Batch(batch.ids[:remaining], batch.raws[:remaining])
            return
        yield batch
        remaining = remaining and remaining - len(batch)


def read_head(context: Context) -> Head:
    """Return the state of the ledger; raise ConfigError if there is none."""
    head = context.ledger_reader().head()
    if head is None:
        raise no_decisions_error(context.target_name)
    return head


def require_head(context: Context, settles: bool = False) -> Head:
    """Return the state of the ledger, which must be there and fit the settings.

    Args:
        context: The open connections.
        settles: Whether the command finishes an interrupted replacement of keepers itself.

    Raises:
        ConfigError: If there is none, or it belongs to other settings.
        StateError: If an undo is unfinished, or a collection was dropped or replaced.
    """
    head, origin = read_head(context), context.origin
    check_fits(head, origin)
    check_filter(head, origin)
    check_places(head, origin)
    check_whole(head, settles)
    return head


def find_head(context: Context, consent: Consent) -> Head | None:
    """Return the state of the ledger that a run would start from; None where there is no ledger.

    Raises:
        ConfigError: If the settings do not fit the ledger, and `consent` does not accept the difference.
        StateError: If the ledger cannot be continued, as after an interrupted undo.
    """
    head = context.ledger_reader().head()
    if head is None:
        return None
    origin = context.origin
    check_fits(head, origin)
    check_filter(head, origin, consent)
    check_whole(head, settles=True)
    check_places(head, origin, consent)
    # A run forgets the time of the last full scan when a person accepts a new filter or collection.
    return replace(head, looked=None) if consent.filter or consent.moved else head


def read_head_for_preview(context: Context) -> Head:
    """Return the state of the ledger; the errors are those of opening it."""
    head = read_head(context)
    origin = undo_origin(context, head)
    check_fits(head, origin)
    check_places(head, origin)
    return head


def undo_origin(context: Context, head: Head) -> Origin:
    """Return the origin with which an undo opens the ledger.

    An undo does not depend on recipe and filter, so the ledger's own are used, whatever the settings say.
    """
    return replace(context.origin, recipe=head.recipe, digest=head.digest, filter=head.filter)
