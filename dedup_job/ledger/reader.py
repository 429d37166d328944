"""Read a ledger: its head, plans in the order of decision, runs, and rows on single records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain, groupby, islice, takewhile
from typing import Any, Self, TypeVar

from pymongo.database import Database

from dedup_job.errors import DedupError, LeaseHeld, StateError
from dedup_job.ledger.head import Head, HeadDocument
from dedup_job.ledger.name_damaged_documents import name_damage
from dedup_job.ledger.overrides import KEEP, Override
from dedup_job.ledger.plan_format import (
    PlanColumns,
    PlanId,
    StoredPlan,
    read_previous,
    unpack,
    unpack_columns,
    with_number,
)
from dedup_job.ledger.rows_on_records import Dependant, Selection, id_of_row, row_key, row_keys
from dedup_job.mongo.connect_and_retry import RetryPolicy, named_errors
from dedup_job.mongo.id_lookup import RecordsById
from dedup_job.mongo.ids import SHOWABLE, IdSet, id_of, portions, selector
from dedup_job.mongo.pages import Pages, prefetch
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.records import ADOPT, BACKFILL, NIGHTLY, SYNC, Counts, chunked

PLANS_A_PAGE, PAGE_BYTES = 8, 16 << 20
# Exit codes of runs that finished and reported all refusals.
REPORTED = (0, 3)
DECIDING = (BACKFILL, NIGHTLY, SYNC)
MOST_INTERRUPTED = 1_000
# By the fence, which each run raises: the clock of the machine on which a run started may be wrong.
NEWEST_FIRST = (("fence", -1), ("started", -1))
ROWS_AT_ONCE = 1_000
P = TypeVar("P", StoredPlan, PlanColumns)


@dataclass(frozen=True, slots=True)
class Link:
    """A plan's id, the plan before it, and the run that made it."""

    id: PlanId
    previous: PlanId | None
    run: str
    mode: str

    @classmethod
    @name_damage("a plan")
    def read(cls, plan_id: PlanId, stored: Mapping[str, Any]) -> Self:
        """Read the link of a plan from a part of its document."""
        return cls(plan_id, read_previous(stored), stored["run"], stored["mode"])


