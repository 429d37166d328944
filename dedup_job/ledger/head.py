"""The head: the one document with lease and progress; each commit is one compare-and-set on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from dedup_job.errors import ConfigError, LeaseHeld, StateError
from dedup_job.fingerprint.recipe import FORMAT
from dedup_job.ledger.name_damaged_documents import name_damage
from dedup_job.ledger.plan_format import PlanId, counts_key, read_counts
from dedup_job.ledger.promotion_state import BEGUN, Promotion
from dedup_job.mongo.collection_checks import CollectionIds
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.records import Counts

# How long a lease lasts without being renewed.
SECONDS = 60
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PROCESSES = Path("/proc")
# States of a process that has ended while its parent has not collected the exit code yet.
ENDED = "ZX"


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lease, identified across machines and reboots.

    Attributes:
        host: Name of its machine, for people: two machines may have the same name.
        boot: Id of the kernel's boot; empty if unknown.
        pid: Its process id, which means another process in another namespace.
        namespace: Namespace of the process id; empty if unknown.
        start: When it started, in ticks since boot: a process id may be reused.
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
        """Read a holder from the head's lease."""
        return cls(
            value["host"], value["boot"], value["pid"], value.get("namespace", ""), value.get("start", 0)
        )

    def is_near(self) -> bool:
        """Return whether this process can check the other one: same boot and same namespace."""
        me = Holder.me()
        place = (me.boot, me.namespace)
        return self == me or ("" not in place and (self.boot, self.namespace) == place)

    def is_gone(self) -> bool:
        """Return whether it is certain that the process has ended."""
        me = Holder.me()
        if self == me:
            # An earlier lease of this process.
            return True
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


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Return state and start time of a process; ("?", 0) if the system does not say."""
    fields = _text(PROCESSES / f"{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[19])) if len(fields) > 19 else ("?", 0)


# The end of a lease that is taken now, by the server's clock.
UNTIL = {"$add": ["$$NOW", SECONDS * 1000]}
# A head without a lease counts as expired.
EXPIRED = {"$expr": {"$lt": [{"$ifNull": ["$lease.until", None]}, "$$NOW"]}}

KEY = {"_id": "head"}


@dataclass(frozen=True, slots=True)
class UndoProgress:
    """The progress of an undo; nothing is decided until it has finished.

    Attributes:
        run: The run that is undone.
        plans: Number of its plans that are undone.
        counts: The verdicts in those plans.
        left: Number of their records that stay in the target, by reason.
        restored: Number of their dropped records that a person had restored.
    """

    run: str
    plans: int = 0
    counts: Counts = field(default_factory=Counts)
    left: Mapping[str, int] = field(default_factory=dict)
    restored: int = 0

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> UndoProgress:
        """Read the progress from the head."""
        counts, left = read_counts(stored["counts"]), dict(stored["left"])
        return cls(stored["run"], stored["plans"], counts, left, stored["restored"])

    @property
    def key(self) -> dict[str, Any]:
        """The stored form."""
        about = {"run": self.run, "plans": self.plans, "counts": counts_key(self.counts)}
        return {**about, "left": dict(self.left), "restored": self.restored}


@dataclass(frozen=True, slots=True)
class MarkProgress:
    """How far the dropped records of the source are marked.

    Attributes:
        field: The field of the marks.
        upto: The records of all plans with lower numbers have their marks.
        is_complete: Whether the last marking reached the end.
    """

    field: str
    upto: int = 0
    is_complete: bool = False

    @property
    def key(self) -> dict[str, Any]:
        """The stored form."""
        return asdict(self)


SOURCE, ARCHIVE = "source", "archive"


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far the dropped records of the source are moved to the archive.

    Attributes:
        archive: Name of the archive, in the source's database.
        uuid: The UUID of the archive.
        upto: The records of all plans with lower numbers are moved.
        is_complete: Whether the last sweep reached the end.
        removing: Where a removal may still be under way: "source", "archive", or "" for nowhere.
        until: When such a removal has ended for certain, by the clock of the source's server.
    """

    archive: str
    uuid: str
    upto: int = 0
    is_complete: bool = False
    removing: str = ""
    until: datetime | None = None

    @property
    def key(self) -> dict[str, Any]:
        """The stored form."""
        return asdict(self)


