"""Marks: the field that `mark` writes into dropped records of the source, and how reading leaves it out.

A mark is `{keeper, similarity, reason, run}`.  It is no part of a record: wherever a record of the source is
read, its mark is left out, so a marked collection decides and compares as an unmarked one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, TypeAlias

from bson import encode
from pymongo import UpdateMany
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from dedup_job.mongo.id_lookup import RecordsById
from dedup_job.mongo.ids import (
    DOCUMENT,
    HEAD,
    as_field,
    document,
    elements,
    fields,
    id_of,
    portions,
    selector,
)
from dedup_job.mongo.pages import Pages
from dedup_job.mongo.read_rate_limit import Pace
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.target import name_refusal, record_errors
from dedup_job.mongo.unchanged_filters import (
    RECORDS_IN_FILTER,
    filters_by_command,
    is_comparable,
    value_of_each,
)
from dedup_job.records import KeeperMatch, digest

# Why a record has no mark, or stays in the source.  Other reasons are refusals of the server.
CHANGED, UNMARKABLE, FIELD_IN_USE = "changed", "unmarkable", "field_in_use"
NAMES = ("keeper", "similarity", "reason", "run")
ENDED_NAMES = [name.encode() + b"\0" for name in NAMES]

# `LeasedLedger.deadline_by`: a command that was paused must not change marks when others work.
DeadlineBy: TypeAlias = Callable[[Callable[[], datetime]], datetime]


def make_mark(match: KeeperMatch, reason: str, run: str) -> bytes:
    """Return the mark of a dropped record as raw BSON.

    Args:
        match: The keeper, and how similar the record is to it.
        reason: "exact" or "near".
        run: Name of the run that dropped it.
    """
    about = {"similarity": match.similarity, "reason": reason, "run": run}
    return document(as_field(match.keeper, "keeper"), elements(encode(about)))


@dataclass(frozen=True)
class MarkField:
    """The field of the marks.

    Attributes:
        name: Its name.
    """

    name: str

    def split(self, raw: bytes) -> tuple[bytes, bytes | None]:
        """Return a raw record without its mark, and the mark; None if it has none.

        >>> from bson import encode
        >>> mark = {"keeper": 1, "similarity": 0.9, "reason": "near", "run": "r"}
        >>> record, found = MarkField("dedup").split(encode({"_id": 2, "dedup": mark, "n": 3}))
        >>> record == encode({"_id": 2, "n": 3}), found == encode(mark)
        (True, True)
        >>> MarkField("dedup").split(encode({"_id": 2, "dedup": {"keeper": 1}}))[1] is None
        True
        """
        # Nearly all records end here.
        if self._head not in raw:
            return raw, None
        for start, value, end in fields(raw):
            if raw[start:value] == self._head and _is_mark(raw[value:end]):
                return document(raw[HEAD:start], raw[end:-1]), raw[value:end]
        return raw, None

    def without(self, raw: bytes) -> bytes:
        """Return a raw record without its mark."""
        return self.split(bytes(raw))[0]

    def is_in(self, record: bytes) -> bool:
        """Return whether a raw record, without its mark, has the field with other content."""
        return self._ended_name in record and any(
            record[start + 1 : value] == self._ended_name for start, value, _ in fields(record)
        )

    @cached_property
    def _head(self) -> bytes:
        """The bytes before a mark: its type and the field's name."""
        return bytes((DOCUMENT,)) + self._ended_name

    @cached_property
    def _ended_name(self) -> bytes:
        return self.name.encode() + b"\0"

    @property
    def condition(self) -> Mapping[str, Any]:
        """The filter for records with a mark."""
        value = f"${self.name}"
        names = {"$map": {"input": {"$objectToArray": value}, "in": "$$this.k"}}
        is_object = {"$eq": [{"$type": value}, "object"]}
        marked = {"$cond": [is_object, {"$eq": [names, list(NAMES)]}, False]}
        return {self.name: {"$exists": True}, "$expr": marked}


def _is_mark(value: bytes) -> bool:
    return [value[start + 1 : end] for start, end, _ in fields(value)] == ENDED_NAMES


@dataclass(frozen=True, slots=True)
class MarkComparison:
    """Some records of the source, compared with the marks that they should have.

    Attributes:
        due: Raw records to mark, by raw id.
        marks: The mark of each of them, and maybe of others.
        already: Number of records that have their mark.
        unmarked: Why other records must have none, by raw id: they changed since they were judged, have other
            content in the field, or are too large or too deep for a command that compares them.
    """

    due: Mapping[bytes, bytes]
    marks: Mapping[bytes, bytes]
    already: int
    unmarked: Mapping[bytes, str]


