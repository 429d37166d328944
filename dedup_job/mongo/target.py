"""The target: where unique records arrive as they left, and what it says of those that it refuses."""

from __future__ import annotations

import logging
from collections.abc import Collection as Known
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import ReplaceOne, UpdateOne, timeout
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, OperationFailure, WTimeoutError

from dedup_job.mongo.client import PERMISSION, STORAGE, TRANSIENT_CODES, RetryPolicy, named_errors
from dedup_job.mongo.id_lookup import Lookup
from dedup_job.mongo.ids import id_of, plain_nans, selector
from dedup_job.mongo.record_equality import arrived, has_dollar, has_empty_time
from dedup_job.mongo.source import Source
from dedup_job.records import RAW

DUPLICATE_KEY = 11000
ID_KEY = {"_id": 1}
REMOVAL_SECONDS = 15  # that one removal may take
REFUSALS = {121: "validator", 10334: "too_large", 17419: "too_large", 17420: "too_large"}

log = logging.getLogger("dedup_job")


class Target:
    """Inserts records unchanged; doing it again changes nothing.

    One thing the server changes itself: a timestamp of nothing, `Timestamp(0, 0)`, in a field of the record
    becomes the time of the insertion.  Such a record counts as inserted, and the log says so once.
    """

    def __init__(self, collection: Collection[Any], patience: RetryPolicy = RetryPolicy()) -> None:
        self._collection = collection.with_options(codec_options=RAW)
        self._patience = patience
        self._lookup = Lookup(collection, "the target", patience)
        self._warned_of_times = False

    def as_it_is(self) -> Target:
        """Return a target for records that are there already: nothing is inserted."""
        return _AsItIs(self._collection, self._patience)

    def holds_others(self, known: Known[bytes]) -> bool:
        """Return whether it holds a record that has none of these ids."""
        with named_errors("the target"):
            return self._patience(lambda: self._has_other(known))

    def _has_other(self, known: Known[bytes]) -> bool:
        """Look at one record more than are known, at most.

        Where no majority has the collection yet, the server would wait for it without end.
        """
        most = self._patience.milliseconds
        indexed = set(map(plain_nans, known))
        with self._collection.find({}, ID_KEY, hint=ID_KEY, max_time_ms=most) as cursor:
            return any(bytes(document.raw) not in indexed for document in cursor)

    def insert(self, records: Sequence[bytes], absent: Known[bytes] = ()) -> dict[int, str]:
        """Insert raw records and return {position: reason} of those that the target refuses.

        A record that is already there, byte for byte, is no refusal: an earlier, killed run put it there.
        That holds too when the target would not take it any more.

        Args:
            absent: Ids that were free a moment ago.  Their refusals are taken at the server's word, which
                saves a look at the target for each of them.
        """
        if not records:
            return {}
        self._tell_of_times(records)
        with named_errors("the target"):
            errors = self._patience(lambda: self._write_errors(records))
        return self._settled(records, {error["index"]: error for error in errors}, absent)

    def fetch(self, ids: Sequence[bytes], fields: Sequence[str] = ()) -> Iterator[dict[bytes, bytes]]:
        """Yield the records that are there of these ids, by id, in pieces; see `Lookup.pieces`."""
        return self._lookup.pieces(ids, fields)

    def one(self, raw_id: bytes) -> bytes | None:
        """Return the record with this id, or None."""
        return next(self._lookup.pieces([raw_id]), {}).get(raw_id)

    def conflicting(self, records: Iterable[bytes]) -> set[bytes]:
        """Return the ids of those raw records that it has another record of."""
        wanted = {id_of(record): record for record in records}
        return {
            raw_id
            for found in self.fetch(list(wanted))
            for raw_id, stored in found.items()
            if not arrived(wanted[raw_id], stored)
        }

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return those of the ids that no record has."""
        return self._lookup.absent(ids)

    def present(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids of the records that exist of these, as they are there; see `Lookup.present`."""
        return self._lookup.present(ids)

    def remove(self, ids: Sequence[bytes], before: datetime) -> None:
        """Remove these records; the server takes none any more once its clock says `before`.

        It begins before that time or not at all, and ends at most 15 seconds later.
        """
        condition = {"$and": [selector(ids), {"$expr": {"$lt": ["$$NOW", before]}}]}
        with named_errors("the target"):
            self._patience(lambda: self._removed(condition))

    def replace(self, records: Sequence[bytes], before: datetime) -> dict[int, str]:
        """Put raw records in the place of those that have their ids; none is inserted.

        Returns {position: reason} of those that the target refuses: what was there stays.  `before` as in
        `remove`.
        """
        self._tell_of_times(records)
        in_time = {"$expr": {"$lt": ["$$NOW", before]}}
        with named_errors("the target"):
            errors = self._patience(lambda: self._replaced(records, in_time))
        return {error["index"]: _refusal(error, id_is_taken=False) for error in errors}

    def _replaced(self, records: Sequence[bytes], in_time: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Replace what is there and return the errors that belong to single records."""
        with timeout(REMOVAL_SECONDS):
            if not records:  # it is asked whether that may be done
                self._collection.replace_one({"$and": [selector([]), in_time]}, {})
                return []
            replacements = [_replacement({"$and": [selector([id_of(raw)]), in_time]}, raw) for raw in records]
            try:
                self._collection.bulk_write(replacements, ordered=False)
            except BulkWriteError as error:
                return record_errors(error)
        return []

    def _removed(self, condition: Mapping[str, Any]) -> None:
        with timeout(REMOVAL_SECONDS):
            self._collection.delete_many(condition)

    def _write_errors(self, records: Sequence[bytes]) -> list[Mapping[str, Any]]:
        """Insert what is not there yet and return the errors that belong to single records."""
        try:
            self._collection.insert_many(map(RawBSONDocument, records), ordered=False)
        except BulkWriteError as error:
            return record_errors(error)
        return []

    def _settled(
        self, records: Sequence[bytes], errors: Mapping[int, Mapping[str, Any]], absent: Known[bytes]
    ) -> dict[int, str]:
        """Name the refusal of each row with an error; one whose record is there has none."""
        rows = {
            raw_id: row
            for row, error in errors.items()
            # A killed command may still arrive: then the server says that the id is taken.
            if (raw_id := id_of(records[row])) not in absent or _is_of_id(error)
        }
        others = dict.fromkeys(errors, False)  # whether another record has the id
        for found in self.fetch(list(rows)):
            for raw_id in found.keys() & rows.keys():
                row = rows[raw_id]
                if arrived(records[row], found[raw_id]):
                    del others[row]
                else:
                    others[row] = True
        return {row: _refusal(errors[row], id_is_taken) for row, id_is_taken in others.items()}

    def _tell_of_times(self, records: Sequence[bytes]) -> None:
        if not self._warned_of_times and any(map(has_empty_time, records)):
            self._warned_of_times = True
            log.warning(
                "the server sets Timestamp(0, 0) in a record to the time at which the record is inserted"
            )


class _AsItIs(Target):
    """A target that holds all that it shall hold."""

    def insert(self, records: Sequence[bytes], absent: Known[bytes] = ()) -> dict[int, str]:
        """Insert nothing, refuse nothing."""
        return {}


def _replacement(condition: Mapping[str, Any], raw: bytes) -> ReplaceOne[Any] | UpdateOne:
    """Return the write that puts a raw record in the place of what meets a condition.

    The server inserts a record with a field such as `$note`, but takes it for a replacement only as what a
    pipeline gives.
    """
    if has_dollar(raw):
        return UpdateOne(condition, [{"$replaceWith": {"$literal": RawBSONDocument(raw, RAW)}}])
    return ReplaceOne(condition, RawBSONDocument(raw, RAW))  # pymongo asks whether it has a field


def _refusal(error: Mapping[str, Any], id_is_taken: bool) -> str:
    code: int = error["code"]
    if code == DUPLICATE_KEY:
        # No record has this id, and yet it is taken: by an equal one of another type, as 7 and 7.0 are.
        return "conflict" if id_is_taken or _is_of_id(error) else "unique_index"
    return REFUSALS.get(code, f"code_{code}")


def _is_of_id(error: Mapping[str, Any]) -> bool:
    """Return whether an error says that the id of a record is taken."""
    return error["code"] == DUPLICATE_KEY and dict(error.get("keyPattern", {})) == ID_KEY


def record_errors(error: BulkWriteError) -> list[Mapping[str, Any]]:
    """Return the errors that belong to single records; raise those that belong to the server.

    The driver's own exception holds whole records, so it never goes further than this.
    """
    details = error.details
    errors: list[Mapping[str, Any]] = details["writeErrors"]
    if details.get("writeConcernErrors") or any(one["code"] in TRANSIENT_CODES for one in errors):
        raise WTimeoutError("not acknowledged by a majority yet") from None
    for one in errors:
        if one["code"] in STORAGE | PERMISSION:
            raise OperationFailure("the server cannot write", one["code"]) from None
    return errors


class ReadOnlyTarget:
    """A target as it is or would be, that is only read."""

    def __init__(self, target: Target, source: Source) -> None:
        self._target, self._source = target, source

    def fetch(self, ids: Sequence[bytes], fields: Sequence[str] = ()) -> Iterator[dict[bytes, bytes]]:
        """Yield the records of these keepers, by id, in pieces; see `Lookup.pieces`."""
        rest = dict.fromkeys(ids)
        for there in self._target.fetch(ids, fields):
            for raw_id in there:
                rest.pop(raw_id, None)
            yield there
        yield from self._source.fetch(self._to_come(list(rest)), fields)

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return those of these keepers that are in neither."""
        gone = self._target.absent(ids)
        to_come = self._to_come(list(gone))
        return gone.difference(to_come) | self._source.absent(to_come)

    def _to_come(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        """Return those of some ids that the target has not got whose records are looked for in the source."""
        return ids
