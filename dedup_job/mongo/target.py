"""The target: insert, replace and remove records, and name the reason of each refusal."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Known
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import ReplaceOne, UpdateOne, timeout
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError, WTimeoutError

from dedup_job.mongo.compare_stored_with_sent import has_dollar, has_empty_time, is_unchanged
from dedup_job.mongo.connect_and_retry import PERMISSION, STORAGE, TRANSIENT_CODES
from dedup_job.mongo.id_lookup import PIECE_BYTES, RecordsById
from dedup_job.mongo.ids import id_of, plain_nans, selector
from dedup_job.mongo.reference_collections import Reference
from dedup_job.mongo.retrying_collection import RetryingCollection, in_time
from dedup_job.records import RAW

DUPLICATE_KEY = 11000
# The answer of a standalone server to the first command of a transaction.
NO_TRANSACTIONS = 20
ID_KEY = {"_id": 1}
# Time limit of one removal or replacement.
REMOVAL_SECONDS = 15
REFUSALS = {121: "validator", 10334: "too_large", 17419: "too_large", 17420: "too_large"}

log = logging.getLogger("dedup_job")


class Target(RecordsById):
    """Inserts records unchanged; inserting them again changes nothing.

    Reference records are looked up in their collections, all other records in the target.

    The server itself changes one value: an empty timestamp, `Timestamp(0, 0)`, in a field of the record
    becomes the time of the insertion.  Such a record counts as inserted, and the log mentions it once.

    Attributes:
        holds_copies: Whether the job inserts records into it; see `SourceAsTarget`.
    """

    holds_copies = True

    def __init__(
        self,
        collection: RetryingCollection,
        read: Callable[[bytes], bytes] = bytes,
        references: Sequence[Reference] = (),
    ) -> None:
        """Set the collection, and how records are read from it.

        Args:
            collection: The collection.
            read: As for a `Source`.
            references: The reference collections.
        """
        super().__init__(collection.raw_bson(), read)
        self._references = references
        self._warned_of_times = False

    def fetch(
        self, ids: Iterable[bytes], fields: Sequence[str] = (), nbytes: int = PIECE_BYTES
    ) -> Iterator[dict[bytes, bytes]]:
        """Yield the existing records with these ids, by id, in pieces; see `RecordsById.fetch`."""
        others, of_references = self._divide(ids)
        yield from super().fetch(others, fields, nbytes)
        for place, own in of_references.items():
            yield from self._references[place].pieces(own)

    def present(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids of the existing records; see `RecordsById.present`."""
        others, of_references = self._divide(ids)
        found = (
            map(self._references[place].id_of, self._references[place].records.present(own))
            for place, own in of_references.items()
        )
        return [*super().present(others), *chain.from_iterable(found)]

    def without_inserts(self) -> Target:
        """Return a target that inserts nothing, for records that are there already."""
        return _FilledTarget(self.collection)

    def holds_others(self, known: Known[bytes]) -> bool:
        """Return whether the target holds a record with another id than these."""
        indexed = set(map(plain_nans, known))
        # With a time limit: until a majority has the collection, the server would wait for ever.
        options: dict[str, Any] = {"hint": ID_KEY, "max_time_ms": self.collection.retry.milliseconds}

        def find_other() -> bool:
            # The first unknown id ends the search, so at most one id more than the known ones is read.
            with self.collection.unretried.find({}, ID_KEY, **options) as cursor:
                return any(bytes(document.raw) not in indexed for document in cursor)

        return self.collection.attempt(find_other)

    def insert(
        self,
        records: Sequence[bytes],
        absent: Known[bytes] = (),
        check_held: Callable[[], object] = lambda: None,
    ) -> dict[int, str]:
        """Insert raw records.

        A record that is already there, byte for byte, is not refused: an earlier, killed run inserted it.
        This holds even if the target would refuse it now.

        Args:
            records: The raw records.
            absent: Ids that were free a moment ago. Their refusals are believed without a lookup, and a
                single record is first tried on the primary alone.
            check_held: Raises LeaseHeld if another run has taken the lease.  It is called right before, as an
                insert itself cannot ask.

        Returns:
            The reason of each refusal, by position in `records`.
        """
        if not records:
            return {}
        if len(records) == 1 and id_of(records[0]) in absent and (reason := self._try_on_primary(records[0])):
            return {0: reason}
        self._warn_of_times(records)
        errors = self.collection.attempt(lambda: self._insert(records, check_held))
        return self._name_refusals(records, {error["index"]: error for error in errors}, absent)

    def check_rights(self) -> None:
        """Raise NotPermitted if the user may not remove or replace records, before anything is done."""
        now = datetime.now(UTC)
        self.remove([], now)
        self.replace([], now)

    def conflicting(self, records: Iterable[bytes]) -> set[bytes]:
        """Return the ids of the raw records that differ from the target's record with the same id."""
        wanted = {id_of(record): record for record in records}
        return {
            raw_id
            for found in self.fetch(list(wanted))
            for raw_id, stored in found.items()
            if not is_unchanged(wanted[raw_id], stored)
        }

    def remove(self, ids: Sequence[bytes], before: datetime) -> None:
        """Remove records, unless the server's clock has passed `before`.

        A removal begins before that time or not at all, and ends at most 15 seconds later.
        """
        condition = {"$and": [selector(ids), in_time(before)]}

        def remove_in_time() -> None:
            with timeout(REMOVAL_SECONDS):
                self.collection.unretried.delete_many(condition)

        self.collection.attempt(remove_in_time)

    def replace(self, records: Sequence[bytes], before: datetime) -> dict[int, str]:
        """Replace the records with these ids; nothing is inserted.

        Args:
            records: The new raw records.
            before: As in `remove`.

        Returns:
            The reason of each refusal, by position in `records`; the old record stays.
        """
        self._warn_of_times(records)
        errors = self.collection.attempt(lambda: self._replace(records, before))
        return {error["index"]: name_refusal(error) for error in errors}

    def _replace(self, records: Sequence[bytes], before: datetime) -> list[Mapping[str, Any]]:
        """Replace records, and return the errors that belong to single records."""
        collection = self.collection.unretried
        with timeout(REMOVAL_SECONDS):
            if not records:
                # Only a check of the user's privileges.
                collection.replace_one({"$and": [selector([]), in_time(before)]}, {})
                return []
            replacements = [
                _replacement({"$and": [selector([id_of(raw)]), in_time(before)]}, raw) for raw in records
            ]
            try:
                collection.bulk_write(replacements, ordered=False)
            except BulkWriteError as error:
                return record_errors(error)
        return []

    def exchange(self, records: Sequence[bytes], deadline: Callable[[], datetime]) -> int | None:
        """Replace records that have each other's values of a unique index: all of them, or none.

        A transaction takes the old versions out and inserts the new ones.  A standalone server has no
        transactions, so there nothing is replaced.

        Args:
            records: The new raw records.
            deadline: As in `RetryingCollection.write_in_time`.

        Returns:
            The position of the record that the target refuses even so; None if it refuses none.
        """
        ids = selector(list(map(id_of, records)))

        def write(
            collection: Collection[Any], is_in_time: Mapping[str, Any], session: ClientSession
        ) -> int | None:
            condition = {"$and": [ids, is_in_time]}
            removed = collection.delete_many(condition, session=session).deleted_count
            if removed < len(records):
                # It is too late, or somebody has removed a record.
                session.abort_transaction()
                return None
            try:
                collection.insert_many(map(RawBSONDocument, records), session=session)
            except BulkWriteError as error:
                refused: int = record_errors(error)[0]["index"]
                session.abort_transaction()
                return refused
            return None

        def exchange_once(collection: Collection[Any], is_in_time: Mapping[str, Any]) -> int | None:
            exchange = partial(write, collection, is_in_time)
            with timeout(REMOVAL_SECONDS), self.collection.client.start_session() as session:
                try:
                    return session.with_transaction(exchange, write_concern=collection.write_concern)
                except OperationFailure as error:
                    if error.code == NO_TRANSACTIONS:
                        return None
                    raise

        return self.collection.write_in_time(deadline, exchange_once)

    def _divide(self, ids: Iterable[bytes]) -> tuple[list[bytes], Mapping[int, list[bytes]]]:
        """Return the ids of other records, and the references' own ids by position of the reference."""
        others: list[bytes] = []
        of_references: defaultdict[int, list[bytes]] = defaultdict(list)
        for raw_id in ids:
            for place, reference in enumerate(self._references):
                if (own := reference.own_id(raw_id)) is not None:
                    of_references[place].append(own)
                    break
            else:
                others.append(raw_id)
        return others, of_references

    def _try_on_primary(self, record: bytes) -> str | None:
        """Try to insert a record, without waiting for a majority; return why the primary refuses it.

        The primary's word is enough for a refusal, and a third cheaper. A record that it accepts must be
        inserted again: an election may undo an insertion that no majority has.

        Returns:
            The reason of the refusal; None if the record may have been inserted.
        """
        command = {"insert": self.collection.name, "documents": [RawBSONDocument(record, RAW)]}
        try:
            answer = self.collection.database.command(
                {**command, "writeConcern": {"w": 1}}, codec_options=RAW
            )
        except PyMongoError:
            return None
        for error in answer.get("writeErrors", ()):
            # A command of a killed run may still arrive: then the server says that the id is taken.
            if error["code"] in {DUPLICATE_KEY, *REFUSALS} and not _is_of_id(error):
                return name_refusal(error)
        return None

    def _insert(self, records: Sequence[bytes], check_held: Callable[[], object]) -> list[Mapping[str, Any]]:
        """Insert records, and return the errors that belong to single records."""
        check_held()
        try:
            self.collection.unretried.insert_many(map(RawBSONDocument, records), ordered=False)
        except BulkWriteError as error:
            return record_errors(error)
        return []

    def _name_refusals(
        self, records: Sequence[bytes], errors: Mapping[int, Mapping[str, Any]], absent: Known[bytes]
    ) -> dict[int, str]:
        """Return the reason of each refusal; a record that is in the target was not refused."""
        rows = {
            raw_id: row
            for row, error in errors.items()
            # A command of a killed run may still arrive: then the server says that the id is taken.
            if (raw_id := id_of(records[row])) not in absent or _is_of_id(error)
        }
        # By row, whether another record has the id.
        others = dict.fromkeys(errors, False)
        for found in self.fetch(list(rows)):
            for raw_id, stored in found.items():
                row = rows[raw_id]
                if is_unchanged(records[row], stored):
                    del others[row]
                else:
                    others[row] = True
        return {row: name_refusal(errors[row], id_is_taken) for row, id_is_taken in others.items()}

    def _warn_of_times(self, records: Sequence[bytes]) -> None:
        if not self._warned_of_times and any(map(has_empty_time, records)):
            self._warned_of_times = True
            log.warning(
                "the server sets Timestamp(0, 0) in a record to the time at which the record is inserted"
            )


