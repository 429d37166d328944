"""The head: the one document that holds lease and progress; every commit is one compare-and-set on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from dedup_job.errors import ConfigError, LeaseHeld, StateError
from dedup_job.fingerprint.recipe import FORMAT
from dedup_job.ledger.plan_format import PlanId, counts_key, read_counts
from dedup_job.mongo.client import RetryPolicy, named_errors
from dedup_job.mongo.collection_uuids import Noted
from dedup_job.records import Counts

SECONDS = 60
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PROCESSES = Path("/proc")
ENDED = "ZX"  # states of a process that does nothing any more: its parent has not asked for it yet


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, told from all others.

    host       what its machine calls itself, for people: two may have one name
    boot       the boot of its kernel; "" where that is not known
    pid        its number, which is another's in another namespace
    namespace  that of its number; "" where that is not known
    start      when it was started, in ticks of that boot: a number may be given again
    """

    host: str
    boot: str
    pid: int
    namespace: str = ""
    start: int = 0

    @classmethod
    def me(cls) -> Holder:
        """Return this process."""
        boot, pid = _text(BOOT_ID), os.getpid()
        namespace = ""
        with suppress(OSError):
            namespace = os.readlink(PROCESSES / "self/ns/pid")
        _, start = _stat(pid)
        return cls(socket.gethostname(), boot, pid, namespace, start)

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Holder:
        """Take it from a head."""
        return cls(
            value["host"], value["boot"], value["pid"], value.get("namespace", ""), value.get("start", 0)
        )

    @property
    def key(self) -> dict[str, Any]:
        """Return it as it is stored."""
        return asdict(self)

    def is_near(self) -> bool:
        """Return whether this process can tell of that one: it has its number in the same place."""
        me = Holder.me()
        return self == me or ("" not in (me.boot, me.namespace) and self._place == me._place)

    def is_gone(self) -> bool:
        """Return whether this process surely does not run any more; where nothing proves that, it may."""
        me = Holder.me()
        if self == me:
            return True  # it is what this process held before
        if not self.is_near():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        state, start = _stat(self.pid)
        return state in ENDED if start == self.start else bool(start)

    @property
    def _place(self) -> tuple[str, str]:
        return self.boot, self.namespace


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Return the state of a process and when it was started; ("?", 0) where the system does not tell."""
    fields = _text(PROCESSES / f"{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[19])) if len(fields) > 19 else ("?", 0)


def until() -> dict[str, Any]:
    """Return the expression for the end of a lease taken now, by the server's clock."""
    return {"$add": ["$$NOW", SECONDS * 1000]}


EXPIRED = {"$expr": {"$lt": [{"$ifNull": ["$lease.until", None]}, "$$NOW"]}}

KEY = {"_id": "head"}


@dataclass(frozen=True, slots=True)
class Undoing:
    """How far the undo of a run is; nothing is decided while there is one.

    run     the run that is taken back
    plans   how many of its plans are taken back
    counts  the verdicts that were in them
    left    how many records of them stay in the target, by reason
    """

    run: str
    plans: int = 0
    counts: Counts = field(default_factory=Counts)
    left: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Undoing:
        """Take it from a head."""
        return cls(stored["run"], stored["plans"], read_counts(stored["counts"]), dict(stored["left"]))

    @property
    def key(self) -> dict[str, Any]:
        """Return it as it is stored."""
        counts, left = counts_key(self.counts), dict(self.left)
        return {"run": self.run, "plans": self.plans, "counts": counts, "left": left}


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a ledger, in one document.

    watermark  id up to which the backfill has decided, or None
    covered    time up to which all ids are decided, or None: that at which the last look at the source
               began, and no later than the newest ObjectId in it, as a clock may be wrong
    seen       server time at which that look began
    looked     the same of the last look that compared all ids, those far behind too
    filter     the filter by which records are decided; None in a head of an earlier version
    places     which collections the ledger is about; None in a head of an earlier version
    pending    the plan that is accepted and not yet carried out
    last       the newest plan that is carried out
    next       number of the next plan
    undo       the undo that was begun and has not ended
    adopting   whether the records that the target held before are being taken in
    """

    source: str
    recipe: Mapping[str, Any]
    digest: str
    fence: int
    lease: Mapping[str, Any] | None
    watermark: bytes | None
    covered: datetime | None
    pending: PlanId | None
    last: PlanId | None
    next: int
    counts: Counts
    undo: Undoing | None = None
    adopting: bool = False
    looked: datetime | None = None
    filter: str | None = None
    seen: datetime | None = None
    places: Noted | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Head:
        """Take it from its document; ConfigError for one of another version."""
        if stored["recipe"].get("format") != FORMAT:
            raise ConfigError(
                "the ledger was made by another version of dedup-job, which decided otherwise; choose "
                "another target, or drop this one and its .dedup collections, and run backfill again"
            )
        plan_ids = {name: PlanId.read(stored[name]) if stored[name] else None for name in ("pending", "last")}
        return cls(
            source=stored["source"],
            recipe=dict(stored["recipe"]),
            digest=stored["digest"],
            fence=stored["fence"],
            lease=stored["lease"],
            watermark=stored["watermark"],
            covered=stored["covered"],
            next=stored["next"],
            counts=read_counts(stored["counts"]),
            undo=Undoing.read(stored["undo"]) if stored.get("undo") else None,
            adopting=stored.get("adopting", False),
            looked=stored.get("looked"),
            filter=stored.get("filter"),
            seen=stored.get("seen"),
            places=stored.get("places"),
            **plan_ids,
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is decided yet, or not any more."""
        return self.next == 0 and self.pending is None and self.undo is None