# Functions that read a part of the head from its document.
READ_PART: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "pending": PlanId.read,
    "last": PlanId.read,
    "undo": UndoProgress.read,
    "mark": lambda stored: MarkProgress(**stored),
    "sweep": lambda stored: SweepProgress(**stored),
    "promotion": Promotion.read,
}


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a ledger, stored in one document.

    Attributes:
        source: Full name of the source.
        recipe: The recipe's settings.
        digest: Digest of the recipe.
        fence: Raised by each run that takes the lease; writes of a run with a lower fence fail.
        lease: The holder of the lease and the end of the lease; None if it is free.
        watermark: The backfill has decided all ids up to this one; None before its first plan.
        covered: All ids with an earlier time are decided; None before the first complete scan. It is the
            start of the last scan, and at most the time in the newest ObjectId, as a clock may be wrong.
        seen: Server time at which the last scan began.
        looked: Server time at which the last full scan began, which compares all ids with the ledger.
        filter: The filter of the runs that decided.
        places: UUIDs of the collections that the ledger belongs to.
        pending: The plan that is accepted and not applied yet.
        last: The newest applied plan.
        next: Number of the next plan.
        counts: Verdicts of all applied plans.
        undo: The undo that was begun and has not finished.
        adopting: Whether an adoption of the target's own records was begun and has not finished.
        has_copies: Whether unique records are copied to a target.
        mark: How far the source is marked; None if it has no marks.
        sweep: How far dropped records are moved to an archive; None if none ever was.
        promotion: The promotion of the target; None if it was not promoted.
        unsettled: From this plan on, keepers may match better kept records and must be decided again; None
            if there are none.  Until then, a record may be in two plans, and the later one counts.
        stages: The stages of a backfill on Spark: the `snapshot` that names their files, and whether the
            backfill `is_done`; None if there was none.
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
    undo: UndoProgress | None = None
    adopting: bool = False
    looked: datetime | None = None
    filter: str | None = None
    seen: datetime | None = None
    places: CollectionIds | None = None
    has_copies: bool = True
    mark: MarkProgress | None = None
    sweep: SweepProgress | None = None
    promotion: Promotion | None = None
    unsettled: int | None = None
    stages: Mapping[str, Any] | None = None

    @classmethod
    @name_damage("the head")
    def read(cls, stored: Mapping[str, Any]) -> Head:
        """Read the head from its document.

        Raises:
            ConfigError: If another version of the job made it.
        """
        if stored["recipe"].get("format") != FORMAT:
            raise ConfigError(
                "the ledger was made by another version of dedup-job, which decided otherwise; choose "
                "another target, or drop this one and its .dedup collections, and run backfill again"
            )
        values = {each.name: stored[each.name] for each in fields(cls) if each.name in stored}
        parts = {name: read(values[name]) for name, read in READ_PART.items() if values.get(name)}
        return cls(**{**values, **parts, "counts": read_counts(stored["counts"])})

    @property
    def is_empty(self) -> bool:
        """Whether nothing is decided: nothing was yet, or all runs were undone."""
        return self.next == 0 and self.pending is None and self.undo is None

    @property
    def in_source(self) -> int:
        """Number of decided records that the source should have, if none was deleted since."""
        away = self.promotion.absent if self.promotion and self.promotion.is_done else 0
        return self.counts.in_source - away

    def is_before_promotion(self, plan: PlanId) -> bool:
        """Return whether a plan was made before the target took the place of its source."""
        promotion = self.promotion
        return promotion is not None and promotion.state != BEGUN and plan.number < promotion.plans