class _FilledTarget(Target):
    """A target that already holds every record, so it inserts nothing."""

    def insert(
        self,
        records: Sequence[bytes],
        absent: Known[bytes] = (),
        check_held: Callable[[], object] = lambda: None,
    ) -> dict[int, str]:
        """No-op: every record is already in the target."""
        return {}


class SourceAsTarget(_FilledTarget):
    """The source as its own target: its kept records are used where they are, and nothing is written.

    Nothing is refused, and no record has two versions.
    """

    holds_copies = False

    def holds_others(self, known: Known[bytes]) -> bool:
        """Return False: all records are the source's own."""
        return False

    def conflicting(self, records: Iterable[bytes]) -> set[bytes]:
        """Return no ids: a record cannot differ from itself."""
        return set()

    def remove(self, ids: Sequence[bytes], before: datetime) -> None:
        """No-op: the source keeps records that are dropped."""

    def replace(self, records: Sequence[bytes], before: datetime) -> dict[int, str]:
        """No-op: the source has the new versions already."""
        return {}

    def exchange(self, records: Sequence[bytes], deadline: Callable[[], datetime]) -> int | None:
        """No-op: the source has the new versions already."""
        return None


def _replacement(condition: Mapping[str, Any], raw: bytes) -> ReplaceOne[Any] | UpdateOne:
    """Return the write that replaces the record that meets a condition."""
    # The server inserts a record with a field such as `$note`, but refuses it as a replacement, unless a
    # pipeline returns it.
    if has_dollar(raw):
        return UpdateOne(condition, [{"$replaceWith": {"$literal": RawBSONDocument(raw, RAW)}}])
    return ReplaceOne(condition, RawBSONDocument(raw, RAW))


