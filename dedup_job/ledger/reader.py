"""The ledger, read: what was decided for a target, in the order in which it was decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, groupby, islice, takewhile
from typing import Any, TypeVar

from pymongo.collection import Collection
from pymongo.database import Database

from dedup_job.errors import DedupError, LeaseHeld, StateError
from dedup_job.ledger.head import Head, HeadDocument
from dedup_job.ledger.overrides import Override
from dedup_job.ledger.plan_format import PlanColumns, PlanId, StoredPlan, unpack, unpack_columns
from dedup_job.ledger.row_query import Selection
from dedup_job.ledger.rows import id_of_row, row_key, row_keys
from dedup_job.mongo.client import RetryPolicy, named_errors
from dedup_job.mongo.id_lookup import Lookup
from dedup_job.mongo.id_text import SHOWABLE
from dedup_job.mongo.ids import id_of
from dedup_job.mongo.pages import Pages, prefetch
from dedup_job.records import BACKFILL, NIGHTLY, RAW, RECONCILE

PLANS_A_PAGE, PAGE_BYTES = 8, 16 << 20
REPORTED = (0, 3)  # exit codes of a run that ended and said what was refused
DECIDING = (BACKFILL, NIGHTLY, RECONCILE)
MOST_BROKEN_OFF = 1_000  # runs
# By the fence, which each run raises: the clock of the machine on which a run started may be wrong.
NEWEST_FIRST = (("fence", -1), ("started", -1))
ROWS_AT_ONCE = 1_000
P = TypeVar("P", StoredPlan, PlanColumns)


@dataclass(frozen=True, slots=True)
class Link:
    """A plan's place in the chain of plans, and the run that made it."""

    id: PlanId
    previous: PlanId | None
    run: str
    mode: str