@name_damage("a row of `runs`")
def _check_run(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row of a run if it has the fields that each row has.

    Raises:
        StateError: If it has not.
    """
    if lacking := {"mode", "started"} - row.keys():
        raise KeyError(*lacking)
    return row


class LedgerReader:
    """Reads a ledger; writes nothing."""

    def __init__(self, database: Database[Any], target: str, retry: RetryPolicy = RetryPolicy()) -> None:
        """Set the ledger to read.

        Args:
            database: The database of the target.
            target: Name of the target, after which the ledger's collections are named.
            retry: How long commands are retried.
        """
        self._database = database
        self._target = target
        self._retry = retry

    def collection(self, name: str) -> RetryingCollection:
        """Return a collection of the ledger, such as "plans"."""
        full_name = f"{self._target}.dedup.{name}"
        collection = self._database.get_collection(full_name, codec_options=SHOWABLE)
        return RetryingCollection(collection, "the ledger", self._retry)

    def head(self) -> Head | None:
        """Return the state; None if there is no ledger yet.

        Raises:
            StateError: If the head is missing although the ledger holds plans.
        """
        document = HeadDocument(self.collection("head"))
        head = document.read()
        # Read again after plans were seen: the first run may have created the head, and a plan, in between.
        if head is None and self._has_plans() and (head := document.read()) is None:
            ledger = f"{self._database.name}.{self._target}.dedup"
            raise StateError(
                f"{ledger}.head is missing or empty, and {ledger}.plans is not: restore the target database "
                "from a backup, or, to decide everything again, drop the target and its .dedup collections"
            )
        return head

    def counts(self) -> Counts:
        """Return the numbers of all decisions; zeros if there is no ledger yet."""
        head = self.head()
        return head.counts if head else Counts()

    def _has_plans(self) -> bool:
        # With a time limit, as for the head: the server may wait for a majority for ever.
        first = self.collection("plans").find_one({}, {"_id": 1}, max_time_ms=self._retry.milliseconds)
        return first is not None

    def plans(self, head: Head, first: int = 0) -> Iterator[StoredPlan]:
        """Yield the applied plans from a number on, in the order of decision, some at a time.

        Two plans may have the same number, if a run was killed before its plan was accepted.  The right one
        is the plan that the next plan, or the head, refers to.

        Raises:
            StateError: If a plan is missing or damaged.
        """
        return self._in_order(head, map(unpack, chain.from_iterable(self._pages(head, first))), first)

    def plan_columns(self, head: Head) -> Iterator[PlanColumns]:
        """Yield the same plans as columns; the next page is read while the caller uses a page."""
        pages = (list(map(unpack_columns, page)) for page in self._pages(head, 0))
        return self._in_order(head, chain.from_iterable(prefetch(pages)), 0)

    def _in_order(self, head: Head, plans: Iterator[P], first: int) -> Iterator[P]:
        # For each number the plans of which one is right, until it is known which.
        waiting: list[list[P]] = []
        expected = first
        for number, group in groupby(plans, key=lambda stored: stored.id.number):
            if number != expected:
                break
            candidates = list(group)
            # Of two plans, the wrong one may follow another plan than the right one: that of an undone run.
            if len(candidates) == 1:
                yield from self._follow_back(waiting, candidates[0].previous, head)
                waiting = []
            waiting.append(candidates)
            expected += 1
        if expected != head.next:
            raise self._missing_plan_error(expected, head)
        yield from self._follow_back(waiting, head.last, head)

    def _follow_back(self, groups: Sequence[Sequence[P]], last: PlanId | None, head: Head) -> list[P]:
        """Return the right plan of each group, in order, given the id of the last one."""
        chosen: list[P] = []
        for candidates in reversed(groups):
            right = next((stored for stored in candidates if stored.id == last), None)
            if right is None:
                raise self._missing_plan_error(candidates[0].id.number, head)
            chosen.append(right)
            last = right.previous
        return chosen[::-1]

    def _missing_plan_error(self, number: int, head: Head | None) -> DedupError:
        """Return the error for a missing plan; an undo may have deleted it since `head` was read."""
        current = self.head()
        if head is not None and current is not None and current.fence != head.fence:
            return LeaseHeld("another command has undone plans while this one read them; try again later")
        return StateError(
            f"plan {number} of the ledger is missing; restore the target database from a backup"
        )

    def plan(self, plan_id: PlanId) -> StoredPlan:
        """Return one plan.

        Raises:
            StateError: If it is missing or damaged.
        """
        return unpack(self._plan(plan_id))

    def adopted_ids(self, head: Head) -> IdSet:
        """Return the ids of the target's own records."""
        # An adoption comes before anything else, so its plans are the first.
        plans = takewhile(lambda stored: stored.mode == ADOPT, self.plans(head))
        return IdSet.of(stored.plan.ids for stored in plans)

    def plans_of(self, run: str, at: datetime) -> Iterator[StoredPlan]:
        """Return the plans that a run made at this time; both are in the rows of the plans' records."""
        return map(unpack, self.collection("plans").find({"run": run, "at": at}))

    def plan_of_number(self, number: int, head: Head) -> StoredPlan:
        """Return the applied plan with a number.

        Raises:
            StateError: If it is missing or damaged.
        """
        found = self.collection("plans").find(with_number(number))
        if len(found) == 1:
            return unpack(found[0])
        # A killed run may have left a second plan with the number.
        return next(self.plans(head, number))

    def links(self, last: PlanId | None) -> Iterator[Link]:
        """Yield the links from this plan back to the first; each is one lookup."""
        while last is not None:
            link = Link.read(last, self._plan(last, {"previous": 1, "run": 1, "mode": 1}))
            yield link
            last = link.previous

    def runs(self) -> Iterator[Mapping[str, Any]]:
        """Return the rows of the runs, newest first."""
        return map(_check_run, self.collection("runs").find(sort=NEWEST_FIRST))

    def run(self, name: str) -> Mapping[str, Any] | None:
        """Return the row of a run; None if there is no such run."""
        found = self.collection("runs").find_one({"_id": name})
        return None if found is None else _check_run(found)

    def interrupted_runs(self) -> list[Mapping[str, Any]]:
        """Return the rows of the failed and killed runs since the last successful run, newest first.

        Undone runs are left out.  The row of a killed run has no counts.
        """
        deciding = {"mode": {"$in": DECIDING}, "undone": {"$exists": False}}
        rows = self.collection("runs").find(deciding, sort=NEWEST_FIRST, limit=MOST_INTERRUPTED)
        return list(takewhile(lambda row: row.get("exit_code") not in REPORTED, rows))

    def groups(self, runs: Sequence[str]) -> dict[bytes, int]:
        """Return for each keeper the number of records that these runs dropped for it."""
        dropped = self.collection("dropped").raw_bson()
        of_runs = {"$match": {"run": {"$in": list(runs)}}}
        by_keeper = {"$group": {"_id": "$keeper", "records": {"$sum": 1}}}
        found = dropped.aggregate([of_runs, by_keeper]) if runs else []
        return {id_of(bytes(group.raw)): group["records"] for group in found}

    def overrides(self, ids: Sequence[bytes]) -> dict[bytes, Override]:
        """Return the overrides of these records, by id."""
        rows = self._rows("overrides", row_keys(ids)).values()
        return {override.id: override for override in map(Override.read, rows)}

    def with_rows(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return which of these records have a row in `dropped` or `exceptions`."""
        keys = row_keys(ids)
        rows = (row for name in ("dropped", "exceptions") for row in self._rows(name, keys).values())
        return set(map(id_of_row, rows))

    def overridden_ids(self) -> Iterator[list[bytes]]:
        """Yield the ids of all records with an override, in pages."""
        pages = Pages(self.collection("overrides"))
        return (list(map(id_of_row, page)) for page in pages.ids_after(None))

    def count_restored(self) -> int:
        """Return the number of records that a plan dropped and a person restored."""
        return self.collection("overrides").count_documents({"action": KEEP})

    def left(self, is_decided: bool = False) -> list[bytes]:
        """Return the ids of records that undos left in the target.

        Args:
            is_decided: Whether to include records that a later run has decided.
        """
        condition = {} if is_decided else {"decided": {"$exists": False}}
        rows = self.collection("left").raw_bson()
        # With a time limit, as for the head.
        found = rows.find(condition, {"_id": 1}, max_time_ms=self._retry.milliseconds)
        return [id_of_row(bytes(document.raw)) for document in found]

    def dropped_for(self, keepers: Sequence[bytes], take: Callable[[Sequence[Dependant]], None]) -> None:
        """Pass on the records that were dropped for these keepers, with `[match] prefer`.

        Args:
            keepers: Raw ids.
            take: Called with some records at a time; after a lost answer, with the same records again.
        """
        rows = self.collection("dropped").raw_bson()

        def read(some: Sequence[bytes]) -> None:
            wanted = set(some)
            with rows.unretried.find(selector(some, "keeper")) as cursor:
                while page := list(islice(cursor, ROWS_AT_ONCE)):
                    dependants = [Dependant.read(bytes(row.raw)) for row in page]
                    # The server may also find equal ids of another type.
                    take([one for one in dependants if one.keeper in wanted])

        for chunk in chunked(keepers, ROWS_AT_ONCE):
            for some in portions(chunk):
                rows.attempt(partial(read, some))

    def now(self) -> datetime:
        """Return the server's clock, in UTC."""
        return self.collection("head").server_time()

    def row(self, name: str, ids: Sequence[bytes]) -> bytes | None:
        """Return the raw row of `dropped` or `exceptions` on the first of these ids that has one.

        If a record was adopted and also decided, the row on the decision is returned.
        """
        keys = [row_key(raw_id, is_adopted) for is_adopted in (False, True) for raw_id in ids]
        rows = self._rows(name, keys)
        return next((rows[key] for key in keys if key in rows), None)

    def select_rows(self, selection: Selection, limit: int | None = None) -> Iterator[list[bytes]]:
        """Yield the selected raw rows, in lists; the server sorts them, on its disk if necessary.

        Args:
            selection: The rows, and their order.
            limit: Maximum number of rows; None for all.  It is ignored if they are in ascending order of ids.
        """
        rows = self.collection(selection.collection)
        if selection.is_by_id:
            yield from Pages(rows, condition=selection.condition).records_after(None)
            return
        # A cursor without retries: a retry would yield rows twice.
        found = rows.raw_bson().unretried.find(selection.condition).sort(selection.sort)
        with named_errors(rows.what), found.allow_disk_use(True).limit(limit or 0) as cursor:
            while some := [bytes(row.raw) for row in islice(cursor, ROWS_AT_ONCE)]:
                yield some

    def count(self, selection: Selection) -> int:
        """Return the number of selected rows."""
        return self.collection(selection.collection).count_documents(selection.condition)

    def _rows(self, name: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the raw rows with these keys, by key."""
        pieces = RecordsById(self.collection(name)).fetch(keys)
        return {key: row for rows in pieces for key, row in rows.items()}

    def _plan(self, plan_id: PlanId, projection: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        found: Mapping[str, Any] | None = self.collection("plans").find_one({"_id": plan_id.key}, projection)
        if found is None:
            raise self._missing_plan_error(plan_id.number, self._known_head())
        return found

    def _known_head(self) -> Head | None:
        """Return the head that this object relies on, if any."""
        return None

    def _pages(self, head: Head, first: int) -> Iterator[list[Mapping[str, Any]]]:
        after: Mapping[str, Any] = {"$gte": {"number": first}}
        is_last = head.next <= first
        while not is_last:
            page, is_last = self._page({**after, "$lt": {"number": head.next}})
            yield page
            after = {"$gt": page[-1]["_id"]} if page else after

    def _page(self, ids: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], bool]:
        """Return some megabytes of the first plans with these ids, and whether these are all."""
        plans = self.collection("plans")

        def read_page() -> tuple[list[Mapping[str, Any]], bool]:
            page: list[Mapping[str, Any]] = []
            nbytes = 0
            with plans.unretried.find({"_id": ids}).sort("_id", 1).limit(PLANS_A_PAGE) as cursor:
                for plan in cursor:
                    page.append(plan)
                    nbytes += sum(len(column) for column in plan.values() if isinstance(column, bytes))
                    if nbytes >= PAGE_BYTES:
                        return page, False
            return page, len(page) < PLANS_A_PAGE

        return plans.attempt(read_page)