@dataclass(frozen=True, slots=True)
class Origin:
    """The source, recipe, filter and collections that a ledger is made with.

    Attributes:
        source: Full name of the source.
        recipe: The recipe's settings.
        digest: Digest of the recipe.
        filter: The source's filter; None if it does not matter.
        places: UUIDs of the collections; None if they do not matter.
        has_copies: Whether unique records are copied to a target.
        promotes: Whether the command is the promotion that the ledger may be in the middle of.
    """

    source: str
    recipe: Mapping[str, Any]
    digest: str
    filter: str | None = None
    places: CollectionIds | None = None
    has_copies: bool = True
    promotes: bool = False

    @property
    def key(self) -> dict[str, Any]:
        """The first fields of a new head."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "promotes"}


class HeadDocument:
    """Reads and swaps the head; the server compares, by its own clock."""

    def __init__(self, collection: RetryingCollection) -> None:
        self._collection = collection

    def read(self) -> Head | None:
        """Return the head; None if there is none."""
        # With a time limit: until a majority has the collection, the server would wait for ever.
        stored = self._collection.find_one(KEY, max_time_ms=self._collection.retry.milliseconds)
        return Head.read(stored) if stored else None

    def create(self, origin: Origin) -> None:
        """Create the head of a new ledger; if there is one, only wait until a majority has it."""
        fresh = {
            **origin.key,
            **dict.fromkeys(("lease", "watermark", "covered", "seen", "looked", "pending", "last", "undo")),
            "fence": 0,
            "next": 0,
            "counts": counts_key(Counts()),
        }

        def insert_if_absent() -> None:
            # Two runs may try to create it at once.
            with suppress(DuplicateKeyError):
                self._collection.unretried.update_one(KEY, {"$setOnInsert": fresh}, upsert=True)

        self._collection.attempt(insert_if_absent)

    def take_lease(self, head: Head, holder: Holder) -> Head:
        """Take the lease, and return the new head.

        A lease is free when it has expired by the server's clock, or when its holder has certainly ended.
        Taking it raises the fence, so that all later swaps of the earlier holder fail.

        Raises:
            LeaseHeld: If another run holds the lease.
        """
        free = head.lease is None or Holder.read(head.lease).is_gone()
        condition = {**KEY, "fence": head.fence} | ({} if free else EXPIRED)
        lease = {**asdict(holder), "until": UNTIL}
        update = [{"$set": {"fence": {"$add": ["$fence", 1]}, "lease": lease}}]
        stored = self._update(condition, update)
        if stored is None:
            current = self.read()
            assert current is not None
            if current.fence == head.fence + 1 and current.lease and Holder.read(current.lease) == holder:
                # Our own command took it, and its answer was lost.
                return current
            raise LeaseHeld(f"another run works on this target: {_describe_lease(current)}; try again later")
        return Head.read(stored)

    def renew_lease(self, head: Head) -> bool:
        """Extend the lease once, without retries; return whether this run still holds it."""
        held = {**KEY, "fence": head.fence, "lease": {"$ne": None}}
        update = [{"$set": {"lease.until": UNTIL}}]
        return self._collection.unretried.update_one(held, update).matched_count == 1

    def check_held(self, head: Head) -> None:
        """Raise LeaseHeld if another run has taken the lease."""
        current = self.read()
        if current is not None and current.fence != head.fence:
            raise LeaseHeld(f"another run took over: {_describe_lease(current)}")

    def swap(self, head: Head, before: Mapping[str, Any], after: Mapping[str, Any]) -> Head:
        """Replace some values of the head, if it still has the values `before` and this run's fence.

        Args:
            head: The head as this run knows it.
            before: The values that it must have.
            after: The new values.

        Returns:
            The new head.

        Raises:
            LeaseHeld: If another run took over.
            StateError: If the head was changed by hand.
        """
        condition = {**KEY, "fence": head.fence, **before}
        update = [{"$set": {name: {"$literal": value} for name, value in after.items()}}]
        if "lease" not in after:
            # A lease that was given back must not come back.
            condition |= {"lease": {"$ne": None}}
            update.append({"$set": {"lease.until": UNTIL}})
        stored = self._update(condition, update)
        if stored is None:
            # The swap may have succeeded with its answer lost: then the head has the new values.
            done = {**KEY, "fence": head.fence, **after}
            stored = self._collection.find_one(done)
        if stored is not None:
            return Head.read(stored)
        self.check_held(head)
        raise StateError(
            "the head of the ledger was changed by hand; restore the target database from a backup"
        )

    def _update(self, condition: Mapping[str, Any], update: list[dict[str, Any]]) -> Any:
        return self._collection.find_one_and_update(condition, update, return_document=ReturnDocument.AFTER)


def _describe_lease(head: Head) -> str:
    if head.lease is None:
        return "it has just ended"
    return (
        f"process {head.lease['pid']} on {head.lease['host']}, lease until {head.lease['until']:%H:%M:%S} UTC"
    )
