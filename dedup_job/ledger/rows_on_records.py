"""Write, read and select the ledger's rows on single records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from bson import decode, encode
from bson.raw_bson import RawBSONDocument
from pymongo import ReplaceOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from dedup_job.ledger.name_damaged_documents import name_damage
from dedup_job.ledger.plan_format import StoredPlan
from dedup_job.mongo.ids import (
    DOCUMENT,
    HEAD,
    LONGEST_JUDGED,
    SHOWABLE,
    IdSet,
    as_field,
    document,
    elements,
    id_of,
    is_alone,
    portions,
    selector,
)
from dedup_job.mongo.retrying_collection import RetryingCollection, in_time
from dedup_job.mongo.target import record_errors
from dedup_job.preference.preference_ranks import pack_rank
from dedup_job.records import ADOPT, RAW, REPLACE, Action

# Offset of the first element of an id that is a document.
INNER = HEAD + 1 + 4 + HEAD
OF = b"of\0"
# A null instead of the id, if the id is too long to be in a key twice.
NOT_SHOWN = b"\x0a" + OF


def row_key(raw_id: bytes, is_adopted: bool = False) -> bytes:
    """Return the key of the row on a record, as a raw id.

    This is the record's id, or a document that distinguishes it from equal ids of other types.

    >>> from bson import decode, encode
    >>> decode(row_key(encode({"_id": 25}))), decode(row_key(encode({"_id": 25.0})))["_id"]["of"]
    ({'_id': 25}, 25.0)
    """
    looks_like_a_key = raw_id[HEAD] == DOCUMENT and raw_id[INNER:].startswith(OF, 1)
    if not is_adopted and is_alone(raw_id) and not looks_like_a_key:
        return raw_id
    told = elements(encode({"bytes": raw_id, "adopted": is_adopted}))
    shown = as_field(raw_id, "of") if len(raw_id) <= LONGEST_JUDGED else NOT_SHOWN
    return document(b"\x03_id\0" + document(shown, told))


def row_keys(ids: Iterable[bytes]) -> list[bytes]:
    """Return the keys of the rows on some records."""
    return [row_key(raw_id) for raw_id in ids]


def id_of_row(row: bytes) -> bytes:
    """Return the raw id of the record that a row is about."""
    key = id_of(row)
    if key[HEAD] == DOCUMENT and key[INNER:].startswith(OF, 1):
        return bytes(RawBSONDocument(key, RAW)["_id"]["bytes"])
    return key


def keeper_of_row(row: bytes) -> bytes:
    """Return the raw id of the keeper in a row of `dropped`."""
    # The keeper is the element behind `_id`.
    rest = row[len(id_of(row)) - 1 : -1]
    return id_of(document(rest.replace(b"keeper\0", b"_id\0", 1)))


def dropped_row(stored: StoredPlan, row: int) -> bytes:
    """Return the raw row on a dropped record."""
    verdict = stored.plan.verdicts[row]
    assert verdict.match is not None
    jaccard = verdict.match.similarity
    about: dict[str, Any] = {
        "reason": verdict.reason,
        "distance": verdict.match.distance,
        "similarity": None if jaccard is None else round(jaccard, 4),
        "run": stored.run,
        "at": stored.at,
    }
    if stored.plan.ranks is not None:
        # For deciding the record again, if its keeper is replaced by a better one.
        rank = pack_rank(stored.plan.ranks[row])
        about |= {"plan": stored.id.number, "rank": rank, "replaced": stored.mode == REPLACE}
    keeper = as_field(verdict.match.keeper, "keeper")
    return document(elements(row_key(stored.plan.ids[row])), keeper, elements(encode(about)))


def left_row(raw_id: bytes, reason: str, run: str, at: datetime, **more: str) -> bytes:
    """Return the raw row on a record that stays in the target; `more` has further fields."""
    about = {"reason": reason, "run": run, "at": at, **more}
    return document(elements(row_key(raw_id)), elements(encode(about)))


def exception_row(stored: StoredPlan, row: int) -> bytes:
    """Return the raw row on an unchecked or refused record."""
    verdict = stored.plan.verdicts[row]
    about = {
        "action": verdict.action.name.lower(),
        "reason": verdict.reason,
        "stage": "target" if verdict.action == Action.REFUSED else "fingerprint",
        "run": stored.run,
        "at": stored.at,
    }
    key = row_key(stored.plan.ids[row], stored.mode == ADOPT)
    return document(elements(key), elements(encode(about)))


@dataclass(frozen=True, slots=True)
class Dependant:
    """A record that was dropped for a keeper, as its row describes it; see `[match] prefer`.

    Attributes:
        id: Its raw id.
        keeper: Raw id of the keeper.
        number: Number of the plan that dropped it.
        reason: "exact" or "near".
        rank: Its packed rank.
    """

    id: bytes
    keeper: bytes
    number: int
    reason: str
    rank: bytes

    @classmethod
    @name_damage("a row of `dropped`")
    def read(cls, row: bytes) -> Self:
        """Read a raw row of `dropped`."""
        about = decode(row, SHOWABLE)
        return cls(id_of_row(row), keeper_of_row(row), about["plan"], about["reason"], about["rank"])


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes the ledger's rows.

    Attributes:
        collection: Returns a collection of the ledger by its name.
        check_held: Raises LeaseHeld if another run has taken the lease.
        deadline: Renews the lease, and returns the server time until which it covers changes; raises
            LeaseHeld if another run has taken it.
    """

    collection: Callable[[str], RetryingCollection]
    check_held: Callable[[], object]
    deadline: Callable[[], datetime]

    def write_plan(self, stored: StoredPlan, left: IdSet) -> None:
        """Write the rows on a plan's dropped, unchecked and refused records, and delete outdated rows.

        A right row is never deleted, not even for a moment: another run may have taken the lease,
        and would not write the row again if this run were killed in between.

        Args:
            stored: The plan.
            left: Ids of records that an undo left in the target; those in the plan are decided now.
        """
        self._write("dropped", stored, (Action.DUPLICATE,), dropped_row)
        self._write("exceptions", stored, (Action.UNCHECKED, Action.REFUSED), exception_row)
        if some := left.among(stored.plan.ids):
            self.update("left", selector(row_keys(some)), {"$set": {"decided": stored.run}})

    def delete_earlier(self, stored: StoredPlan) -> None:
        """Delete the rows of earlier plans on records that this plan has decided again."""
        # By plan, as the earlier decision may be of the same run.
        earlier = {"plan": {"$lt": stored.id.number}}
        for keys in portions(row_keys(stored.plan.ids)):
            self.delete("dropped", {"$and": [selector(keys), earlier]})

    def delete(self, name: str, condition: Mapping[str, Any]) -> None:
        """Delete the rows that meet a condition, within the lease.

        Raises:
            LeaseHeld: If another run has taken the lease: it may have decided the records otherwise.
        """
        self.collection(name).write_in_time(
            self.deadline, lambda rows, is_in_time: rows.delete_many({"$and": [condition, is_in_time]})
        )

    def update(self, name: str, condition: Mapping[str, Any], change: Mapping[str, Any]) -> None:
        """Change the rows that meet a condition, within the lease; raises as `delete` does."""
        self.collection(name).write_in_time(
            self.deadline,
            lambda rows, is_in_time: rows.update_many({"$and": [condition, is_in_time]}, change),
        )

    def put(self, name: str, rows: Sequence[bytes]) -> None:
        """Insert raw rows, or replace rows with the same keys.

        Raises:
            LeaseHeld: If another run has taken the lease: it may have decided the records otherwise.
        """
        collection = self.collection(name)
        is_written = not rows
        while not is_written:
            is_written = collection.attempt(lambda: self._put_once(collection.unretried, rows))

    def _put_once(self, collection: Collection[Any], rows: Sequence[bytes]) -> bool:
        """Insert or replace rows; return whether all are written, and none came too late or vanished."""
        # Right before, as an insert itself cannot ask who has the lease.
        self.check_held()
        try:
            collection.insert_many(map(RawBSONDocument, rows), ordered=False)
        except BulkWriteError as error:
            again = [rows[one["index"]] for one in record_errors(error)]
        else:
            return True
        is_in_time = in_time(self.deadline())
        replacements: list[ReplaceOne[Any]] = [
            ReplaceOne({"$and": [selector([id_of(row)]), is_in_time]}, RawBSONDocument(row, RAW))
            for row in again
        ]
        return collection.bulk_write(replacements).matched_count == len(again)

    def _write(
        self,
        name: str,
        stored: StoredPlan,
        actions: tuple[Action, ...],
        row_of: Callable[[StoredPlan, int], bytes],
    ) -> None:
        rows = stored.plan.rows(*actions)
        self.put(name, [row_of(stored, row) for row in rows])
        if stored.id.version:
            about = {stored.plan.ids[row] for row in rows}
            is_adopted = stored.mode == ADOPT
            others = [row_key(raw_id, is_adopted) for raw_id in stored.plan.ids if raw_id not in about]
            # Rows of earlier decisions are deleted with their plans.
            self.delete(name, {"$and": [selector(others), {"run": stored.run}]})


