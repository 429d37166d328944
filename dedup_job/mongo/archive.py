"""The archive: `sweep` moves dropped records into this collection beside the source.

A record is in the archive byte for byte, without its mark.  Removals have a time limit by the server's clock,
so it is known when a removal of a killed command can no longer arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pymongo import DeleteMany, timeout
from pymongo.errors import BulkWriteError

from dedup_job.errors import ConfigError, StateError
from dedup_job.mongo.collection_checks import check_archive, create_collection, is_capped, uuid_of
from dedup_job.mongo.compare_stored_with_sent import has_empty_time
from dedup_job.mongo.id_lookup import RecordsById
from dedup_job.mongo.ids import selector
from dedup_job.mongo.mark_field import MarkField
from dedup_job.mongo.pages import Pages, Window
from dedup_job.mongo.read_rate_limit import Pace
from dedup_job.mongo.retrying_collection import RetryingCollection, in_time
from dedup_job.mongo.server import Rights
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import REMOVAL_SECONDS, Target, record_errors
from dedup_job.mongo.unchanged_filters import filters_by_command, is_comparable
from dedup_job.pasteable_command import command_line


@dataclass(frozen=True, slots=True)
class Removed:
    """The answers of the server to removals.

    Attributes:
        records: Number of records that it has removed; too low where it refused one, or an answer was lost.
        is_certain: Whether no removal can still be under way: no answer was lost.
    """

    records: int = 0
    is_certain: bool = True

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.records + other.records, self.is_certain and other.is_certain)


class Archive:
    """Moves records of the source into an archive, and back.

    Attributes:
        name: Name of the archive, in the source's database.
        full_name: The same, as `database.collection`.
        records: The records of the archive.
    """

    def __init__(
        self, source: RetryingCollection, target: RetryingCollection, name: str, field: MarkField, pace: Pace
    ) -> None:
        """Set the collections, and the rate at which records of the source are read.

        Args:
            source: The source.
            target: The target, which the archive must not be.
            name: Name of the archive.
            field: The field of the marks, which is no part of a record.
            pace: Limits the read rate.
        """
        archive = RetryingCollection(source.database[name], "the archive", source.retry)
        self.name, self.full_name = name, archive.full_name
        self.records = Target(archive)
        self._source, self._target, self._archive = source, target, archive
        self._field, self._pace = field, pace
        self._stored = RecordsById(source)
        self._way_back = Target(source, field.without)

    def check(self) -> None:
        """Raise ConfigError if records cannot be moved to this archive, and back."""
        check_archive(self._source, self._target, self._archive)

    def check_way_back(self) -> None:
        """Check that records can be moved back without loss, before anything is written.

        Raises:
            ConfigError: If the source was replaced by a capped collection.
            NotPermitted: If the user may not move records.
        """
        if is_capped(self._source):
            raise ConfigError(
                f"the source {self._source.full_name} is a capped collection by now, in which each record "
                f"that comes back from {self.full_name} would push another one out; put an ordinary "
                f"collection with the same records in its place, and accept it: {command_line('run --moved')}"
            )
        rights = Rights.of(self._source)
        for collection in (self._source, self._archive):
            rights.check(collection, ("find", "insert", "remove"))

    def create(self) -> str:
        """Create the archive if it does not exist; return its UUID."""
        self._archive.attempt(lambda: create_collection(self._archive.unretried))
        uuid = uuid_of(self._archive)
        if not uuid:
            raise StateError(f"the archive {self.full_name} was dropped while it was created; run again")
        return uuid

    def check_same(self, uuid: str) -> None:
        """Raise StateError if the archive is not the collection that records were moved to."""
        if uuid_of(self._archive) != uuid:
            raise StateError(
                f"the archive {self.full_name}, which holds records of the source, was dropped, renamed or "
                "restored; bring it back under this name, or accept that its records cannot be restored: "
                f"{command_line('sweep --archive COLLECTION --moved')}"
            )

    def stored(self, ids: Sequence[bytes]) -> Iterator[dict[bytes, bytes]]:
        """Yield the records of the source with these ids, with their marks, in pieces.

        See `RecordsById.fetch`; the pieces come at the limited rate.
        """
        for found in self._stored.fetch(ids):
            self._pace.spend(len(found), sum(map(len, found.values())))
            yield found

    def without_mark(self, raw: bytes) -> bytes:
        """Return the record in the form that is judged, and archived."""
        return self._field.without(raw)

    @staticmethod
    def can_take(raw: bytes) -> bool:
        """Return whether a raw record can be moved: the archive keeps all of its bytes."""
        return is_comparable(raw) and not has_empty_time(raw)

    def copy(self, records: Mapping[bytes, bytes]) -> dict[bytes, str]:
        """Insert raw records into the archive, without their marks.

        Returns:
            The reason of each refusal, by id; "conflict" if the archive has another record with the id.
        """
        ids = list(records)
        refused = self.records.insert([self._field.without(raw) for raw in records.values()])
        return {ids[place]: reason for place, reason in refused.items()}

    def remove_unchanged(self, records: Mapping[bytes, bytes], before: datetime) -> Removed:
        """Remove raw records from the source that are still there byte for byte.

        Args:
            records: The records, with their marks, by id.
            before: The server removes nothing when its clock has passed this time.
        """
        removed = Removed()
        for found in filters_by_command(records):
            removals = [DeleteMany({"$and": [condition, in_time(before)]}) for condition, _ in found]
            removed += _remove(self._source, removals)
        return removed

    def remove(self, ids: Sequence[bytes], before: datetime) -> Removed:
        """Remove records from the archive; `before` is as in `remove_unchanged`."""
        return _remove(self._archive, [DeleteMany({"$and": [selector(ids), in_time(before)]})])

    def put_back(self, records: Mapping[bytes, bytes]) -> dict[bytes, str]:
        """Insert raw records into the source.

        Returns:
            The reason of each refusal, by id; "conflict" if the source has another record with the id.
        """
        ids = list(records)
        refused = self._way_back.insert(list(records.values()))
        return {ids[place]: reason for place, reason in refused.items()}

    def now(self) -> datetime:
        """Return the clock of the source's server, in UTC."""
        return self._source.server_time()

    @property
    def pages(self) -> Pages:
        """The archive, page by page; for audits."""
        return Pages(self._archive)

    def undecided(self, decided: Window) -> int:
        """Return the number of records that no plan decided, and that the source does not have.

        Args:
            decided: A window of all ids, with the decided ones.
        """
        return sum(len(self._way_back.absent(ids)) for ids in self.as_source().undecided_ids(decided))

    def as_source(self) -> Source:
        """Return the archive, read like a source."""
        return Source(self._archive, {})


def _remove(collection: RetryingCollection, removals: Sequence[DeleteMany]) -> Removed:
    """Send removals, which end after 15 seconds."""
    attempts = 0

    def send() -> int:
        nonlocal attempts
        attempts += 1
        with timeout(REMOVAL_SECONDS):
            try:
                return collection.unretried.bulk_write(removals, ordered=False).deleted_count
            except BulkWriteError as error:
                # The caller looks for records that are still there.
                record_errors(error)
                return 0

    return Removed(collection.attempt(send), attempts == 1)