def name_refusal(error: Mapping[str, Any], id_is_taken: bool = False) -> str:
    """Return why the server refused to write a record, by the error that belongs to it."""
    code: int = error["code"]
    if code == DUPLICATE_KEY:
        # An equal id of another type may occupy it, as 7 and 7.0 are equal.
        return "conflict" if id_is_taken or _is_of_id(error) else "unique_index"
    return REFUSALS.get(code, f"code_{code}")


def _is_of_id(error: Mapping[str, Any]) -> bool:
    """Return whether an error says that the record's id is taken."""
    return error["code"] == DUPLICATE_KEY and dict(error.get("keyPattern", {})) == ID_KEY


def record_errors(error: BulkWriteError) -> list[Mapping[str, Any]]:
    """Return the errors that belong to single records; raise errors of the server itself.

    The driver's exception holds whole records, so it is never passed on.
    """
    details = error.details
    errors: list[Mapping[str, Any]] = details["writeErrors"]
    if details.get("writeConcernErrors") or any(one["code"] in TRANSIENT_CODES for one in errors):
        raise WTimeoutError("not acknowledged by a majority yet") from None
    for one in errors:
        if one["code"] in STORAGE | PERMISSION:
            raise OperationFailure("the server cannot write", one["code"]) from None
    return errors