class Marks:
    """Writes marks into the source, and takes them away; nothing else in a record is changed.

    Attributes:
        field: The field of the marks.
    """

    def __init__(self, source: RetryingCollection, field: MarkField, pace: Pace) -> None:
        self.field = field
        self._source = source
        self._records = RecordsById(source)
        self._pace = pace

    def find_other_content(self) -> bytes | None:
        """Return the raw id of a record whose field holds something else than a mark, or None."""
        others = {self.field.name: {"$exists": True}, "$nor": [{"$expr": self.field.condition["$expr"]}]}
        found = self._source.raw_bson().find_one(others, {"_id": 1})
        return found and id_of(found.raw)

    def has_field(self) -> bool:
        """Return whether a record has the field, with any content; reads the whole source if none has."""
        return self._source.raw_bson().find_one({self.field.name: {"$exists": True}}, {"_id": 1}) is not None

    def compare(
        self, marks: Mapping[bytes, bytes], judged: Mapping[bytes, bytes]
    ) -> Iterator[MarkComparison]:
        """Compare records with the marks that they should have, some megabytes at a time; writes nothing.

        Records that are no longer in the source are left out.

        Args:
            marks: The marks, by raw id.
            judged: `digest` of the judged version of each record, by raw id.
        """
        for found in self._records.fetch(marks):
            self._pace.spend(len(found), sum(map(len, found.values())))
            due, already = dict[bytes, bytes](), 0
            unmarked = dict[bytes, str]()
            for raw_id, raw in found.items():
                record, mark = self.field.split(raw)
                if digest(record) != judged[raw_id]:
                    unmarked[raw_id] = CHANGED
                elif self.field.is_in(record):
                    unmarked[raw_id] = FIELD_IN_USE
                elif not is_comparable(raw):
                    unmarked[raw_id] = UNMARKABLE
                elif mark == marks[raw_id]:
                    already += 1
                else:
                    due[raw_id] = raw
            yield MarkComparison(due, marks, already, unmarked)

    def write(self, found: MarkComparison, deadline_by: DeadlineBy) -> dict[bytes, str]:
        """Mark the records that are due where the source still has them, byte for byte.

        Args:
            found: The records.
            deadline_by: Keeps the command's right to write.

        Returns:
            Why records have no mark, by their ids: they were changed or deleted in the meantime, or the
            server refuses the mark.
        """
        missed = self._write(found.due, found.marks, RECORDS_IN_FILTER, deadline_by)
        if missed:
            # An update of several records stops at a record that the server refuses, as by a validator.
            again = {raw_id: found.due[raw_id] for raw_id in missed}
            missed = self._write(again, found.marks, 1, deadline_by)
        return missed

    def _write(
        self, records: Mapping[bytes, bytes], marks: Mapping[bytes, bytes], most: int, deadline_by: DeadlineBy
    ) -> dict[bytes, str]:
        """Mark records, at most `most` in one update; return why records have no mark, by their ids."""
        refused, is_complete = dict[bytes, str](), True
        for found in filters_by_command(records, most):
            has_found_all, now_refused = self._send(found, marks, deadline_by)
            refused |= now_refused
            is_complete &= has_found_all
        if is_complete:
            return {}
        return {raw_id: refused.get(raw_id, CHANGED) for raw_id in self._unmarked(records, marks)}

    def _update(
        self, condition: Mapping[str, Any], ids: Sequence[bytes], marks: Mapping[bytes, bytes]
    ) -> UpdateMany:
        """Return the update that marks the records that meet a condition."""
        mark = value_of_each({raw_id: marks[raw_id] for raw_id in ids})
        return UpdateMany(condition, [{"$set": {self.field.name: mark}}])

    def clear(self, ids: Iterable[bytes], deadline_by: DeadlineBy) -> int:
        """Take the marks of these records away; return how many had one."""
        cleared = 0
        for some in portions(ids):
            cleared += self._source.write_in_time(
                partial(deadline_by, self._source.server_time), partial(self._unset, some)
            )
        return cleared

    def _unset(self, ids: Sequence[bytes], source: Collection[Any], is_in_time: Mapping[str, Any]) -> int:
        marked = {"$and": [selector(ids), self.field.condition, is_in_time]}
        return source.update_many(marked, {"$unset": {self.field.name: ""}}).modified_count

    def marked_ids(self) -> Iterator[list[bytes]]:
        """Yield the ids of all records with a mark, in pages, whether or not they were ever decided."""
        return Pages(self._source, condition=self.field.condition).ids_after(None)

    def _send(
        self,
        found: Sequence[tuple[Mapping[str, Any], list[bytes]]],
        marks: Mapping[bytes, bytes],
        deadline_by: DeadlineBy,
    ) -> tuple[bool, dict[bytes, str]]:
        """Mark the records that meet conditions, each with the ids of its records.

        Returns:
            Whether each condition was met by all of its records; why the server refuses marks, by id.
        """

        def send(source: Collection[Any], is_in_time: Mapping[str, Any]) -> tuple[bool, dict[bytes, str]]:
            updates = [
                self._update({"$and": [condition, is_in_time]}, ids, marks) for condition, ids in found
            ]
            try:
                done = source.bulk_write(updates, ordered=False)
            except BulkWriteError as error:
                refused = dict[bytes, str]()
                for one in record_errors(error):
                    refused |= dict.fromkeys(found[one["index"]][1], name_refusal(one))
                return False, refused
            return done.matched_count == sum(len(ids) for _, ids in found), {}

        return self._source.write_in_time(partial(deadline_by, self._source.server_time), send)

    def _unmarked(self, ids: Iterable[bytes], marks: Mapping[bytes, bytes]) -> list[bytes]:
        """Return the ids of the records that do not have their mark."""
        unmarked = set(ids)
        for found in self._records.fetch(list(unmarked), [self.field.name]):
            unmarked -= {
                raw_id for raw_id, raw in found.items() if self.field.split(raw)[1] == marks.get(raw_id)
            }
        return sorted(unmarked)