@dataclass(frozen=True, slots=True)
class Origin:
    """What a ledger is made from: the source's name, the recipe, filter and places.

    The last two are None where they do not matter.
    """

    source: str
    recipe: Mapping[str, Any]
    digest: str
    filter: str | None = None
    places: Noted | None = None

    @property
    def key(self) -> dict[str, Any]:
        """Return it as a head begins with it."""
        return {
            "source": self.source,
            "recipe": dict(self.recipe),
            "digest": self.digest,
            "filter": self.filter,
            "places": self.places,
        }


class HeadDocument:
    """Reads and swaps the head.  The server's clock and comparison decide, never this process's."""

    def __init__(self, collection: Collection[Any], patience: RetryPolicy) -> None:
        self._collection = collection
        self._patience = patience

    def read(self) -> Head | None:
        """Return the state, or None where no run has been.

        Where no majority has the collection yet, the server would wait for it without end.
        """
        most = self._patience.milliseconds
        with named_errors("the ledger"):
            stored = self._patience(lambda: self._collection.find_one(KEY, max_time_ms=most))
        return Head.read(stored) if stored else None

    def create(self, origin: Origin) -> None:
        """Make the head of a new ledger; where there is one, only wait until a majority has it."""
        fresh = {
            **origin.key,
            "fence": 0,
            "lease": None,
            "watermark": None,
            "covered": None,
            "seen": None,
            "looked": None,
            "pending": None,
            "last": None,
            "next": 0,
            "counts": counts_key(Counts()),
            "undo": None,
        }
        with named_errors("the ledger"), suppress(DuplicateKeyError):
            self._patience(lambda: self._collection.update_one(KEY, {"$setOnInsert": fresh}, upsert=True))

    def take_lease(self, head: Head, holder: Holder) -> Head:
        """Become the one that decides; raises LeaseHeld while another is.

        A lease is free when its time is over by the server's clock, or when it is proven that its holder is
        gone.  Each take raises the fence, so that an earlier holder's swaps fail from then on.
        """
        free = head.lease is None or Holder.read(head.lease).is_gone()
        condition = {**KEY, "fence": head.fence} | ({} if free else EXPIRED)
        lease = {**holder.key, "until": until()}
        update = [{"$set": {"fence": {"$add": ["$fence", 1]}, "lease": lease}}]
        with named_errors("the ledger"):
            stored = self._patience(lambda: self._update(condition, update))
        if stored is None:
            current = self.read()
            assert current is not None
            if current.fence == head.fence + 1 and current.lease and Holder.read(current.lease) == holder:
                return current  # it was taken by a command whose answer was lost
            raise LeaseHeld(f"another run works on this target: {_described(current)}; try again later")
        return Head.read(stored)

    def renew_lease(self, head: Head) -> bool:
        """Move the end of the lease on; returns whether it is still held: neither lost nor given back."""
        held = {**KEY, "fence": head.fence, "lease": {"$ne": None}}
        update = [{"$set": {"lease.until": until()}}]
        return self._collection.update_one(held, update).matched_count == 1

    def check_held(self, head: Head) -> None:
        """Raise LeaseHeld when another run took the lease."""
        current = self.read()
        if current is not None and current.fence != head.fence:
            raise LeaseHeld(f"another run took over: {_described(current)}")

    def swap(self, head: Head, before: Mapping[str, Any], after: Mapping[str, Any]) -> Head:
        """Replace the values `before` by `after`, if this process still holds the fence.

        A lost answer leaves it open whether the swap happened; the head itself then tells.  Raises LeaseHeld
        when another run took over.
        """
        condition = {**KEY, "fence": head.fence, **before}
        update = [{"$set": {name: {"$literal": value} for name, value in after.items()}}]
        if "lease" not in after:
            condition |= {"lease": {"$ne": None}}  # one that was given back must not come back
            update.append({"$set": {"lease.until": until()}})
        with named_errors("the ledger"):
            stored = self._patience(lambda: self._update(condition, update))
            if stored is None:
                done = {**KEY, "fence": head.fence, **after}
                stored = self._patience(lambda: self._collection.find_one(done))
        if stored is not None:
            return Head.read(stored)
        self.check_held(head)
        raise StateError("the head of the ledger was changed by hand; restore the target database")

    def _update(self, condition: Mapping[str, Any], update: list[dict[str, Any]]) -> Any:
        return self._collection.find_one_and_update(condition, update, return_document=ReturnDocument.AFTER)


def _described(head: Head) -> str:
    if head.lease is None:
        return "it has just ended"
    return (
        f"process {head.lease['pid']} on {head.lease['host']}, lease until {head.lease['until']:%H:%M:%S} UTC"
    )
