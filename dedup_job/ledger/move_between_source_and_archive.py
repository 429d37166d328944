"""Move records between source and archive; each step is in the head before it happens, and can be repeated.

A record that is removed from one of them is in the other, acknowledged by a majority.  A removal is only sent
while the lease is held, with a time limit.  The head has its end, so that the opposite move, which would be
undone by a late removal of a killed command, waits for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from dedup_job.errors import StateError, Unreachable
from dedup_job.ledger.apply_plan import TRIES
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.head import SweepProgress
from dedup_job.mongo.archive import Archive
from dedup_job.mongo.mark_field import CHANGED
from dedup_job.mongo.target import REMOVAL_SECONDS
from dedup_job.records import CONFLICT
from dedup_job.signals import SHUTDOWN

# A removal must begin within this time; shorter than a lease.
BEGIN_SECONDS = 30.0
# Interval of checking the server's clock.
POLL_SECONDS = 0.5
# Reason for a record to stay in the source.
UNMOVABLE = "unmovable"

log = logging.getLogger("dedup_job")


@dataclass(slots=True)
class ArchiveMoves:
    """Moves records; the ledger's lease must be held.

    Attributes:
        ledger: The ledger.
        archive: The archive.
        place: Where these moves remove records: "source" or "archive".
        earlier: When the removals of earlier commands from this place have ended; None if they have.
        is_certain: Whether no removal of these moves can still be under way: no answer was lost.
    """

    ledger: Ledger
    archive: Archive
    place: str
    earlier: datetime | None
    is_certain: bool = True

    @classmethod
    def begin(cls, ledger: Ledger, archive: Archive, place: str) -> Self:
        """Wait until no removal of a killed command can undo the moves to come.

        Args:
            ledger: The ledger, with a sweep in its head.
            archive: The archive.
            place: Where these moves remove records: "source" or "archive".

        Raises:
            ConfigError: If records are to come back, and the source was replaced by a capped collection.
            NotPermitted: If records are to come back, and the user may not move them.
            StateError: If the archive was replaced.
        """
        if place == "archive":
            archive.check_way_back()
        progress = ledger.current_head.sweep
        assert progress is not None
        archive.check_same(progress.uuid)
        if progress.until is None or progress.removing == place:
            return cls(ledger, archive, place, progress.until)
        if archive.now() <= progress.until:
            log.info("waiting until the last removal of an earlier command has ended")
        while archive.now() <= progress.until:
            SHUTDOWN.check()
            time.sleep(POLL_SECONDS)
            ledger.check_held()
        return cls(ledger, archive, place, None)

    @property
    def progress(self) -> SweepProgress:
        """The progress in the head."""
        progress = self.ledger.current_head.sweep
        assert progress is not None
        return progress

    def move_out(self, records: Mapping[bytes, bytes]) -> dict[bytes, str]:
        """Remove records of the source that are in the archive, where the source still has them unchanged.

        Args:
            records: The raw records, with their marks, by id.

        Returns:
            Why records stay in the source, by id.

        Raises:
            Unreachable: If the source did not remove the records in time.
        """
        stay, remaining, late = dict[bytes, str](), dict(records), 0
        while remaining:
            if late == TRIES:
                raise Unreachable("the source did not remove the records in time; run the same command again")
            self.check()
            before = self._announce_removal()
            removed = self.archive.remove_unchanged(remaining, before)
            self.is_certain &= removed.is_certain
            # The usual case: looking for the rest would cost another read.
            if removed.records == len(remaining):
                break
            was, remaining = remaining, {}
            for found in self.archive.stored(list(was)):
                for raw_id, raw in found.items():
                    if raw == was[raw_id]:
                        remaining[raw_id] = raw
                    else:
                        stay[raw_id] = CHANGED
            if len(remaining) < len(was):
                continue
            if self.archive.now() < before:
                # The server does not take the records for equal to themselves, or refuses to compare them.
                return stay | dict.fromkeys(remaining, UNMOVABLE)
            late += 1
        return stay

    def bring_back(self, ids: Sequence[bytes]) -> dict[bytes, str]:
        """Move the records with these ids that are in the archive back to the source.

        Returns:
            Why records stay in the archive, by id: "conflict" if the source has another record with the id.
        """
        refused = dict[bytes, str]()
        for records in self.archive.records.fetch(ids):
            self.check()
            refused |= self.archive.put_back(records)
            moved, tries = records.keys() - refused.keys(), 0
            while moved:
                if tries == TRIES:
                    raise Unreachable(
                        "the archive did not remove the records in time; run the same command again"
                    )
                before = self._announce_removal()
                self.is_certain &= self.archive.remove(sorted(moved), before).is_certain
                moved -= self.archive.records.absent(moved)
                tries += 1
        return refused

    def bring_all_back(self, ids: Sequence[bytes]) -> None:
        """Bring records back as `bring_back`; warn of records whose id another record in the source has.

        Raises:
            StateError: If the source refuses a record for another reason.
        """
        refused = self.bring_back(ids)
        others = sorted({reason for reason in refused.values() if reason != CONFLICT.reason})
        if others:
            raise StateError(
                f"the source refuses to take {len(refused)} records back from {self.archive.full_name} "
                f"({', '.join(others)}); correct the cause, and run the same command again"
            )
        if refused:
            log.warning(
                f"{len(refused):,} records stay in {self.archive.full_name}: the source has other records "
                "with their ids"
            )

    def note(self, **changes: Any) -> None:
        """Store progress, and that no removal is under way if this is certain."""
        progress = replace(self.progress, **changes)
        if self.is_certain:
            progress = replace(progress, removing=self.place if self.earlier else "", until=self.earlier)
        self.ledger.swap({"pending": None}, {"sweep": progress.key})

    def _announce_removal(self) -> datetime:
        """Store when a removal that is sent now has ended; return the time until which it may begin.

        Raises:
            LeaseHeld: If another run has taken the lease.
        """
        before = self.archive.now() + timedelta(seconds=BEGIN_SECONDS)
        until = before + timedelta(seconds=REMOVAL_SECONDS)
        progress = replace(self.progress, removing=self.place, until=until)
        # This also renews the lease, which lasts longer than the removal may wait.
        self.ledger.swap({"pending": None}, {"sweep": progress.key})
        return before

    def check(self) -> None:
        """Raise StateError if a collection was replaced, and LeaseHeld if another run has taken the lease."""
        self.ledger.check_places()
        self.archive.check_same(self.progress.uuid)
        # Last, as an insert itself cannot ask who has the lease.
        self.ledger.check_held()
