"""A ledger that this process may write: from taking the lease to giving it back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Self

import pymongo
from pymongo.errors import PyMongoError

from dedup_job.errors import DedupError, NotPermitted, StateError, exit_code_of
from dedup_job.ledger.apply_plan import EarlierPlans
from dedup_job.ledger.head import SECONDS, Head, HeadDocument, Holder, Origin
from dedup_job.ledger.plan_format import PlanId, StoredPlan
from dedup_job.ledger.promotion_state import Promotion
from dedup_job.ledger.reader import DECIDING, LedgerReader
from dedup_job.ledger.rows_on_records import RowWriter
from dedup_job.ledger.run_row import NEVER, RunId, RunRow
from dedup_job.ledger.settings_fit_ledger import Consent, check_filter, check_fits, check_places, is_made_from
from dedup_job.mongo.collection_checks import Places, check_same, uuid_of
from dedup_job.mongo.connect_and_retry import RetryPolicy
from dedup_job.mongo.copy_indexes import IndexRefused, build_indexes
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.lag_throttle import LagThrottle
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.pasteable_command import command_line
from dedup_job.records import Counts
from dedup_job.signals import SHUTDOWN
from dedup_job.start_threads_and_count_processors import Threads, start_thread

log = logging.getLogger("dedup_job")

# Time for closing the ledger after a failure, so that a command ends soon even if the server is silent.
LEAVING_SECONDS = 3.0
KEEPER_INDEX = {"key": {"keeper": 1}, "name": "keeper_1"}
# Nothing in the target is removed or replaced in the last part of a lease: another run may take it then.
MARGIN = SECONDS / 2


class LeasedLedger(LedgerReader):
    """A ledger whose lease this process holds within `hold`, until `close`."""

    _ended: threading.Event | None = None
    # Writes the rest of the last plan, while the next batch is decided.
    _rest: Future[None] | None = None
    _places: Places | None = None
    _counts_before: Counts | None = None
    _throttle: LagThrottle | None = None

    def watch(self, places: Places, throttle: LagThrottle) -> None:
        """Set the throttle that each plan waits for, and the collections that are checked at each plan.

        Args:
            places: Source, target and ledger, which must still be the collections in the head.
            throttle: Secondaries, which must not lag too much.
        """
        self._places, self._throttle = places, throttle

    @contextmanager
    def hold(self, run: RunId, origin: Origin, consent: Consent = Consent()) -> Iterator[Self]:
        """Open the ledger, and close it if the block fails; if it succeeds, the block closes the ledger.

        It is created if there is none, and must fit.  If the block fails, the run's row in `runs` gets the
        exit code.

        Args:
            run: The run that opens it.
            origin: The source, recipe, filter and collections of this run.
            consent: Changes that a person has accepted.

        Raises:
            ConfigError: If the ledger belongs to another source, recipe or filter.
            StateError: If one of its collections was replaced.
            LeaseHeld: If another run holds the lease.
        """
        try:
            self._open(run, origin, consent)
            yield self
        except BaseException as error:
            self._interrupt(exit_code_of(error))
            raise

    def _open(self, run: RunId, origin: Origin, consent: Consent) -> None:
        """Create the ledger if there is none, check that it fits, and take the lease; see `hold`."""
        self.run_id, self.run_row = run, RunRow(run, self.collection)
        self.rows = RowWriter(self.collection, self.check_held, self.deadline)
        self.earlier_plans = EarlierPlans(self.collection, self.check_held)
        self._document = HeadDocument(self.collection("head"))
        self._document.create(origin)
        head = self._document.read()
        if head is None:
            raise StateError("the ledger vanished while it was opened; run again")
        check_fits(head, origin)
        check_filter(head, origin, consent)
        check_places(head, origin, consent)
        self.current_head = self._document.take_lease(head, Holder.me())
        log.debug("lease taken", extra={"fields": {"fence": self.current_head.fence, "run": run.name}})
        self._writer = Threads(1)
        self._ended = threading.Event()
        start_thread(self._renew_lease, self._ended)
        if self.current_head.is_empty and not is_made_from(head, origin):
            self.swap({"next": 0, "pending": None}, {**origin.key, **NEVER})
        self.run_row.begin(self.current_head)
        self._index_keepers()
        self._store_consent(origin, consent)
        # Ids of records that an undo left in the target: the rows on them name the run that decides them.
        self.left_ids = IdSet.of([self.left(is_decided=True)])

    def _store_consent(self, origin: Origin, consent: Consent) -> None:
        """Store a filter and collections that a person has accepted."""
        head, changes = self.current_head, dict[str, Any]()
        if origin.filter not in (None, head.filter):
            changes |= {"filter": origin.filter, "looked": None}
        moved: dict[str, Any] = {} if origin.places in (None, head.places) else {"places": origin.places}
        if consent.moved and origin.places and head.promotion:
            # The former source is not among the places: it may be the only one that was replaced.
            promotion = self._relocated(head.promotion, origin.places)
            moved |= {"promotion": promotion.key} if promotion != head.promotion else {}
        if moved and head.places:
            changes |= NEVER
            log.warning(
                "--moved was accepted; check the target and its ledger with: %s", command_line("verify")
            )
        if changes | moved:
            self.swap({}, changes | moved)

    def _relocated(self, promotion: Promotion, places: Mapping[str, Any]) -> Promotion:
        """Return a finished promotion with the collections that have its names now."""
        kept = RetryingCollection(self._database[promotion.kept_as], "the ledger", self._retry)
        former = uuid_of(kept) or promotion.former
        return replace(promotion, promoted=places["collections"]["source"], former=former)

    def check_places(self) -> None:
        """Raise StateError if the source, the target or a ledger collection was replaced since the start."""
        if self._places is not None and self.current_head.places is not None:
            check_same(self.current_head.places, self._places.now())

    def wait_for_secondaries(self) -> None:
        """Return when no secondary lags more than the settings allow."""
        if self._throttle is not None:
            self._throttle.wait()

    def settle(self) -> None:
        """Wait until the last plan is applied; raise its error if that failed."""
        if self._rest is not None:
            SHUTDOWN.result(self._rest)
            self._rest = None

    def close(self, outcome: Mapping[str, Any]) -> None:
        """Store how the run ended, and give the lease back."""
        self.settle()
        if self._ended is not None:
            self._ended.set()
            self._writer.stop()
        self.run_row.end(outcome)
        self.swap({}, {"lease": None})
        log.debug("lease given back", extra={"fields": {"fence": self.current_head.fence}})

    def _interrupt(self, code: int) -> None:
        """Close the ledger after a failure, if the server answers within seconds.

        Otherwise the next run on this host sees that the holder has ended, and a run on another host waits
        until the lease expires.

        Args:
            code: Exit code of the command.
        """
        if self._ended is None:
            # The lease was never taken.
            return
        seconds, began = min(self._retry.seconds, LEAVING_SECONDS), time.monotonic()
        if self._rest is not None and not wait([self._rest], seconds / 2).done:
            # It is still writing, so the lease must not be given back.
            return
        self._rest = None
        seconds -= time.monotonic() - began
        self._retry = RetryPolicy(seconds)
        self._document = HeadDocument(self.collection("head"))
        with suppress(DedupError), pymongo.timeout(seconds):
            self.close({"exit_code": code, **self._count_decided()})

    def _count_decided(self) -> dict[str, Any]:
        """Return the counts of this run so far, without the pending plan."""
        if self._counts_before is None or self.run_id.mode not in DECIDING:
            return {}
        return (self.current_head.counts - self._counts_before).as_json()

    def _index_keepers(self) -> None:
        """Build the index that `group` uses; a run works without it if the server refuses it."""
        try:
            build_indexes(self.collection("dropped"), [KEEPER_INDEX])
        except (NotPermitted, IndexRefused) as error:
            log.warning(f"{error}; the run continues, and `group` scans all dropped records")

    def _known_head(self) -> Head:
        return self.current_head

    def swap(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Replace some values of the head; see `HeadDocument.swap`."""
        self.current_head = self._document.swap(self.current_head, before, after)

    def check_held(self) -> None:
        """Raise LeaseHeld if another run has taken the lease."""
        self._document.check_held(self.current_head)

    def plan(self, plan_id: PlanId) -> StoredPlan:
        """Return one plan, as this run knows it.

        Raises:
            LeaseHeld: If another run has taken the lease, and may have rewritten or removed the plan.
            StateError: If it is missing or damaged.
        """
        stored = super().plan(plan_id)
        self.check_held()
        return stored

    def _renew_lease(self, ended: threading.Event) -> None:
        """Renew the lease until the run ends or loses it; the next swap notices a loss."""
        while not ended.wait(SECONDS / 3):
            # After an error, the next turn or the next swap tries again.
            with suppress(PyMongoError):
                if not self._document.renew_lease(self.current_head):
                    return

    def deadline(self) -> datetime:
        """Renew the lease, and return the server time until which it surely covers removals.

        Before that, wait for secondaries that lag.

        Raises:
            LeaseHeld: If another run has taken the lease.
        """
        self.wait_for_secondaries()
        self._renew()
        assert self.current_head.lease is not None
        until: datetime = self.current_head.lease["until"]
        return until - timedelta(seconds=MARGIN)

    def deadline_by(self, clock: Callable[[], datetime]) -> datetime:
        """Renew the lease, and return the time of another server until which it surely covers writes.

        Args:
            clock: Returns the present time of that server.

        Raises:
            LeaseHeld: If another run has taken the lease.
        """
        self.wait_for_secondaries()
        before = clock() + timedelta(seconds=SECONDS - MARGIN)
        # Taken before the lease is renewed, so that the lease lasts longer.
        self._renew()
        return before

    def _renew(self) -> None:
        pending = self.current_head.pending
        same = {"pending": pending.key if pending else None}
        self.swap(same, same)
