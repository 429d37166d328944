"""A ledger that this process may write: from taking the lease to giving it back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from dedup_job.errors import DedupError, NotPermitted, StateError
from dedup_job.ledger.compatibility import Consent, check_filter, check_fits, check_places, is_made_from
from dedup_job.ledger.head import SECONDS, Head, HeadDocument, Holder, Origin
from dedup_job.ledger.plan_format import PlanId
from dedup_job.ledger.reader import DECIDING, LedgerReader
from dedup_job.ledger.rows import RowWriter
from dedup_job.ledger.run_history import NEVER, RunId, RunRow
from dedup_job.mongo.client import RetryPolicy
from dedup_job.mongo.collection_uuids import Places, check_same
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.indexes import IndexRefused, build_indexes
from dedup_job.records import Counts
from dedup_job.signals import SHUTDOWN
from dedup_job.threads import Threads, start_thread

log = logging.getLogger("dedup_job")

LEAVING_SECONDS = 3.0
KEEPER_INDEX = {"key": {"keeper": 1}, "name": "keeper_1"}
MARGIN = SECONDS / 2  # before the end of a lease, in which nothing in the target is removed or replaced


class LeasedLedger(LedgerReader):
    """A ledger that this process may write; made by `open`, ended by `close` or `break_off`."""

    _ended: threading.Event | None = None
    _rest: Future[None] | None = None  # of carrying out the last plan
    _places: Places | None = None
    _left = IdSet()
    _before: Counts | None = None  # what was decided before this run

    def watch(self, places: Places) -> None:
        """Check with each plan that source, target and ledger are still what the head says."""
        self._places = places

    def open(self, run: RunId, origin: Origin, consent: Consent = Consent()) -> Head:
        """Make the ledger if there is none, check that it fits, and take the lease.

        Raises ConfigError when the ledger belongs to another source, recipe or filter, StateError when what
        it was made from is not what it was, LeaseHeld when another run holds it.
        """
        self._run = run
        self._document = HeadDocument(self._collection("head"), self._patience)
        self._document.create(origin)
        head = self._document.read()
        if head is None:
            raise StateError("the ledger vanished while it was opened; run again")
        check_fits(head, origin)
        check_filter(head, origin, consent)
        check_places(head, origin, consent)
        self._head = self._document.take_lease(head, Holder.me())
        self._writer = Threads(1)
        self._ended = threading.Event()
        start_thread(self._keep_alive, self._ended)
        if self._head.is_empty and not is_made_from(head, origin):
            self._swap({"next": 0, "pending": None}, {**origin.key, **NEVER})
        self._row.begin(self._head)
        self._index_keepers()
        self._record_consent(origin)
        self._left = IdSet.of([self.left(is_decided=True)])
        return self._head

    def _record_consent(self, origin: Origin) -> None:
        """Take over what a person consented to, and what an earlier version did not note."""
        changes: dict[str, Any] = {}
        if origin.filter not in (None, self._head.filter):
            changes |= {"filter": origin.filter, "looked": None}
        if origin.places not in (None, self._head.places):
            changes["places"] = origin.places
            if self._head.places:
                changes |= NEVER
                log.warning("--moved was accepted; check the target and its ledger with: dedup-job verify")
        if changes:
            self._swap({}, changes)

    def _check_places(self) -> None:
        """Raise StateError when source, target or ledger were dropped, renamed or restored meanwhile."""
        if self._places is not None and self._head.places is not None:
            check_same(self._head.places, self._places.now())

    def settle(self) -> None:
        """Wait until nothing of the last plan is left to do; raises what happened to it."""
        if self._rest is not None:
            SHUTDOWN.result(self._rest)
            self._rest = None

    def close(self, outcome: Mapping[str, Any]) -> None:
        """Record how the run ended and give the lease back."""
        self.settle()
        if self._ended is not None:
            self._ended.set()
            self._writer.stop()
        self._row.end(outcome)
        self._swap({}, {"lease": None})

    def break_off(self, code: int) -> None:
        """Do the same for a run that ends early, if the server answers within seconds.

        If it does not, the next run on this host finds the holder gone, and one elsewhere waits for the end
        of the lease.
        """
        if self._ended is None:
            return  # the lease was never had
        seconds, began = min(self._patience.seconds, LEAVING_SECONDS), time.monotonic()
        if self._rest is not None and not wait([self._rest], seconds / 2).done:
            return  # it still writes, so the lease must not be given back
        self._rest = None
        seconds -= time.monotonic() - began
        self._patience = RetryPolicy(seconds)
        self._document = HeadDocument(self._collection("head"), self._patience)
        with suppress(DedupError), pymongo.timeout(seconds):
            self.close({"exit_code": code, **self._decided()})

    def _decided(self) -> dict[str, Any]:
        """Return what this run has decided so far, for its row; the plan that is pending is not counted."""
        if self._before is None or self._run.mode not in DECIDING:
            return {}
        return (self._head.counts - self._before).as_json()

    def _index_keepers(self) -> None:
        """Let the server find what a keeper stands for; without the right to it, it looks at all rows.

        The same where the server refuses it, as when somebody has made another index of that name.
        """
        try:
            build_indexes(self._collection("dropped"), "the ledger", [KEEPER_INDEX], self._patience)
        except (NotPermitted, IndexRefused) as error:
            log.warning(f"{error}; the run goes on, and `group` looks at all that was dropped")

    def _known(self) -> Head:
        return self._head

    def _swap(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        self._head = self._document.swap(self._head, before, after)

    def _keep_alive(self, ended: threading.Event) -> None:
        """Renew the lease until the run ends or loses it, which the next swap notices."""
        while not ended.wait(SECONDS / 3):
            with suppress(PyMongoError):  # the next turn, or the next swap, tries again
                if not self._document.renew_lease(self._head):
                    return

    def _deadline(self, pending: PlanId | None = None) -> datetime:
        """Renew the lease, and return the time up to which removals are surely covered by it."""
        same = {"pending": pending.key if pending else None}
        self._swap(same, same)
        assert self._head.lease is not None
        until: datetime = self._head.lease["until"]
        return until - timedelta(seconds=MARGIN)

    @property
    def _row(self) -> RunRow:
        return RunRow(self._run, self._collection, self._patience)

    @property
    def _row_writer(self) -> RowWriter:
        return RowWriter(self._collection, self._patience)