DUPLICATE, RESTORED = "duplicate", "restored"
# The field of an override with the former row of `dropped`.
DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision in a row of `dropped`, `exceptions` or `overrides`.

    Attributes:
        id: Raw id of the record.
        verdict: "duplicate", "unchecked", "refused" or "restored"; the other values of a restored record say
            why it was dropped.
        reason: Reason of the verdict, such as "near".
        run: Name of the run.
        at: Time of the decision, in UTC.
        keeper: Raw id of the keeper; None for an unchecked or refused record.
        distance: Hamming distance to the keeper; None without fingerprints.
        similarity: Jaccard similarity to the keeper; None if the texts were not compared.
        is_replaced: Whether the record was kept before, until a better record came.
    """

    id: bytes
    verdict: str
    reason: str
    run: str
    at: datetime
    keeper: bytes | None = None
    distance: int | None = None
    similarity: float | None = None
    is_replaced: bool = False

    @classmethod
    @name_damage("a row of `dropped`, `exceptions` or `overrides`")
    def read(cls, row: bytes) -> Self:
        """Read a decision from a raw row of `dropped`, `exceptions` or `overrides`."""
        about = decode(row, SHOWABLE)
        if DROPPED in about:
            former = elements(bytes(RawBSONDocument(row, RAW)[DROPPED].raw))
            return replace(cls.read(document(elements(id_of(row)), former)), verdict=RESTORED)
        told = (about["reason"], about["run"], about["at"])
        if "action" in about:
            return cls(id_of_row(row), about["action"], *told)
        match = (keeper_of_row(row), about["distance"], about["similarity"])
        is_replaced = about.get("replaced", False)
        return cls(id_of_row(row), DUPLICATE, *told, *match, is_replaced=is_replaced)


@dataclass(frozen=True, slots=True)
class Selection:
    """A query for rows; None means no condition.

    Attributes:
        verdict: "duplicate", "unchecked", "refused" or "restored".
        reason: Reason of the verdict.
        run: Name of the run.
        least: Smallest similarity to the keeper.
        most: Largest similarity to the keeper.
        keeper: Raw id of the keeper.
        is_replaced: Whether to select only records that were kept before, until a better record came.
        order: "id", "similarity", "distance", "at" or "keeper"; rows with equal values are sorted by id.
        is_reversed: Whether the order is descending.
    """

    verdict: str = DUPLICATE
    reason: str | None = None
    run: str | None = None
    least: float | None = None
    most: float | None = None
    keeper: bytes | None = None
    is_replaced: bool = False
    order: str = "id"
    is_reversed: bool = False

    @property
    def collection(self) -> str:
        """Name of the ledger's collection that has the rows."""
        return {DUPLICATE: "dropped", RESTORED: "overrides"}.get(self.verdict, "exceptions")

    @property
    def _prefix(self) -> str:
        """The path, in a row, of the fields that a condition or an order names."""
        return f"{DROPPED}." if self.verdict == RESTORED else ""

    @property
    def condition(self) -> Mapping[str, Any]:
        """The query filter for the server."""
        keeper, limits = self.keeper, {"$gte": self.least, "$lte": self.most}
        wanted = {
            "reason": self.reason,
            "run": self.run,
            "replaced": self.is_replaced or None,
            "action": self.verdict if self.collection == "exceptions" else None,
            "keeper": None if keeper is None else RawBSONDocument(document(as_field(keeper, "$eq"))),
            "similarity": {name: limit for name, limit in limits.items() if limit is not None} or None,
        }
        return {f"{self._prefix}{name}": value for name, value in wanted.items() if value is not None}

    @property
    def is_by_id(self) -> bool:
        """Whether the rows are in the order of the index on `_id`."""
        return self.order == "id" and not self.is_reversed

    @property
    def sort(self) -> list[tuple[str, int]]:
        """The sort specification for the server."""
        way = -1 if self.is_reversed else 1
        first = [] if self.order == "id" else [(f"{self._prefix}{self.order}", way)]
        return [*first, ("_id", way)]