class LedgerReader:
    """Reads a ledger: what was decided, and where the next run goes on.  Writes nothing."""

    def __init__(self, database: Database[Any], target: str, patience: RetryPolicy = RetryPolicy()) -> None:
        self._database = database
        self._target = target
        self._patience = patience

    def head(self) -> Head | None:
        """Return the state; None if there is no ledger yet.

        Raises:
            StateError: If the head is missing although the ledger holds plans.
        """
        document = HeadDocument(self._collection("head"), self._patience)
        head = document.read()
        # Read again after plans were seen: the first run may have created the head, and a plan, in between.
        if head is None and self._has_plans() and (head := document.read()) is None:
            ledger = f"{self._database.name}.{self._target}.dedup"
            raise StateError(
                f"{ledger}.head is missing or empty, and {ledger}.plans is not: restore the target database "
                "from a backup, or, to decide everything anew, drop the target and its .dedup collections"
            )
        return head

    def _has_plans(self) -> bool:
        # A time limit, as for the head: the server would wait for a majority without end.
        most = self._patience.milliseconds
        with named_errors("the ledger"):
            plans = self._collection("plans")
            return self._patience(lambda: plans.find_one({}, {"_id": 1}, max_time_ms=most)) is not None

    def plans(self, head: Head) -> Iterator[StoredPlan]:
        """Yield the plans that were carried out, in their order; raises StateError when one is missing.

        Of two plans with one number (a run that was killed before its plan was accepted left the other
        behind) the right one is that which its successor names.
        """
        return self._in_order(head, map(unpack, chain.from_iterable(self._pages(head))))

    def plan_columns(self, head: Head) -> Iterator[PlanColumns]:
        """Yield the same plans as columns.  A page of them is read while those before it are worked on."""
        pages = (list(map(unpack_columns, page)) for page in self._pages(head))
        return self._in_order(head, chain.from_iterable(prefetch(pages)))

    def _in_order(self, head: Head, plans: Iterator[P]) -> Iterator[P]:
        waiting: list[P] = []
        expected = 0
        for number, group in groupby(plans, key=lambda stored: stored.id.number):
            candidates = list(group)
            if number != expected:
                break
            if waiting:
                yield self._the_one(waiting, candidates[0].previous, head)
            waiting, expected = candidates, expected + 1
        if expected != head.next:
            raise self._missing(expected, head)
        if waiting:
            yield self._the_one(waiting, head.last, head)

    def _the_one(self, candidates: Sequence[P], wanted: PlanId | None, head: Head) -> P:
        for stored in candidates:
            if stored.id == wanted:
                return stored
        raise self._missing(candidates[0].id.number, head)

    def _missing(self, number: int, head: Head | None) -> DedupError:
        """Return the error for a plan that is not there; since `head` was read, an undo may have taken it."""
        current = self.head()
        if head is not None and current is not None and current.fence != head.fence:
            return LeaseHeld("another command took plans back while this one read them; try again later")
        return StateError(f"plan {number} of the ledger is missing; restore the target database")

    def plan(self, plan_id: PlanId) -> StoredPlan:
        """Return one plan; raises StateError when it is missing."""
        return unpack(self._plan(plan_id))

    def plans_of(self, run: str, at: datetime) -> Iterator[StoredPlan]:
        """Yield the plans that a run made at a moment, as the rows of their records name it."""
        with named_errors("the ledger"):
            found = self._patience(lambda: list(self._collection("plans").find({"run": run, "at": at})))
        yield from map(unpack, found)

    def links(self, last: PlanId | None) -> Iterator[Link]:
        """Yield the links of the chain of plans from this one back to the first, each looked up by itself."""
        while last is not None:
            found = self._plan(last, {"previous": 1, "run": 1, "mode": 1})
            previous = PlanId.read(found["previous"]) if found["previous"] else None
            yield Link(last, previous, found["run"], found["mode"])
            last = previous

    def runs(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of the runs, newest first."""
        with named_errors("the ledger"):
            found = self._patience(lambda: list(self._collection("runs").find().sort(NEWEST_FIRST)))
        yield from found

    def run(self, name: str) -> Mapping[str, Any] | None:
        """Return the row of a run, or None."""
        with named_errors("the ledger"):
            found: Mapping[str, Any] | None = self._patience(
                lambda: self._collection("runs").find_one({"_id": name})
            )
        return found

    def broken_off(self) -> list[Mapping[str, Any]]:
        """Return the rows of the runs since the last one that ended, newest first; undone ones left out.

        A run that was killed has no counts there.
        """
        deciding = {"mode": {"$in": DECIDING}, "undone": {"$exists": False}}
        with named_errors("the ledger"):
            rows = self._patience(
                lambda: list(
                    self._collection("runs").find(deciding).sort(NEWEST_FIRST).limit(MOST_BROKEN_OFF)
                )
            )
        return list(takewhile(lambda row: row.get("exit_code") not in REPORTED, rows))

    def groups(self, runs: Sequence[str]) -> dict[bytes, int]:
        """Return for how many records that these runs dropped each keeper stands."""
        dropped = self._collection("dropped").with_options(codec_options=RAW)
        of_runs = {"$match": {"run": {"$in": list(runs)}}}
        by_keeper = {"$group": {"_id": "$keeper", "records": {"$sum": 1}}}
        with named_errors("the ledger"):
            found = self._patience(lambda: list(dropped.aggregate([of_runs, by_keeper]))) if runs else []
        return {id_of(bytes(group.raw)): group["records"] for group in found}

    def overrides(self, ids: Sequence[bytes]) -> dict[bytes, Override]:
        """Return what persons decided of these records, by id."""
        rows = self._rows("overrides", row_keys(ids)).values()
        return {override.id: override for override in map(Override.read, rows)}

    def overridden(self) -> Iterator[list[bytes]]:
        """Yield the ids of all records of which persons decided something, in pages."""
        pages = Pages(self._collection("overrides"), "the ledger", self._patience)
        return (list(map(id_of_row, page)) for page in pages.ids_after(None))

    def count_overridden(self) -> int:
        """Return of how many records persons decided something."""
        with named_errors("the ledger"):
            return self._patience(lambda: self._collection("overrides").count_documents({}))

    def left(self, is_decided: bool = False) -> list[bytes]:
        """Return the ids that undos left in the target and no later run decided; or those, too."""
        condition = {} if is_decided else {"decided": {"$exists": False}}
        rows = self._collection("left").with_options(codec_options=RAW)
        with named_errors("the ledger"):
            most = self._patience.milliseconds  # as for the head
            found = self._patience(lambda: list(rows.find(condition, {"_id": 1}, max_time_ms=most)))
        return [id_of_row(bytes(document.raw)) for document in found]

    def now(self) -> datetime:
        """Return the server's clock, in UTC."""
        with named_errors("the ledger"):
            hello = self._patience(lambda: self._database.client.admin.command("hello"))
        time: datetime = hello["localTime"].replace(tzinfo=UTC)
        return time

    def row(self, name: str, ids: Sequence[bytes]) -> bytes | None:
        """Return the raw row of `dropped` or `exceptions` on the first of these ids that has one.

        Where a record was adopted and decided, it is what was decided.
        """
        keys = [row_key(raw_id, is_adopted) for is_adopted in (False, True) for raw_id in ids]
        rows = self._rows(name, keys)
        return next((rows[key] for key in keys if key in rows), None)

    def selected(self, selection: Selection) -> Iterator[list[bytes]]:
        """Yield the raw rows that a selection takes, in lists; the server puts them in order, on its disk."""
        rows = self._collection(selection.collection)
        if selection.is_by_id:
            yield from Pages(rows, "the ledger", self._patience, condition=selection.condition).records_after(
                None
            )
            return
        found = rows.with_options(codec_options=RAW).find(selection.condition).sort(selection.sort)
        with named_errors("the ledger"), found.allow_disk_use(True).limit(selection.limit or 0) as cursor:
            while some := [bytes(row.raw) for row in islice(cursor, ROWS_AT_ONCE)]:
                yield some

    def count(self, selection: Selection) -> int:
        """Return how many rows a selection takes; its limit is not counted in."""
        rows = self._collection(selection.collection)
        with named_errors("the ledger"):
            return self._patience(lambda: rows.count_documents(selection.condition))

    def _rows(self, name: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the raw rows that have these keys, by key: they are short."""
        pieces = Lookup(self._collection(name), "the ledger", self._patience).pieces(keys)
        return {key: row for rows in pieces for key, row in rows.items()}

    def _plan(self, plan_id: PlanId, projection: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        with named_errors("the ledger"):
            found: Mapping[str, Any] | None = self._patience(
                lambda: self._collection("plans").find_one({"_id": plan_id.key}, projection)
            )
        if found is None:
            raise self._missing(plan_id.number, self._known())
        return found

    def _known(self) -> Head | None:
        """Return the head that this process goes by, if it goes by one."""
        return None

    def _pages(self, head: Head) -> Iterator[list[Mapping[str, Any]]]:
        after: Mapping[str, Any] = {"$gte": {"number": 0}}
        is_last = head.next == 0
        while not is_last:
            page, is_last = self._page({**after, "$lt": {"number": head.next}})
            yield page
            after = {"$gt": page[-1]["_id"]} if page else after

    def _page(self, ids: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], bool]:
        """Return the first plans of these, some megabytes of them, and whether there are no more."""

        def drained() -> tuple[list[Mapping[str, Any]], bool]:
            page: list[Mapping[str, Any]] = []
            nbytes = 0
            with self._collection("plans").find({"_id": ids}).sort("_id", 1).limit(PLANS_A_PAGE) as cursor:
                for plan in cursor:
                    page.append(plan)
                    nbytes += sum(len(column) for column in plan.values() if isinstance(column, bytes))
                    if nbytes >= PAGE_BYTES:
                        return page, False
            return page, len(page) < PLANS_A_PAGE

        with named_errors("the ledger"):
            return self._patience(drained)

    def _collection(self, name: str) -> Collection[Any]:
        return self._database.get_collection(f"{self._target}.dedup.{name}", codec_options=SHOWABLE)
